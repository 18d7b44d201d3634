"""Chunks decoded in parallel: their order, and the effect of a failure on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from pipelines.asr import Retract, Segment, SegmentDone, TextDelta
from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.batched import decode_chunks
from pipelines.asr.sequential import DecodeTask
from pipelines.engine import EncodedSource, Pending, SourceHandle
from pipelines.errors import EngineError


def segment_of(text: str) -> Segment:
    return Segment(0, 0, 0.0, 1.0, text, (1,), 0.0, -0.1, 1.0, 0.0)


Encode = Callable[[Sequence[Tensor]], list[EncodedSource]]


def encode(windows: Sequence[Tensor]) -> list[EncodedSource]:
    return [cast(EncodedSource, window) for window in windows]


class Script:
    """Chunks whose text is their number. failures: chunk → number of attempts that fail."""

    def __init__(self, failures: dict[int, int], encode: Encode = encode) -> None:
        self.failures, self.encode = failures, encode
        self.begun: list[int] = []

    def events(self, count: int, batch_size: int = 4, **options: Any) -> Iterator[Any]:
        nothing = np.zeros(0, np.float32)
        chunks = (Chunk(100 * n, 100 * n + 100, 0, nothing, number=n + 1) for n in range(count))
        return decode_chunks(chunks, self._task, batch_size, **options)

    def _task(self, chunk: Chunk) -> DecodeTask:
        number = chunk.number - 1
        self.begun.append(number)
        source = SourceHandle(torch.full((1, 1), float(number)), self.encode)
        yield Pending(source)
        assert source.encoded is not None
        yield TextDelta(f"{number}a")
        yield SegmentDone(segment_of(f"{number}a"))
        yield TextDelta(f"{number}b")
        if self.failures.get(number, 0):
            self.failures[number] -= 1
            raise EngineError(f"{number} is broken")
        yield SegmentDone(segment_of(f"{number}b"))


def speech(number: int) -> str:
    """The name of a chunk in messages."""
    return f"the speech from {number}.0 to {number + 1}.0 s"


def texts_of(events: Iterator[Any]) -> list[str]:
    return [e.segment.text for e in events if isinstance(e, SegmentDone)]


def followed(events: Iterator[Any]) -> tuple[list[str], EngineError]:
    """The texts of all segments, and the error at their end."""
    texts: list[str] = []
    with pytest.raises(EngineError) as raised:
        texts.extend(event.segment.text for event in events if isinstance(event, SegmentDone))
    return texts, raised.value


def test_chunks_come_in_order_and_begin_as_needed() -> None:
    script = Script({})
    events = script.events(100)
    assert next(events) == TextDelta("0a")
    assert len(script.begun) <= 4
    for _ in range(40):
        next(events)
    assert len(script.begun) <= 10 + 4 * 4
    assert texts_of(Script({}).events(9)) == [f"{n}{part}" for n in range(9) for part in "ab"]


def test_a_chunk_that_fails_once_is_retried() -> None:
    events = list(Script({3: 1}).events(6))
    assert texts_of(iter(events)) == [f"{n}{part}" for n in range(6) for part in "ab"]
    retracted = [i for i, event in enumerate(events) if isinstance(event, Retract)]
    assert [events[i - 1] for i in retracted] == [TextDelta("3b")]
    assert events[retracted[0] + 1] == TextDelta("3b")


def test_a_failed_chunk_does_not_affect_the_others() -> None:
    texts, error = followed(Script({3: 9}).events(6))
    assert str(error) == f"{speech(3)} could not be recognized: 3 is broken"
    assert texts == [f"{n}{part}" for n in range(6) for part in "ab" if (n, part) != (3, "b")]


def test_two_failed_chunks_in_a_row_raise_at_once() -> None:
    found, error = followed(Script({3: 9, 4: 9}).events(6))
    assert str(error) == (
        f"{speech(4)} could not be recognized: 4 is broken; nor could {speech(3)}"
    )
    assert found[-2:] == ["3a", "4a"]


def test_all_failed_chunks_are_named() -> None:
    texts, error = followed(Script(dict.fromkeys(range(0, 20, 2), 9)).events(20))
    assert texts == [f"{n}{part}" for n in range(20) for part in "ab" if n % 2 or part == "a"]
    others = ", ".join(map(speech, range(0, 10, 2)))
    assert str(error) == (
        f"{speech(18)} could not be recognized: 18 is broken; nor could {others}, 4 more"
    )


def test_an_error_of_another_kind_is_named_by_its_class() -> None:
    def never(windows: Sequence[Tensor]) -> list[EncodedSource]:
        raise MemoryError

    texts, error = followed(Script({}, never).events(1))
    assert texts == []
    assert str(error) == f"{speech(0)} could not be recognized: MemoryError: "
    assert isinstance(error.__cause__, MemoryError)


def test_a_window_that_cannot_be_encoded_fails_only_its_own_chunk() -> None:
    def some(windows: Sequence[Tensor]) -> list[EncodedSource]:
        if any(float(window[0, 0]) == 2 for window in windows):
            raise EngineError("2 is no sound")
        return encode(windows)

    texts, error = followed(Script({}, some).events(5))
    assert str(error) == f"{speech(2)} could not be recognized: 2 is no sound"
    assert texts == [f"{n}{part}" for n in range(5) if n != 2 for part in "ab"]


def test_the_first_chunk_of_a_long_recording_is_alone() -> None:
    """Its text does not wait until others are encoded."""
    script = Script({})
    events = script.events(12, 8, first_alone=True)
    segments = (event.segment.text for event in events if isinstance(event, SegmentDone))
    assert [next(segments), next(segments)] == ["0a", "0b"]
    assert script.begun == [0]
    assert len(list(segments)) == 22
    assert script.begun == list(range(12))
