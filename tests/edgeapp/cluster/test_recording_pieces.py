"""One recording in pieces equals the recording as a whole; without ray, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeapp.cluster.node_worker import Failure, ModelChoice, NodeWorker
from edgeapp.cluster.recording_pieces import stream_pieces
from edgeapp.settings import Settings
from pipelines import (
    SAMPLE_RATE,
    AudioError,
    Checkpoint,
    EngineError,
    Retract,
    Samples,
    TextDelta,
    TranscribeOptions,
    Transcriber,
    load_audio,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("kernels")]
SAMPLES = Path(__file__).resolve().parents[3] / "assets" / "samples"
OPTIONS = TranscribeOptions(language="en", temperature=0.0, batch_size=2, chunk_s=3.0)


class Here:
    """Two machines, both of which are this process."""

    size = 2

    def __init__(self) -> None:
        settings = Settings(compute_type="int8", threads=1)
        self.worker = NodeWorker(settings, ModelChoice("transcriber", ("demo", "en", "transcribe")))
        described = self.worker.load()
        assert not isinstance(described, Failure)
        self.window_s = described.window_s
        self.pieces: list[list[int]] = []

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Any:
        if method == "recognize":
            self.pieces.append([chunk.number for chunk in arguments[0]])
        return getattr(self.worker, method)(*arguments)


@pytest.fixture(scope="module")
def talk() -> Samples:
    return load_audio(SAMPLES / "talk.flac")[: 28 * SAMPLE_RATE]


@pytest.fixture(scope="module")
def machines() -> Here:
    return Here()


@pytest.fixture(scope="module")
def whole(talk: Samples) -> list[Any]:
    with Transcriber("demo", compute_type="int8", threads=1) as transcriber:
        events = list(transcriber.stream(talk, OPTIONS, checkpoints=True))
    return [each for each in events if not isinstance(each, TextDelta | Retract)]


def until_error(events: Iterator[Any]) -> tuple[list[Any], Exception | None]:
    """The events, and the error after them."""
    found: list[Any] = []
    try:
        for event in events:
            found.append(event)  # noqa: PERF402  # what came before the error counts
    except Exception as error:
        return found, error
    return found, None


def test_pieces_equal_the_whole_from_any_checkpoint(
    machines: Here, talk: Samples, whole: list[Any]
) -> None:
    machines.pieces.clear()
    info, *events = stream_pieces(machines, talk, OPTIONS, None)
    assert info.language == "en"
    assert events == whole[1:]
    assert sorted(machines.pieces)[0] == [1, 2, 3, 4]
    assert len(machines.pieces) > 2
    checkpoint = next(each for each in whole if isinstance(each, Checkpoint) and each.chunks == 6)
    machines.pieces.clear()
    _, *rest = stream_pieces(machines, talk, OPTIONS, checkpoint)
    assert rest == whole[whole.index(checkpoint) + 1 :]
    assert min(map(min, machines.pieces)) == 7


def test_what_comes_before_a_damaged_part_is_recognized(
    machines: Here, talk: Samples, whole: list[Any]
) -> None:
    def blocks() -> Iterator[Samples]:
        yield talk[: 20 * SAMPLE_RATE]
        yield np.full(10, np.nan, np.float32)

    found, error = until_error(stream_pieces(machines, blocks(), OPTIONS, None))
    assert isinstance(error, AudioError)
    assert found[1] == whole[1]
    assert max(each.chunks for each in found if isinstance(each, Checkpoint)) >= 5


def test_a_chunk_that_fails_ends_the_recording_after_its_piece(
    machines: Here, talk: Samples, whole: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recognize = NodeWorker.recognize

    def failing(worker: NodeWorker, piece: Any, *arguments: Any) -> Any:
        found, failure = recognize(worker, piece, *arguments)
        broken = Failure(EngineError, "the speech from 1 to 2 s could not be recognized")
        return (found[:2], broken) if piece[0].number == 5 else (found, failure)

    monkeypatch.setattr(NodeWorker, "recognize", failing)
    found, error = until_error(stream_pieces(machines, talk, OPTIONS, None))
    assert isinstance(error, EngineError)
    assert found[1:] == whole[1 : len(found)]
    assert max(each.chunks for each in found if isinstance(each, Checkpoint)) in (4, 5)
