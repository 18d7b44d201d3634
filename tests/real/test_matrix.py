"""A small part of the matrix of `tests.benchmarks.matrix`, for the gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.benchmarks.matrix.__main__ import Line, compared
from tests.benchmarks.matrix.sounds import read_utterances, row_sounds
from tests.fixtures.people import Recording
from tests.real.conftest import Ours, Report

pytestmark = pytest.mark.usefixtures("folder")

# Of each row two of the shortest phrases of three speakers, so that all take less than a minute.
ROWS = {
    "clean": (11, 18),
    "peak -36 dB": (18, 23),
    "telephone": (11, 23),
    "three times": (11, 18),
    "then noise": (18, 23),
}
# A word here or there is the rounding of int8, which differs between CPUs.
MORE_WORDS = 2  # in a row, and in all


@pytest.fixture(scope="module")
def utterances(shared_data: Path) -> list[Recording]:
    return read_utterances(shared_data)


def lines_of(row: str, ours: Ours, utterances: Sequence[Recording]) -> list[tuple[Line, Line]]:
    """Return each utterance of a row in chunks, the default, and window by window."""
    found = []
    for each in row_sounds(row, utterances, ROWS[row]):
        lines = []
        for way, options in (
            ("default", {"batch_size": 8}),
            ("windows", {"batch_size": 1, "vad_filter": False}),
        ):
            segments = ours.transcriber.transcribe(each.recording.samples, language="en", **options)
            text = "".join(segment.text for segment in segments)
            lines.append(compared(row, each.number, way, each.recording.text, text))
        found.append((lines[0], lines[1]))
    return found


def test_the_default_is_no_worse_than_window_by_window(
    quick: Ours, utterances: list[Recording], report: Report
) -> None:
    rows = {row: lines_of(row, quick, utterances) for row in ROWS}
    more = {row: sum(a.wrong - b.wrong for a, b in pairs) for row, pairs in rows.items()}
    words = sum(a.words for pairs in rows.values() for a, _ in pairs)
    report.say(f"matrix: {sum(more.values()):+} edits in {words} words, chunks against windows")
    assert max(*more.values(), sum(more.values())) <= MORE_WORDS, more
    behind_noise = [default for default, _ in rows["then noise"]]
    assert [line.text for line in behind_noise if line.invented] == []
