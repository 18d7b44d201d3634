"""The hour of speech: what is counted, what the table shows, and that a run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.hour import Result, Task, count_edits, looped, results, table
from tests.benchmarks.hour_contenders import CONTENDERS, Contender
from tests.fixtures.people import Recording

TASK = Task("en", 1.0, 2, "a machine")
# 19.6 s, and 0.4 s of pause.
TALK = Recording(np.zeros(313_600, np.float32), "One, two!")
CALL = Recording(np.zeros(313_600, np.float32), "three four five")
OPENAI = next(each for each in CONTENDERS if each.name == "openai-whisper")


def result(contender: Contender, *texts: str) -> Result:
    segments = [(float(at), at + 1.0, f" {text}") for at, text in enumerate(texts)]
    return Result(contender.name, TASK, "1.0", "int8", 30.0, 55.5, 1234.5, segments)


def test_recordings_are_repeated_until_they_last_the_minutes() -> None:
    assert looped([TALK, CALL], 1.0) == [TALK, CALL, TALK]
    assert looped([TALK, CALL], 0.1) == [TALK]


def test_an_edit_counts_where_it_is() -> None:
    said = "one two three one two three".split()
    assert count_edits(said, said, 3).whole == 0
    late = count_edits(said, "one two three one two tree".split(), 3)
    assert (late.first, late.whole) == (0, 1)
    early = count_edits(said, "one three one two three".split(), 3)
    assert (early.first, early.whole) == (1, 1)


def test_sound_that_is_left_out_or_repeated_counts_its_words() -> None:
    said = [str(number) for number in range(12)]
    assert count_edits(said, said[:6], 3).whole == 6
    assert count_edits(said, [*said, *said[-4:]], 3).whole == 4


@pytest.mark.parametrize("markdown", [False, True])
def test_the_table_compares_with_the_text_and_with_openai_whisper(markdown: bool) -> None:
    said = [TALK, CALL, TALK]
    found = [
        result(CONTENDERS[0], "one two", "three four five", "one too"),
        result(OPENAI, "won two", "three four five", "one two"),
    ]
    made = table(found, said, 2, markdown).splitlines()
    cells = [line.replace("|", "").split() for line in made]
    assert "(5)" in cells[0]
    assert "(7)" in cells[0]
    assert cells[-2][-9:] == ["int8", "30.0", "2.0", "55.5", "1,234", "7", "0", "1", "2"]
    assert cells[-1][-3:] == ["1", "1", "0"]
    assert len(made) == (4 if markdown else 3)


def test_without_openai_whisper_nothing_is_compared_with_it() -> None:
    found = [result(CONTENDERS[0], "one two")]
    assert table(found, [TALK], 1, markdown=False).endswith("–")


class Measuring:
    """Counts what it is asked for, and fails for some."""

    def __init__(self, failing: Sequence[Contender] = ()) -> None:
        self.asked: list[str] = []
        self._failing = failing

    def __call__(self, contender: Contender) -> Result:
        self.asked.append(contender.name)
        if contender in self._failing:
            raise RuntimeError("out of memory")
        return result(contender, contender.name)


def test_a_run_goes_on_where_it_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.jsonl"
    first, second = CONTENDERS[:2]
    assert len(list(results(TASK, [first], file, Measuring()))) == 1
    with file.open("a") as lines:
        lines.write('{"contender": "edgea')  # killed while it wrote

    again = Measuring()
    found = list(results(TASK, [first, second], file, again))

    assert again.asked == [second.name]
    assert [each.contender for each in found] == [first.name, second.name]
    assert found[0].words == result(first, first.name).words
    assert first.name in capsys.readouterr().err
    third = Measuring()
    list(results(TASK, [first, second], file, third))
    assert third.asked == []


def test_results_of_another_task_are_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    list(results(TASK, CONTENDERS[:1], file, Measuring()))
    for other in (replace(TASK, threads=1), replace(TASK, machine="b"), replace(TASK, minutes=2.0)):
        again = Measuring()
        list(results(other, CONTENDERS[:1], file, again))
        assert again.asked == [CONTENDERS[0].name]


def test_a_contender_that_fails_is_left_out_and_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.jsonl"
    failing = Measuring(CONTENDERS[:1])
    (found,) = results(TASK, CONTENDERS[:2], file, failing)
    assert found.contender == CONTENDERS[1].name
    assert "out of memory" in capsys.readouterr().err
    again = Measuring()
    list(results(TASK, CONTENDERS[:2], file, again))
    assert again.asked == [CONTENDERS[0].name]
