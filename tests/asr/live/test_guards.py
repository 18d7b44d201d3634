"""Live recognition shows no repetition loops and no text for silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from pipelines.asr.audio.arrays import SAMPLE_RATE
from pipelines.asr.audio.vad import VoiceActivity
from pipelines.asr.fallback import WindowResult
from pipelines.asr.live.events import (
    CommittedText,
    PartialText,
    SpeechEnded,
    SpeechStarted,
    UpdateDecoded,
)
from pipelines.asr.live.transcriber import LiveTranscriber
from pipelines.asr.transcriber import Transcriber
from tests.asr.live.listening import OPTIONS, every, listen, sentence, text_of
from tests.asr.tones import BEGIN, WINDOW_S, WORDS, ToneTranscriber, loudness, speak


@pytest.mark.parametrize("kind", ["silence", "clicks"])
def test_no_speech_no_work(kind: str) -> None:
    samples = np.zeros(16_000 * 20, np.float32)
    if kind == "clicks":
        samples[:: 16_000 * 3] = 0.9
    recognizer = ToneTranscriber()
    events = listen(samples, every(1600), recognizer=recognizer)
    assert text_of(events) == ""
    assert recognizer.heard_s < 5
    if kind == "silence":
        assert events == []


class Babbling(ToneTranscriber):
    """Every third update it says its last word over and over, as Whisper's models sometimes do."""

    def __init__(self) -> None:
        super().__init__()
        self.updates = 0
        self.asked: list[tuple[float, int]] = []  # (seconds heard, tokens allowed)

    def redecode(
        self,
        encoded: Any,
        previous: Any,
        fixed: Any,
        draft: Any,
        longest: int,
        heard_s: float,
        *,
        priority: int = 0,
    ) -> Any:
        self.asked.append((encoded.shape[1] / 100, longest))
        result = super().redecode(encoded, previous, fixed, draft, longest, heard_s)
        self.updates += 1
        if self.updates % 3 or not result.window.tokens:
            return result
        loop = replace(result.window, tokens=result.window.tokens + (0,) * longest)
        return replace(result, window=loop, times=result.times + (9.0,) * longest)

    def is_repetitive(self, result: WindowResult) -> bool:
        return result.tokens[-9:] == (0,) * 9


@pytest.mark.slow
def test_loops_are_not_shown() -> None:
    samples, spoken = speak(sentence(30))
    recognizer = Babbling()
    events = listen(samples, every(800), recognizer=recognizer)
    truth = [s.word for s in spoken]
    assert not [e for e in events if isinstance(e, PartialText) and e.text.count(" ba") > 3]
    said = text_of(events).split()
    assert len(said) >= 0.8 * len(truth), "only what came last before a pause may be missed"
    assert set(said) <= {word.strip() for word in truth}
    assert all(allowed <= 20 * seconds + 16 for seconds, allowed in recognizer.asked)


def test_silent_windows_give_no_text() -> None:
    class Deaf(ToneTranscriber):
        def is_silent(self, result: WindowResult) -> bool:
            return True

    samples, _ = speak(sentence(12))
    events = listen(samples, every(800), recognizer=Deaf())
    assert {type(e) for e in events} == {SpeechStarted, SpeechEnded, UpdateDecoded}


class Stammering(ToneTranscriber):
    """It loops wherever it hears less than the time before: when speech was cut to fit."""

    def __init__(self) -> None:
        super().__init__()
        self.heard, self.cut, self.cuts = 0.0, False, 0

    def redecode(
        self,
        encoded: Any,
        previous: Any,
        fixed: Any,
        draft: Any,
        longest: int,
        heard_s: float,
        *,
        priority: int = 0,
    ) -> Any:
        self.cut, self.heard = 0 < heard_s < self.heard and heard_s > 5, heard_s
        self.cuts += self.cut
        return super().redecode(encoded, previous, fixed, draft, longest, heard_s)

    def is_repetitive(self, result: WindowResult) -> bool:
        return self.cut


@pytest.mark.slow
def test_a_loop_at_a_cut_repeats_no_text() -> None:
    samples, spoken = speak(sentence(120), pause_every=1000)
    recognizer = Stammering()
    said = text_of(listen(samples, every(1600), recognizer=recognizer)).split()
    assert recognizer.cuts >= 1
    truth = [s.word.strip() for s in spoken]
    rest = iter(truth)
    assert all(word in rest for word in said), "what was said, in its order, and nothing twice"
    assert len(said) >= 0.9 * len(truth)


