"""One recording in pieces equals the recording as a whole; without ray, in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from edgeapp.cluster.node_worker import Failure, ModelChoice, NodeWorker
from edgeapp.cluster.recording_pieces import stream_pieces
from edgeapp.settings import Settings
from pipelines import (
    SAMPLE_RATE,
    AudioError,
    EngineError,
    Segment,
    SegmentDone,
    TextDelta,
    TranscribeOptions,
    Transcriber,
    load_audio,
)
from pipelines.asr import Checkpoint, Retract, Samples, open_audio

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


def test_pieces_have_both_speakers_of_a_call(machines: Here, talk: Samples, tmp_path: Path) -> None:
    """One sound in both channels, then a speaker on each, then one sound again."""
    both = np.stack([talk[: 25 * SAMPLE_RATE]] * 2, axis=1)
    question = load_audio(SAMPLES / "question.flac")
    both[11 * SAMPLE_RATE : 19 * SAMPLE_RATE, 0] = 0
    both[12 * SAMPLE_RATE :][: len(question), 0] = question
    soundfile.write(tmp_path / "call.wav", both, SAMPLE_RATE)
    call = open_audio(tmp_path / "call.wav")
    with Transcriber("demo", compute_type="int8", threads=1) as transcriber:
        whole = done(transcriber.stream(call, OPTIONS))
        mix = done(transcriber.stream(both.mean(axis=1), OPTIONS))
        assert [each.text for each in mix] != [each.text for each in whole]
        info, *events = stream_pieces(machines, call, OPTIONS, None)
        assert info.language == "en"
        assert done(events) == whole
        assert done(stream_pieces(machines, both, OPTIONS, None)) == whole
        checkpoints = [each for each in events if isinstance(each, Checkpoint)]
        assert {each.section for each in checkpoints} == {0, 2}, "after the part with two channels"
        assert checkpoints[-1].segments == len(whole)
        for checkpoint in (checkpoints[0], checkpoints[-2]):
            rest = whole[checkpoint.segments :]
            assert done(stream_pieces(machines, call, OPTIONS, checkpoint)) == rest
            assert done(transcriber.stream(call, OPTIONS, resume_from=checkpoint)) == rest


def done(events: Iterable[Any]) -> list[Segment]:
    return [each.segment for each in events if isinstance(each, SegmentDone)]


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
