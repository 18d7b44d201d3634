"""Live text as it is shown: a calm running line, and sentences that a short pause does not end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from torch import Tensor

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.vad import VoiceActivity
from pipelines.asr.live.events import (
    CommittedText,
    LiveEvent,
    PartialText,
    SpeechEnded,
    SpeechStarted,
)
from pipelines.asr.live.transcriber import LiveOptions, LiveTranscriber
from pipelines.asr.options import VadOptions
from pipelines.asr.transcriber import Transcriber
from pipelines.asr.window import LiveWindowResult
from tests.asr.live.listening import OPTIONS, text_of
from tests.asr.tones import WORDS, ToneTranscriber, loudness, speak

_CAPITAL, _STOP = 40, 80  # added to a word, it begins with a capital letter; the token of "."
_LAST = len(WORDS) - 1  # this word ends a sentence


class _Tokenizer:
    """Of words that may be capitalized, and of the full stop."""

    timestamp_begin = ToneTranscriber().tokenizer.timestamp_begin

    def is_text(self, token: int) -> bool:
        return token <= _STOP

    def text(self, ids: Sequence[int]) -> str:
        return "".join(map(self._piece, filter(self.is_text, ids)))

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        return self.text(ids).encode()

    def _piece(self, token: int) -> str:
        if token == _STOP:
            return "."
        return WORDS[token - _CAPITAL].title() if token >= _CAPITAL else WORDS[token]


class _Whisper(ToneTranscriber):
    """Writes as Whisper does: a capital letter at the beginning, a full stop at the end.

    After a text it goes on with a small letter. "mo" ends a sentence.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.tokenizer = cast(Any, _Tokenizer())
        self._probability = probability

    def redecode(
        self, encoded: Tensor, previous: Sequence[int], prefix: Sequence[int], *rest: Any, **_: Any
    ) -> LiveWindowResult:
        heard = super().redecode(encoded, previous, (), (), 99, 0.0)
        tokens, times = list[int](), list[float]()
        ended = not previous or previous[-1] % _CAPITAL == _LAST
        for token, time in zip(heard.window.tokens, heard.times, strict=True):
            text = token < len(WORDS)
            tokens.append(token + _CAPITAL if text and ended else token)
            times.append(time)
            if text:
                ended = token == _LAST
                tokens += [_STOP] if ended else []
                times += [time] if ended else []
        words = [i for i, token in enumerate(tokens) if token < _STOP]
        if words and not ended:
            tokens.insert(words[-1] + 1, _STOP)
            times.insert(words[-1] + 1, times[words[-1]])
        tokens = [*prefix, *tokens[len(prefix) :]]
        times = [*times, *[times[-1] if times else 0.0] * 99][: len(tokens)]
        window = replace(heard.window, tokens=tuple(tokens))
        return LiveWindowResult(window, tuple(times), 0, (self._probability,) * len(tokens))


def _say(*parts: Sequence[int] | float) -> Samples:
    """Words one after the other, and pauses (s)."""
    pieces = []
    for part in parts:
        if isinstance(part, float):
            pieces.append(np.zeros(int(part * SAMPLE_RATE), np.float32))
        else:
            spoken, _ = speak(part, pause_every=1000)
            pieces.append(spoken[SAMPLE_RATE // 2 : len(spoken) - SAMPLE_RATE // 20])
    return np.concatenate(pieces)


def _hear(
    samples: Samples, options: LiveOptions = OPTIONS, probability: float = 0.9
) -> list[tuple[float, LiveEvent]]:
    """The events, each with the seconds that were heard before it."""
    stub = cast(Transcriber, _Whisper(probability))
    live = LiveTranscriber(stub, options, VoiceActivity(options.vad, loudness))
    events: list[tuple[float, LiveEvent]] = []
    for at in range(0, len(samples), 800):
        found = live.feed(samples[at : at + 800])
        events += [((at + 800) / SAMPLE_RATE, event) for event in found]
    return [*events, *((len(samples) / SAMPLE_RATE, event) for event in live.finish())]


def _text(events: list[tuple[float, LiveEvent]]) -> str:
    return text_of([event for _, event in events])


def _count(events: list[tuple[float, LiveEvent]], kind: type[LiveEvent]) -> int:
    return sum(isinstance(event, kind) for _, event in events)


@pytest.mark.parametrize("pause_s", [0.8, 1.3])
def test_a_short_pause_ends_no_sentence(pause_s: float) -> None:
    events = _hear(_say(0.5, [0, 1, 2], pause_s, [4, 5, 6], pause_s, [7, 8], 2.0))
    assert _text(events) == " Ba be bi da de di do ka."
    assert (_count(events, SpeechStarted), _count(events, SpeechEnded)) == (1, 1)


def test_a_long_pause_ends_it() -> None:
    events = _hear(_say(0.5, [0, 1, 2], 1.8, [4, 5, 6], 2.0))
    assert _text(events) == " Ba be bi. Da de di."
    assert (_count(events, SpeechStarted), _count(events, SpeechEnded)) == (2, 2)


def test_a_sentence_may_end_at_a_short_pause() -> None:
    events = _hear(_say(0.5, [0, 1, _LAST], 0.9, [4, 5], 2.0))
    assert _text(events) == " Ba be mo. Da de."


def test_what_was_hardly_understood_is_no_context() -> None:
    events = _hear(_say(0.5, [0, 1, 2], 0.9, [4, 5, 6], 2.0), probability=0.5)
    assert _text(events) == " Ba be bi. Da de di."


def test_words_are_final_at_a_short_pause_and_their_mark_at_a_long_one() -> None:
    samples = _say(0.5, [0, 1, 2], 3.0)
    said_s = len(samples) / SAMPLE_RATE - 3.0
    finals = [(at, each.text) for at, each in _hear(samples) if isinstance(each, CommittedText)]
    assert "".join(text for _, text in finals[:-1]) == " Ba be bi"
    assert finals[-1][1] == "."
    assert finals[-2][0] < said_s + 0.8, "after a pause of 0.6 s"
    assert said_s + 1.4 < finals[-1][0] < said_s + 1.8


def test_speech_that_ends_the_stream_has_its_mark() -> None:
    assert _text(_hear(_say(0.5, [0, 1, 2]))) == " Ba be bi."


def test_without_a_long_pause_each_utterance_is_a_sentence() -> None:
    options = replace(OPTIONS, vad=VadOptions(long_pause_ms=0))
    events = _hear(_say(0.5, [0, 1, 2], 0.9, [4, 5, 6], 2.0), options)
    assert _text(events) == " Ba be bi. Da de di."
    assert _count(events, SpeechEnded) == 2


def test_the_last_running_word_and_its_mark_are_held_back() -> None:
    samples = _say(0.5, [0, 1, 2, 3, 4, 5], 2.0)
    calm = _hear(samples)
    fast = _hear(samples, replace(OPTIONS, calm=False))
    assert _text(calm) == _text(fast)
    shown = {event.text for _, event in fast if isinstance(event, PartialText)}
    assert any(text.endswith(".") for text in shown)
    held = {event.text for _, event in calm if isinstance(event, PartialText)}
    assert held, "running words before the last one are shown"
    assert not any(text.endswith(".") for text in held)
    assert held <= {text.rstrip(".").rpartition(" ")[0] for text in shown} | {""}
