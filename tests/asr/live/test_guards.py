"""Live recognition shows no repetition loops and no text for silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pipelines.asr.live.events import PartialText, SpeechEnded, SpeechStarted, UpdateDecoded
from pipelines.asr.window import WindowResult
from tests.asr.live.listening import every, listen, sentence, text_of
from tests.asr.tones import ToneTranscriber, speak


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
