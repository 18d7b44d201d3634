"""Corrections: what is due, and what is decoded once more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any, cast

import numpy as np
import pytest

from pipelines import (
    CommittedText,
    LiveOptions,
    LiveTranscriber,
    Segment,
    SegmentDone,
    TextDelta,
    TranscribeOptions,
    Transcriber,
    VadOptions,
)
from pipelines.asr import CorrectedText, CorrectionDue, SpeechEnded
from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.audio.vad import VoiceActivity
from pipelines.asr.live.events import LiveEvent
from tests.asr.live.listening import every, listen, sentence, text_of
from tests.asr.tones import WINDOW_S, WORDS, ToneTranscriber, loudness, speak

OPTIONS = LiveOptions(min_chunk_s=0.3, correct=True)


class Corrector(ToneTranscriber):
    """Decodes a chunk of a recording to a given text.

    Attributes:
        asked: The options of each recording.
        chunks: Each recording.
    """

    def __init__(self, *texts: str, logprob: float = -0.1, compression: float = 1.0) -> None:
        super().__init__()
        self._measures = logprob, compression
        self.capabilities.word_timestamps = True  # type: ignore[attr-defined]
        self._texts = list(texts)
        self.asked: list[TranscribeOptions] = []
        self.chunks: list[Chunk] = []

    def stream_chunks(self, chunks: Sequence[Chunk], options: TranscribeOptions) -> Iterator[Any]:
        self.chunks += chunks
        self.asked.append(options)
        yield TextDelta(" what")
        text = self._texts.pop(0)
        yield SegmentDone(Segment(0, 0, 0.0, 1.0, text, (), 0.0, *self._measures, 0.0))


def dues_of(events: Sequence[LiveEvent]) -> list[CorrectionDue]:
    return [event for event in events if isinstance(event, CorrectionDue)]


def live_with(recognizer: ToneTranscriber, options: LiveOptions = OPTIONS) -> LiveTranscriber:
    stub = cast(Transcriber, recognizer)
    return LiveTranscriber(stub, options, VoiceActivity(options.vad, loudness))


@pytest.mark.parametrize("long_pause_ms", [0, 1000])
def test_each_utterance_is_due_once_with_its_sound(long_pause_ms: float) -> None:
    samples, _ = speak(sentence(14), pause_every=5)
    options = LiveOptions(
        min_chunk_s=0.3,
        correct=True,
        vad=VadOptions(speech_pad_ms=300, long_pause_ms=long_pause_ms),
    )
    events = listen(samples, cycle([3_000, 1_700]), options)
    dues, ends = dues_of(events), [e for e in events if isinstance(e, SpeechEnded)]
    assert len(dues) == len(ends) > 1
    assert "".join(due.text for due in dues) == text_of(events)
    for due, end in zip(dues, ends, strict=True):
        assert events.index(due) + 1 == events.index(end)
        heard = samples[due.offset : due.offset + len(due.samples)]
        assert np.abs(heard - due.samples).max() < 0.02, "silence for what voice activity left out"
        assert due.offset / 16_000 <= due.start < due.end <= end.time
    said = [e for e in events if isinstance(e, CommittedText)]
    for due in dues:
        own = [e for e in said if due.start <= e.start and e.end <= due.end]
        assert "".join(e.text for e in own) == due.text


def test_speech_without_a_pause_is_due_in_parts() -> None:
    samples, spoken = speak(sentence(90), pause_every=1_000)
    events = listen(samples, every(1_600), OPTIONS)
    dues = dues_of(events)
    assert len(dues) > 3
    assert "".join(due.text for due in dues) == text_of(events)
    assert all(len(due.samples) < 2 * WINDOW_S * 16_000 for due in dues)
    for before, due in zip(dues, dues[1:], strict=False):
        assert due.offset == before.offset + len(before.samples)
    assert dues[-1].offset + len(dues[-1].samples) > spoken[-1].end * 16_000
    said = [e for e in events if isinstance(e, CommittedText)]
    for due in dues:
        own = [e for e in said if due.start <= e.start and e.end <= due.end]
        assert "".join(e.text for e in own) == due.text, "whole committed texts"


def test_nothing_is_due_unless_it_was_asked_for() -> None:
    samples, _ = speak(sentence(8))
    assert not dues_of(listen(samples, every(1_600), LiveOptions(min_chunk_s=0.3)))


def due(text: str = " ba be", context: str = "") -> CorrectionDue:
    return CorrectionDue(np.zeros(32_000, np.float32), 16_000, text, 1.2, 2.8, "en", context)


def test_speech_is_decoded_as_a_chunk_with_the_text_before_it() -> None:
    recognizer = Corrector(" ba bi")
    transcribe = TranscribeOptions(
        initial_prompt="mi mo", hotwords="bo", priority=7, languages=("en", "de")
    )
    options = LiveOptions(transcribe=transcribe, correct=True)
    live = live_with(recognizer, options)
    corrected = live.correct(due(context="ka ke."))
    assert corrected == CorrectedText(" ba bi", 1.2, 2.8, " ba be", (), "en")
    (asked,), (part,) = recognizer.asked, recognizer.chunks
    assert (asked.initial_prompt, asked.hotwords, asked.language) == ("mi mo ka ke.", "bo", "en")
    assert (asked.priority, asked.word_timestamps, asked.beam_size) == (7, True, 5)
    assert asked.temperatures == (0.0,), "no sampling, which makes words up"
    assert (part.start_frame, part.end_frame) == (0, 200)


@pytest.mark.parametrize("text", [" ba be", "ba  be", "", " ", " ba bi" * 7])
def test_text_that_is_the_same_empty_or_far_too_long_is_no_correction(text: str) -> None:
    assert live_with(Corrector(text)).correct(due()) is None


@pytest.mark.parametrize("measures", [{"logprob": -0.9}, {"compression": 2.5}])
def test_text_that_is_improbable_or_repetitive_is_no_correction(measures: dict[str, float]) -> None:
    assert live_with(Corrector(" ba bi", **measures)).correct(due()) is None


def test_what_is_not_wanted_any_more_is_not_decoded_to_its_end() -> None:
    recognizer = Corrector(" ba bi")
    assert live_with(recognizer).correct(due(), is_wanted=lambda: False) is None
    assert recognizer.asked, "it was begun"
    assert recognizer._texts == [" ba bi"], "its text was not taken"


class Certain(ToneTranscriber):
    """A recognizer with as much confidence as it is told."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self._probability = probability

    def redecode(self, *args: Any, priority: int = 0) -> Any:
        result = super().redecode(*args)
        return replace(result, probabilities=tuple(self._probability for _ in result.times))


@pytest.mark.parametrize(("probability", "has_context"), [(0.9, True), (0.5, False)])
def test_the_context_is_the_text_before_if_it_was_clear(
    probability: float, has_context: bool
) -> None:
    samples, _ = speak(sentence(8), pause_every=4)
    options = replace(OPTIONS, vad=VadOptions(long_pause_ms=0))
    events = listen(samples, every(1_600), options, Certain(probability))
    first, second = dues_of(events)
    assert first.context == ""
    assert second.context == (first.text.strip() if has_context else "")
    assert set(second.context.split()) <= {word.strip() for word in WORDS}
