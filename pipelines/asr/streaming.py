"""Live recognition: blocks of audio in, events out, text committed as soon as it is sure.

Policy only: no threads and no clock of its own, so a recording can be fed at any speed. Every
update decodes the open buffer again, with the previous hypothesis as the draft: what still holds
is verified in one pass. Committed text never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pipelines.asr.arrays import SAMPLE_RATE, Samples
from pipelines.asr.features import HOP, FileFeatures
from pipelines.asr.hypothesis import agreed, complete_segments, shifted, words
from pipelines.asr.live import Committed, Decoded, LiveEvent, Partial, SpeechEnded, SpeechStarted
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.transcriber import Transcriber
from pipelines.asr.voice import SpeechAudio, SpeechEnd, SpeechStart, VoiceActivity, VoiceOptions
from pipelines.asr.window import TIME_PRECISION, WindowDecoder
from pipelines.engine import Memory
from pipelines.errors import OptionError

__all__ = ["LiveOptions", "LiveTranscriber"]

Policy = Literal["agreement", "attention"]

_CONTEXT = 64  # tokens of committed text that the decoder is reminded of
_TAIL_S = 1.0  # left free at the end of the window, so that a word at its end is heard whole
_BEFORE_S, _AFTER_S = 0.2, 0.1  # a word begins and ends so long before and after it is looked for
_STEP = TIME_PRECISION * SAMPLE_RATE  # samples from one timestamp to the next


@dataclass(frozen=True)
class LiveOptions:
    """How to recognise live speech.

    transcribe: language, task, prompt and thresholds, as for recordings.
    voice: what counts as speech; with a long pre-roll, for quiet microphones.
    min_chunk_s: new audio between two updates.
    policy: "agreement" commits what two updates in a row agree on (LocalAgreement-2);
        "attention" what the decoder found safely before the end of the audio (AlignAtt, Papi et
        al. 2023): sooner, a little less sure.
    attention_margin_s: how far before the end, for that policy.
    follow_window: let the encoder hear the buffer only, not silence up to the whole window.
        None: where the model's window is shorter than Whisper's 30 s, because such models were
        trained on short audio; Whisper's own were not.
    drafts: verify the last hypothesis in one pass. Without, the text is the same, only later.

    Raises OptionError for values out of range.
    """

    transcribe: TranscribeOptions = field(default_factory=TranscribeOptions)
    voice: VoiceOptions = field(default_factory=lambda: VoiceOptions(pre_roll_s=0.5))
    min_chunk_s: float = 0.5
    policy: Policy = "agreement"
    attention_margin_s: float = 0.4
    follow_window: bool | None = None
    drafts: bool = True

    def __post_init__(self) -> None:
        if not 0.02 <= self.min_chunk_s <= 30:
            raise OptionError(f"min_chunk_s must be 0.02 to 30, not {self.min_chunk_s}")
        if self.policy not in ("agreement", "attention"):
            raise OptionError(f"policy must be agreement or attention, not {self.policy!r}")
        if not 0 <= self.attention_margin_s <= 5:
            raise OptionError(f"attention_margin_s must be 0 to 5, not {self.attention_margin_s}")


@dataclass
class _Buffer:
    """Audio that is not yet settled, and what was made of it. origin: samples before it."""

    origin: int
    samples: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    hypothesis: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)  # the start of the hypothesis
    times: list[float] = field(default_factory=list)  # of its tokens, from the start of the buffer
    decoded: int = 0  # samples that the hypothesis has heard

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    @property
    def committed_s(self) -> float:
        """Where the last committed word was heard."""
        return self.times[len(self.committed) - 1] if self.committed else 0.0

    @property
    def fresh_s(self) -> float:
        return (len(self.samples) - self.decoded) / SAMPLE_RATE


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
        transcriber.abilities.check(self._options.transcribe)
        self._voice = voice or VoiceActivity(self._options.voice)
        self._window = transcriber.window_s
        follow = self._options.follow_window
        self._follow = self._window < 30 if follow is None else follow
        prompt = self._options.transcribe.initial_prompt
        self._context = transcriber.tokenizer.encode(" " + prompt.strip()) if prompt else []
        self._language = self._options.transcribe.language
        self._decoders: dict[str, WindowDecoder] = {}
        self._buffer: _Buffer | None = None
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

        At most one update is made a call, so that whoever falls behind catches up by feeding
        all that has arrived at once.
        """
        self._fed += len(samples)
        events = self._hear(self._voice.feed(samples))
        buffer = self._buffer
        if buffer is not None and buffer.fresh_s >= self._options.min_chunk_s:
            events += self._update(buffer)
        return events

    def finish(self) -> list[LiveEvent]:
        """The stream has ended: whatever was said before is committed. More may be fed, as if it
        followed at once."""
        events = self._hear(self._voice.finish())
        self._origin, self._fed = self._origin + self._fed, 0
        return events

    def _hear(self, news: Sequence[SpeechStart | SpeechAudio | SpeechEnd]) -> list[LiveEvent]:
        events: list[LiveEvent] = []
        for event in news:
            if isinstance(event, SpeechStart):
                start = self._origin + event.sample
                self._buffer = _Buffer(start)
                events.append(SpeechStarted(start / SAMPLE_RATE))
                continue
            assert self._buffer is not None, "speech begins before it goes on or ends"
            if isinstance(event, SpeechAudio):
                events += self._extend(self._buffer, event.samples)
            else:
                events += self._settle(self._buffer)
                events.append(SpeechEnded((self._origin + event.sample) / SAMPLE_RATE))
                self._buffer = None
        return events

    def _extend(self, buffer: _Buffer, samples: Samples) -> list[LiveEvent]:
        """Add audio; speech that fills the window without a pause is cut where it is quietest."""
        events: list[LiveEvent] = []
        room = int((self._window - _TAIL_S) * SAMPLE_RATE)
        buffer.samples = np.concatenate([buffer.samples, samples])
        while len(buffer.samples) > room:
            cut = _quietest(buffer.samples[:room], buffer.committed_s)
            rest = _Buffer(buffer.origin + cut, buffer.samples[cut:])
            buffer.samples = buffer.samples[:cut]
            events += self._settle(buffer)
            self._buffer = buffer = rest
        return events

    def _settle(self, buffer: _Buffer) -> list[LiveEvent]:
        """Decode for the last time and commit all."""
        stale = buffer.decoded != len(buffer.samples)  # also when audio was cut off
        events = self._decode(buffer) if stale else []
        return events + self._commit(
            buffer, len(words(buffer.hypothesis, self._tokens)), whole=True
        )

    def _update(self, buffer: _Buffer) -> list[LiveEvent]:
        before = words(buffer.hypothesis, self._tokens)
        events = self._decode(buffer)
        now = words(buffer.hypothesis, self._tokens)
        if self._options.policy == "agreement":
            sure = agreed(before, now)
        else:
            limit = buffer.seconds - self._options.attention_margin_s
            safe = [all(t < limit for t in buffer.times[: word.stop]) for word in now]
            sure = safe.index(False) if False in safe else len(safe)
        events += self._commit(buffer, sure)
        self._trim(buffer)
        return events

    def _decode(self, buffer: _Buffer) -> list[LiveEvent]:
        """A new hypothesis for the whole buffer, which begins with what is committed."""
        memory = self._encode(buffer)
        decoder = self._decoder(memory)
        draft = tuple(buffer.hypothesis if self._options.drafts else ())
        result = decoder.redecode(
            memory, self._context, buffer.committed, draft, _longest(buffer.seconds)
        )
        buffer.decoded = len(buffer.samples)
        looped = decoder.is_repetitive(result.window)
        if looped or decoder.is_silent(result.window):
            # Not to be believed, beyond what is committed.
            buffer.hypothesis, buffer.times = (
                list(buffer.committed),
                buffer.times[: len(buffer.committed)],
            )
        else:
            buffer.hypothesis, buffer.times = list(result.window.tokens), list(result.times)
        return [Decoded(buffer.seconds, len(result.window.tokens), len(draft), result.accepted)]

    def _encode(self, buffer: _Buffer) -> Memory:
        frames = round(self._window * SAMPLE_RATE) // HOP
        if self._follow:
            # In steps of a second: kernels are prepared once for each length.
            needed = len(buffer.samples) // HOP + 100
            frames = min(frames, -(-needed // 100) * 100)
        mels = self._transcriber.model.architecture.num_mel_bins
        mel, _ = FileFeatures(buffer.samples, mels, frames).window(0)
        return self._transcriber.model.encode([mel])[0]

    def _decoder(self, memory: Memory) -> WindowDecoder:
        """For the language spoken, which is listened for anew where none was given."""
        if self._options.transcribe.language is None:
            self._language = self._transcriber.language_of(memory)
        assert self._language is not None
        if self._language not in self._decoders:
            self._decoders[self._language] = self._transcriber.window_decoder(
                self._language, self._options.transcribe
            )
        return self._decoders[self._language]

    def _commit(self, buffer: _Buffer, count: int, *, whole: bool = False) -> list[LiveEvent]:
        """Commit the first `count` words of the hypothesis; whole: the buffer is done with."""
        events: list[LiveEvent] = []
        found = words(buffer.hypothesis, self._tokens)[:count]
        stop, old = (found[-1].stop if found else 0), len(buffer.committed)
        if stop > old:
            text = self._tokens.text(buffer.hypothesis[old:stop])
            offset = buffer.origin / SAMPLE_RATE
            times = buffer.times[old:stop]
            start = max(self._said_until, offset + max(0.0, times[0] - _BEFORE_S))
            end = buffer.seconds if whole else min(buffer.seconds, times[-1] + _AFTER_S)
            self._said_until = max(start, offset + end)
            events.append(Committed(text, start, self._said_until))
            buffer.committed = buffer.hypothesis[:stop]
        tail = "" if whole else self._tokens.text(buffer.hypothesis[len(buffer.committed) :])
        if tail != self._shown or (events and tail):
            self._shown = tail
            events.append(Partial(tail))
        if whole:
            self._remember(buffer.committed)
        return events

    def _remember(self, tokens: Sequence[int]) -> None:
        if self._options.transcribe.condition_on_previous_text:
            text = [token for token in tokens if token < self._tokens.special.eot]
            self._context = [*self._context, *text][-_CONTEXT:]

    def _trim(self, buffer: _Buffer) -> None:
        """Let go of segments that are complete and committed, once half the window is full."""
        if buffer.seconds < self._window / 2:
            return
        begin = self._tokens.special.timestamp_begin
        known = len(buffer.committed) + 1  # the timestamp after committed text is no text
        cuts = [i for i in complete_segments(buffer.hypothesis, begin) if i <= known]
        steps = buffer.hypothesis[cuts[-1] - 1] - begin if cuts else 0
        samples = int(steps * _STEP)
        if not 0 < samples <= len(buffer.samples):
            return
        self._remember(buffer.hypothesis[: cuts[-1]])
        committed = max(0, len(buffer.committed) - cuts[-1])
        buffer.hypothesis = shifted(buffer.hypothesis[cuts[-1] :], steps, begin)
        buffer.committed = buffer.hypothesis[:committed]
        buffer.times = [t - samples / SAMPLE_RATE for t in buffer.times[cuts[-1] :]]
        buffer.samples = buffer.samples[samples:].copy()
        buffer.origin += samples
        buffer.decoded -= samples

    @property
    def _tokens(self) -> WhisperTokenizer:
        return self._transcriber.tokenizer


def _longest(seconds: float) -> int:
    """More tokens than this nobody says in that time: what comes on top is a loop."""
    return 16 + int(20 * seconds)


def _quietest(samples: Samples, after_s: float) -> int:
    """Where best to cut speech that does not pause: the quietest moment of its second half, and
    not before `after_s`."""
    size = SAMPLE_RATE // 50
    energy = np.square(samples[: len(samples) // size * size].reshape(-1, size)).sum(axis=1)
    # Over three of these, so that the stop inside a "t" is not taken for the gap between words.
    energy = np.convolve(energy, np.ones(3, np.float32), mode="same")
    start = min(len(energy) - 1, max(len(energy) // 2, round(after_s * 50) + 1))
    return (start + int(np.argmin(energy[start:]))) * size + size // 2
