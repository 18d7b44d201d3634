"""Which attempt at a window is kept when temperature fallback fails, and how many are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pipelines.asr import Retract, SegmentDone, TextDelta, Transcriber
from tests.asr.scripted import OurScript, Turn, scripted
from tests.asr.test_events import tokens_of

SOUND = np.random.default_rng(0).normal(0, 0.1, 30 * 16_000).astype(np.float32)
REFRAIN = " Row, row, row your boat, gently down the stream." * 6  # 26 seconds of text
LOOP = " again and again" * 60  # more than can be said in 30 seconds


@dataclass(frozen=True)
class Said:
    """What the model writes, and how probable it is."""

    text: str
    avg_logprob: float
    no_speech_prob: float = 0.0
    ended: bool = True


def scripted_with(real: Transcriber, said: Sequence[Said]) -> tuple[Transcriber, OurScript]:
    return scripted(
        real,
        [
            Turn(
                tokens_of(real, 0.0, each.text, 30.0),
                each.avg_logprob,
                each.no_speech_prob,
                each.ended,
            )
            for each in said
        ],
    )


def found(real: Transcriber, said: Sequence[Said], **options: Any) -> tuple[str, float, int]:
    """Return the text, its temperature, and the number of attempts."""
    transcriber, script = scripted_with(real, said)
    (segment,) = transcriber.transcribe(SOUND, language="en", **options)
    return segment.text, segment.temperature, len(script.calls)


def test_the_most_probable_of_failed_attempts_is_kept(real: Transcriber) -> None:
    turns = [Said(" One.", -1.5), Said(" Two.", -1.1), Said(" Three.", -3.0)]
    assert found(real, turns, temperature=(0.0, 0.2, 1.0)) == (" Two.", 0.2, 3)
    assert found(real, turns, temperature=(0.0, 0.2, 1.0), openai_rules=True) == (" Three.", 1.0, 3)


def test_a_text_that_does_not_repeat_itself_goes_before_one_that_does(real: Transcriber) -> None:
    turns = [Said(LOOP, -0.2), Said(" Two.", -1.9), Said(" Three.", -1.4), Said(LOOP, -0.9)]
    temperature = (0.0, 0.2, 0.4, 0.6)
    assert found(real, turns, temperature=temperature) == (" Three.", 0.4, 4)
    loops = [Said(LOOP, -0.4), Said(LOOP, -0.2), Said(LOOP, -0.9)]
    assert found(real, loops, temperature=(0.0, 0.2, 0.4)) == (LOOP, 0.2, 3)


def test_attempts_end_when_heat_does_not_help(real: Transcriber) -> None:
    turns = [Said(" One.", -1.1), Said(" Two.", -1.5), Said(" Three.", -2.0), Said(" Four.", -4.0)]
    assert found(real, turns) == (" One.", 0.0, 3)
    better_late = [Said(" One.", -1.1), Said(" Two.", -1.5), Said(" Three.", -0.3)]
    assert found(real, better_late) == (" Three.", 0.4, 3)


def test_what_was_said_repeatedly_is_kept_at_once(real: Transcriber) -> None:
    assert found(real, [Said(REFRAIN, -0.2)]) == (REFRAIN, 0.0, 1)


@pytest.mark.parametrize(
    "loop",
    [
        Said(LOOP, -0.2),
        Said(REFRAIN, -0.2, ended=False),
        Said(REFRAIN, -0.2, no_speech_prob=0.7),
        Said(REFRAIN, -0.9),
    ],
    ids=["too much text for the sound", "without an end", "not speech", "improbable"],
)
def test_a_loop_falls_back(real: Transcriber, loop: Said) -> None:
    assert found(real, [loop, Said(" Good morning.", -0.3)]) == (" Good morning.", 0.2, 2)


def test_a_loop_without_time_for_its_last_rounds_falls_back(real: Transcriber) -> None:
    """All of its text would fit into the sound."""
    half = REFRAIN[: len(REFRAIN) // 2]
    good = Turn(tokens_of(real, 0.0, " Good morning.", 30.0))
    for start, end, text in [(29.8, 30.0, " Good morning."), (24.0, 30.0, half + half)]:
        turn = Turn(tokens_of(real, 0.0, half, start, start, half, end))
        transcriber, script = scripted(real, [turn, good])
        found = transcriber.transcribe(SOUND, language="en")
        assert "".join(segment.text for segment in found) == text
        assert len(script.calls) == (2 if text == " Good morning." else 1)


def test_what_was_said_repeatedly_goes_before_improbable_text(real: Transcriber) -> None:
    """However improbable speech is: nothing would be written else."""
    assert found(real, [Said(REFRAIN, -0.2, 0.7), Said(" Two.", -1.9, 0.7)]) == (REFRAIN, 0.0, 2)
    transcriber, _ = scripted_with(real, [Said(LOOP, -0.2, 0.7), Said(" Two.", -1.9, 0.7)])
    assert list(transcriber.transcribe(SOUND, language="en")) == []


def test_live_text_is_that_of_the_attempt_that_is_kept(real: Transcriber) -> None:
    turns = [Said(" One.", -1.1), Said(" Two.", -1.5), Said(" Three.", -2.0)]
    transcriber, _ = scripted_with(real, turns)
    shown, retracted = "", list[str]()
    for event in transcriber.stream(SOUND, language="en"):
        if isinstance(event, TextDelta):
            shown += event.text
        elif isinstance(event, Retract):
            retracted.append(shown)
            shown = ""
        elif isinstance(event, SegmentDone):
            assert shown == event.segment.text == " One."
    assert retracted == [" One.", " Two.", " Three."]


def test_the_text_of_a_failed_window_is_no_prompt(real: Transcriber) -> None:
    transcriber, script = scripted_with(real, [Said(" One.", -1.5)])
    list(transcriber.transcribe(np.tile(SOUND, 2), language="en", temperature=0.0))
    first, second = script.calls
    assert second.prompt == first.prompt
