"""Pieces that are decoded side by side: their order, and what the failure of one does to others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from pipelines.asr import Retract, Segment, SegmentDone, TextDelta
from pipelines.asr.decode_tasks import ChunkTask, DecodeTask, EncodeRequest, run_interleaved
from pipelines.engine import EncodedSource
from pipelines.errors import EngineError


def segment_of(text: str) -> Segment:
    return Segment(0, 0, 0.0, 1.0, text, (1,), 0.0, -0.1, 1.0, 0.0)


class Script:
    """Pieces that say their number; some fail so many times before they succeed."""

    def __init__(self, failures: dict[int, int], hear: bool = False) -> None:
        self.failures, self.hear = failures, hear
        self.begun: list[int] = []

    def pieces(self, count: int) -> Iterator[ChunkTask]:
        for number in range(count):
            yield ChunkTask(lambda number=number: self._course(number), f"piece {number}")  # type: ignore[misc]

    def _course(self, number: int) -> DecodeTask:
        self.begun.append(number)
        yield EncodeRequest(torch.full((1, 1), float(number)))
        yield TextDelta(f"{number}a")
        yield SegmentDone(segment_of(f"{number}a"))
        yield TextDelta(f"{number}b")
        if self.failures.get(number, 0):
            self.failures[number] -= 1
            raise EngineError(f"{number} is broken")
        yield SegmentDone(segment_of(f"{number}b"))


def encode(windows: Sequence[Tensor]) -> list[EncodedSource]:
    return [cast(EncodedSource, window) for window in windows]


def texts_of(events: Iterator[Any]) -> list[str]:
    return [e.segment.text for e in events if isinstance(e, SegmentDone)]


def followed(events: Iterator[Any]) -> tuple[list[str], EngineError]:
    """The texts of all segments, and the error at their end."""
    texts: list[str] = []
    with pytest.raises(EngineError) as raised:
        texts.extend(event.segment.text for event in events if isinstance(event, SegmentDone))
    return texts, raised.value


def test_pieces_come_in_order_and_not_too_early() -> None:
    script = Script({})
    events = run_interleaved(script.pieces(100), encode, 4)
    assert next(events) == TextDelta("0a")
    assert len(script.begun) <= 4
    for _ in range(40):
        next(events)
    assert len(script.begun) <= 10 + 4 * 4
    assert texts_of(run_interleaved(Script({}).pieces(9), encode, 4)) == [
        f"{n}{part}" for n in range(9) for part in "ab"
    ]


def test_a_piece_that_fails_once_is_whole_in_the_end() -> None:
    events = list(run_interleaved(Script({3: 1}).pieces(6), encode, 4))
    assert texts_of(iter(events)) == [f"{n}{part}" for n in range(6) for part in "ab"]
    taken_back = [i for i, event in enumerate(events) if isinstance(event, Retract)]
    assert [events[i - 1] for i in taken_back] == [TextDelta("3b")]
    assert events[taken_back[0] + 1] == TextDelta("3b")


def test_a_broken_piece_does_not_harm_the_others() -> None:
    texts, error = followed(run_interleaved(Script({3: 9}).pieces(6), encode, 4))
    assert str(error) == "piece 3 could not be recognised: 3 is broken"
    assert texts == [f"{n}{part}" for n in range(6) for part in "ab" if (n, part) != (3, "b")]


def test_two_broken_pieces_in_a_row_end_it() -> None:
    found, error = followed(run_interleaved(Script({3: 9, 4: 9}).pieces(6), encode, 4))
    assert str(error) == "piece 4 could not be recognised: 4 is broken; nor could piece 3"
    assert found[-2:] == ["3a", "4a"]


def test_all_broken_pieces_are_named() -> None:
    texts, error = followed(
        run_interleaved(Script(dict.fromkeys(range(0, 20, 2), 9)).pieces(20), encode, 4)
    )
    assert texts == [f"{n}{part}" for n in range(20) for part in "ab" if n % 2 or part == "a"]
    assert str(error) == (
        "piece 18 could not be recognised: 18 is broken; "
        "nor could piece 0, piece 2, piece 4, piece 6, piece 8, 4 more"
    )


def test_an_error_that_nobody_foresaw_is_named_by_its_kind() -> None:
    def never(windows: Sequence[Tensor]) -> list[EncodedSource]:
        raise MemoryError

    texts, error = followed(run_interleaved(Script({}).pieces(1), never, 4))
    assert texts == []
    assert str(error) == "piece 0 could not be recognised: MemoryError: "
    assert isinstance(error.__cause__, MemoryError)


def test_a_window_that_cannot_be_encoded_harms_only_its_own_piece() -> None:
    def some(windows: Sequence[Tensor]) -> list[EncodedSource]:
        if any(float(window[0, 0]) == 2 for window in windows):
            raise EngineError("2 is no sound")
        return encode(windows)

    texts, error = followed(run_interleaved(Script({}).pieces(5), some, 4))
    assert str(error) == "piece 2 could not be recognised: 2 is no sound"
    assert texts == [f"{n}{part}" for n in range(5) if n != 2 for part in "ab"]
