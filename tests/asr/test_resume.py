"""A run that goes on from any checkpoint gives what an uninterrupted run gives."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from pipelines.asr import (
    Checkpoint,
    Samples,
    Segment,
    SegmentDone,
    TranscribeOptions,
    Transcriber,
    TranscriptionInfo,
    load_audio,
)
from pipelines.engine import Engine
from tests.asr.conftest import Pair
from tests.asr.near_ties import NEAR, Difference, differences
from tests.asr.recordings import RECORDINGS, samples_of

SAMPLES = Path(__file__).resolve().parents[2] / "assets" / "samples"


def _segments_and_checkpoints(
    transcriber: Transcriber, samples: Samples, **options: Any
) -> tuple[list[Segment], list[Checkpoint]]:
    segments, checkpoints = [], []
    for event in transcriber.stream(samples, checkpoints=True, **options):
        if isinstance(event, SegmentDone):
            segments.append(event.segment)
        elif isinstance(event, Checkpoint):
            assert event.segments == len(segments)
            checkpoints.append(event)
    return segments, checkpoints


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("long", {"temperature": 0.0}),
        ("long", {"temperature": 0.0, "initial_prompt": "Köln", "carry_initial_prompt": True}),
        ("long", {"temperature": 0.0, "word_timestamps": True}),
        ("long", {"temperature": 0.0, "clip_timestamps": (2.0, 9.0, 31.0)}),
    ],
)
def test_the_rest_follows_from_any_checkpoint(
    fitted: Pair, name: str, options: dict[str, Any]
) -> None:
    _check_resuming(fitted.ours, samples_of(RECORDINGS[name]), **options)


@pytest.mark.slow
def test_the_rest_follows_with_chunks_in_parallel(engine: Engine) -> None:
    samples = load_audio(SAMPLES / "talk.flac")
    with Transcriber("demo", engine=engine) as transcriber:
        options = {"temperature": 0.0, "batch_size": 3, "chunk_s": 8.0}
        _check_resuming(transcriber, samples, **options)
        # A part is cut as if the rest was silent.
        whole, _ = _segments_and_checkpoints(transcriber, samples, **options)
        (parts, _) = _segments_and_checkpoints(
            transcriber, samples, clip_timestamps=(0.0, whole[1].end + 0.3), **options
        )
    assert [segment.text for segment in parts][:2] == [segment.text for segment in whole][:2]
    assert parts[-1].end < whole[-1].end


def _check_resuming(transcriber: Transcriber, samples: Samples, **options: Any) -> None:
    whole, checkpoints = _segments_and_checkpoints(transcriber, samples, **options)
    assert checkpoints
    assert checkpoints[-1].segments == len(whole)
    for checkpoint in (checkpoints[0], checkpoints[len(checkpoints) // 2]):
        resumed = pickle.loads(pickle.dumps(checkpoint))
        events = list(transcriber.stream(samples, resume_from=resumed, **options))
        assert isinstance(events[0], TranscriptionInfo)
        assert events[0].language == checkpoint.language
        assert not any(isinstance(event, Checkpoint) for event in events)
        rest = [event.segment for event in events if isinstance(event, SegmentDone)]
        expected = whole[checkpoint.segments :]
        assert [s.text for s in rest] == [s.text for s in expected]
        for ours, other in zip(rest, expected, strict=True):
            for field in ("id", "seek", "start", "end", "tokens", "temperature"):
                assert getattr(ours, field) == getattr(other, field), field
            assert [w.word for w in ours.words] == [w.word for w in other.words]


@pytest.mark.slow
def test_in_float32_only_near_ties_differ(engine: Engine) -> None:
    """From any checkpoint on; what differs is counted."""
    talk = load_audio(SAMPLES / "talk.flac")
    options = TranscribeOptions(language="en", temperature=0.0, batch_size=4, chunk_s=4.0)
    with Transcriber("demo", engine=engine) as transcriber:
        whole, checkpoints = _segments_and_checkpoints(transcriber, talk, options=options)
        found: list[Difference] = []
        for checkpoint in checkpoints[::3]:
            rest = [
                event.segment
                for event in transcriber.stream(talk, options, resume_from=checkpoint)
                if isinstance(event, SegmentDone)
            ]
            resumed = [*whole[: checkpoint.segments], *rest]
            found += differences(transcriber, talk, options, "en", whole, resumed)
        assert max((each.gap for each in found), default=0.0) < NEAR
        assert len(found) < len(checkpoints)
        # A token that is no near tie is seen.
        wrong = [dataclasses.replace(each, tokens=each.tokens[:-3]) for each in whole[:1]]
        (cut,) = differences(transcriber, talk, options, "en", whole, [*wrong, *whole[1:]])
        assert cut.gap > 1.0
