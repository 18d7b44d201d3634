"""Live recognition: blocks of audio in, events out, text committed as soon as it is sure.

Policy only: no threads and no clock of its own, so a recording can be fed at any speed. Every
update decodes the open buffer again, with the previous hypothesis as the draft: what still holds
is verified in one pass. Committed text never changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.features import HOP, FileFeatures
from pipelines.asr.audio.vad import SpeechAudio, SpeechEnd, SpeechStart, VoiceActivity
from pipelines.asr.live.align_att import words_before
from pipelines.asr.live.buffer import LiveBuffer
from pipelines.asr.live.events import (
    CommittedText,
    LiveEvent,
    PartialText,
    SpeechEnded,
    SpeechStarted,
    UpdateDecoded,
)
from pipelines.asr.live.hypothesis import words
from pipelines.asr.live.local_agreement import agreed_word_count
from pipelines.asr.live.options import LiveOptions
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.transcriber import Transcriber
from pipelines.asr.window import WindowDecoder
from pipelines.engine import EncodedSource

__all__ = ["LiveOptions", "LiveTranscriber"]

_TAIL_S = 1.0  # left free at the end of the window, so that a word at its end is heard whole
_BEFORE_S, _AFTER_S = 0.2, 0.1  # a word begins and ends so long before and after it is looked for


class LiveTranscriber:
    """One live session on a transcriber, which many sessions may share.

    Raises UnsupportedTask when the model lacks the language or the task.
    """

    def __init__(
        self,
        transcriber: Transcriber,
        options: LiveOptions | None = None,
        voice: VoiceActivity | None = None,
    ) -> None:
        self._options = options or LiveOptions()
        self._transcriber = transcriber
        transcriber.capabilities.check(self._options.transcribe)
        self._voice = voice or VoiceActivity(self._options.voice)
        self._window = transcriber.window_s
        self._chunk = round(self._options.min_chunk_s * SAMPLE_RATE)
        follow = self._options.follow_window
        self._follow = self._window < 30 if follow is None else follow
        prompt = self._options.transcribe.initial_prompt
        self._prompt = transcriber.tokenizer.encode(" " + prompt.strip()) if prompt else []
        self._context: list[int] = []
        self._language = self._options.transcribe.language
        self._decoders: dict[str, WindowDecoder] = {}
        self._buffer: LiveBuffer | None = None
        self._shown = ""
        self._said_until = 0.0
        self._origin = self._fed = 0  # samples before those that voice activity counts, and these

    @property
    def level(self) -> float:
        """Loudness of the latest audio in dB below full scale."""
        return self._voice.level

    @property
    def language(self) -> str | None:
        """What is spoken: given, or detected in the latest utterance."""
        return self._language

    def feed(self, samples: Samples) -> list[LiveEvent]:
        """Take in a block of any size, mono float32 at 16 kHz; what it changes.

        When an update is due depends on the audio alone, not on the blocks that it comes in. But
        of a block of min_chunk_s or more, in which several may be due, only the last is made: so
        whoever falls behind catches up by feeding all that has arrived at once.
        """
        self._fed += len(samples)
        behind = len(samples) >= self._chunk
        return self._hear(self._voice.feed(samples), behind) + self._update()

    def finish(self) -> list[LiveEvent]:
        """The stream has ended: whatever was said before is committed. More may be fed, as if it
        followed at once."""
        events = self._hear(self._voice.finish(), behind=True)
        self._origin, self._fed = self._origin + self._fed, 0
        return events

    def _hear(
        self, news: Sequence[SpeechStart | SpeechAudio | SpeechEnd], behind: bool
    ) -> list[LiveEvent]:
        events: list[LiveEvent] = []
        for event in news:
            if isinstance(event, SpeechStart):
                start = self._origin + event.sample
                self._buffer = LiveBuffer(start)
                events.append(SpeechStarted(start / SAMPLE_RATE))
                continue
            assert self._buffer is not None, "speech begins before it goes on or ends"
            if isinstance(event, SpeechAudio):
                events += self._extend(self._buffer, event.samples)
                events += [] if behind else self._update()
            else:
                events += self._settle(self._buffer)
                events.append(SpeechEnded((self._origin + event.sample) / SAMPLE_RATE))
                self._buffer = None
        return events

    def _extend(self, buffer: LiveBuffer, samples: Samples) -> list[LiveEvent]:
        """Add audio; speech that fills the window without a pause is cut where it is quietest."""
        events: list[LiveEvent] = []
        room = int((self._window - _TAIL_S) * SAMPLE_RATE)
        buffer.add(samples, self._chunk)
        while len(buffer.samples) > room:
            rest = buffer.split(room)
            events += self._settle(buffer)
            self._buffer = buffer = rest
            buffer.add(np.zeros(0, np.float32), self._chunk)
        return events

    def _settle(self, buffer: LiveBuffer) -> list[LiveEvent]:
        """Decode for the last time and commit all."""
        stale = buffer.decoded != len(buffer.samples)  # also when audio was cut off
        events = self._decode(buffer, len(buffer.samples)) if stale else []
        found = words(buffer.hypothesis, self._tokens)
        # A doubted one is that of an earlier update, which may have heard beyond a cut: what was
        # said there is recognised with what follows.
        sure = words_before(buffer.heard_s, found, buffer.times) if buffer.doubted else len(found)
        return events + self._commit(buffer, sure, whole=True)

    def _update(self) -> list[LiveEvent]:
        """The update that is due, if one is."""
        buffer = self._buffer
        if buffer is None or buffer.due is None:
            return []
        before = words(buffer.hypothesis, self._tokens)
        events = self._decode(buffer, buffer.due)
        now = words(buffer.hypothesis, self._tokens)
        if buffer.doubted:
            sure = 0
        elif self._options.policy == "agreement":
            sure = agreed_word_count(before, now)
        else:
            sure = words_before(
                buffer.heard_s - self._options.attention_margin_s, now, buffer.times
            )
        events += self._commit(buffer, sure)
        self._trim(buffer)
        return events

    def _decode(self, buffer: LiveBuffer, samples: int) -> list[LiveEvent]:
        """A new hypothesis for so many samples of the buffer; it begins with what is committed."""
        buffer.decoded, buffer.due = samples, None
        encoded = self._encode(buffer.samples[:samples])
        decoder = self._decoder(encoded)
        draft = tuple(buffer.hypothesis if self._options.drafts else ())
        result = decoder.redecode(
            encoded,
            [*self._prompt, *self._context],
            buffer.committed,
            draft,
            _max_tokens(buffer.heard_s),
            buffer.heard_s,
        )
        # A loop says nothing; what was heard before it still stands.
        buffer.doubted = decoder.is_repetitive(result.window)
        if decoder.is_silent(result.window):
            buffer.believe(buffer.committed, buffer.times[: len(buffer.committed)])
        elif not buffer.doubted:
            buffer.believe(result.window.tokens, result.times)
        return [
            UpdateDecoded(buffer.heard_s, len(result.window.tokens), len(draft), result.accepted)
        ]

    def _encode(self, samples: Samples) -> EncodedSource:
        frames = round(self._window * SAMPLE_RATE) // HOP
        if self._follow:
            # In steps of a second: kernels are prepared once for each length.
            needed = len(samples) // HOP + 100
            frames = min(frames, -(-needed // 100) * 100)
        mels = self._transcriber.model.architecture.num_mel_bins
        mel, _ = FileFeatures(samples, mels, frames).window(0)
        return self._transcriber.model.encode([mel])[0]

    def _decoder(self, encoded: EncodedSource) -> WindowDecoder:
        """For the language spoken, which is listened for anew where none was given."""
        if self._options.transcribe.language is None:
            self._language = self._transcriber.top_language(encoded)
        assert self._language is not None
        if self._language not in self._decoders:
            self._decoders[self._language] = self._transcriber.window_decoder(
                self._language, self._options.transcribe
            )
        return self._decoders[self._language]

    def _commit(self, buffer: LiveBuffer, count: int, *, whole: bool = False) -> list[LiveEvent]:
        """Commit the first `count` words of the hypothesis; whole: the buffer is done with."""
        events: list[LiveEvent] = []
        found = words(buffer.hypothesis, self._tokens)[:count]
        stop, old = (found[-1].stop if found else 0), len(buffer.committed)
        if stop > old:
            text = self._tokens.text(buffer.hypothesis[old:stop])
            offset = buffer.origin / SAMPLE_RATE
            times = buffer.times[old:stop]
            start = max(self._said_until, offset + max(0.0, times[0] - _BEFORE_S))
            end = buffer.heard_s if whole else min(buffer.heard_s, times[-1] + _AFTER_S)
            self._said_until = max(start, offset + end)
            events.append(CommittedText(text, start, self._said_until))
            buffer.committed = buffer.hypothesis[:stop]
        tail = "" if whole else self._tokens.text(buffer.hypothesis[len(buffer.committed) :])
        if tail != self._shown or (events and tail):
            self._shown = tail
            events.append(PartialText(tail))
        if whole:
            self._remember(buffer.committed)
        return events

    def _remember(self, tokens: Sequence[int]) -> None:
        """Keep the last of what was committed, as context for what follows."""
        text = [token for token in tokens if token < self._tokens.special.eot]
        both = [*self._context, *text]
        self._context = both[max(0, len(both) - self._options.context_tokens) :]

    def _trim(self, buffer: LiveBuffer) -> None:
        """Let go of segments that are complete and committed, once half the window is full."""
        if buffer.heard_s < self._window / 2:
            return
        if done := buffer.release(self._tokens.special.timestamp_begin):
            self._remember(done)

    @property
    def _tokens(self) -> WhisperTokenizer:
        return self._transcriber.tokenizer


def _max_tokens(seconds: float) -> int:
    """More tokens than this nobody says in that time: what comes on top is a loop."""
    return 16 + int(20 * seconds)