class Pausing(ToneTranscriber):
    """It ends its text after six words, as Whisper does where the next window is to begin."""

    def _recognize(self, mel: Any) -> tuple[list[int], list[float]]:
        tokens, times = super()._recognize(mel)
        if len(tokens) <= 8:
            return tokens, times
        end = round(times[6] / 0.02) + 1
        return [*tokens[:7], BEGIN + end, BEGIN + end], [*times[:7], times[6], times[6]]


@pytest.mark.parametrize(("block", "words"), [(1600, 10), (16_000, 10), (1_000_000, 20)])
@pytest.mark.parametrize("policy", ["agreement", "attention"])
def test_words_behind_a_complete_segment_are_heard(policy: Any, block: int, words: int) -> None:
    samples, spoken = speak(sentence(words), pause_every=1000)
    one_update = block > len(samples)
    assert one_update or spoken[-1].end < WINDOW_S / 2, "longer speech is divided in any case"
    options = replace(OPTIONS, policy=policy)
    said = text_of(listen(samples, every(block), options, Pausing())).split()
    assert said == [word.word.strip() for word in spoken]


class Doubting(ToneTranscriber):
    """Once it has heard all, it puts the end of its text before what it has said already."""

    def _recognize(self, mel: Any) -> tuple[list[int], list[float]]:
        tokens, times = super()._recognize(mel)
        if len(tokens) <= 8:
            return tokens, times
        return [*tokens[:-1], BEGIN + 20, BEGIN + 20], [*times[:-1], times[-1], times[-1]]


@pytest.mark.parametrize("policy", ["agreement", "attention"])
def test_an_end_before_committed_words_does_not_repeat_them(policy: Any) -> None:
    samples, spoken = speak(sentence(10), pause_every=1000)
    options = replace(OPTIONS, policy=policy)
    said = text_of(listen(samples, every(1600), options, Doubting())).split()
    assert said == [word.word.strip() for word in spoken]


class Stumbling(ToneTranscriber):
    """Once it has heard six words it ends its text with them, and puts the end 0.7 s too early:
    Whisper at small holes in the sound."""

    def _recognize(self, mel: Any) -> tuple[list[int], list[float]]:
        tokens, times = super()._recognize(mel)
        if len(tokens) <= 8:
            return tokens, times
        end = round((times[6] - 0.7) / 0.02)
        return [*tokens[:7], BEGIN + end, BEGIN + end], [*times[:7], times[6], times[6]]


@pytest.mark.parametrize("policy", ["agreement", "attention"])
def test_an_end_before_committed_words_does_not_stop_the_captions(policy: Any) -> None:
    """What follows is shown while it is spoken, not once half the window is full."""
    samples, spoken = speak(sentence(14), pause_every=1000)
    options = replace(OPTIONS, policy=policy)
    live = LiveTranscriber(
        cast(Transcriber, Stumbling()), options, VoiceActivity(options.vad, loudness)
    )
    said, waits = list[str](), list[float]()
    for at in range(0, len(samples), 1600):
        for event in live.feed(samples[at : at + 1600]):
            if isinstance(event, CommittedText):
                said += event.text.split()
                waits.append((at + 1600) / SAMPLE_RATE - event.end)
    said += text_of(live.finish()).split()
    assert said == [word.word.strip() for word in spoken]
    assert max(waits) < 1.2


class Guessing(ToneTranscriber):
    """Takes its last word for another one, spoken long ago, until the next word follows."""

    def _recognize(self, mel: Any) -> tuple[list[int], list[float]]:
        tokens, times = super()._recognize(mel)
        words = [index for index, token in enumerate(tokens) if token < BEGIN]
        if words and len(words) < 10:
            tokens[words[-1]] = (tokens[words[-1]] + 1) % len(WORDS)
            times[words[-1]] = times[0]
        return tokens, times


def test_attention_does_not_make_a_word_final_that_may_not_be_whole() -> None:
    samples, spoken = speak(sentence(10), pause_every=1000)
    options = replace(OPTIONS, policy="attention")
    said = text_of(listen(samples, every(800), options, Guessing())).split()
    assert said == [word.word.strip() for word in spoken]
