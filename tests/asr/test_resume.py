"""A run that goes on from any checkpoint gives what an uninterrupted run gives."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pipelines import Checkpoint, SegmentDone, TranscriptionInfo
from pipelines.asr import Segment
from tests.asr.conftest import Pair
from tests.asr.recordings import RECORDINGS, samples_of


def _segments_and_checkpoints(
    pair: Pair, name: str, **options: Any
) -> tuple[list[Segment], list[Checkpoint]]:
    segments, checkpoints = [], []
    samples = samples_of(RECORDINGS[name])
    for event in pair.ours.stream(samples, checkpoints=True, **options):
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
        ("long", {"temperature": 0.0, "batch_size": 2, "chunk_s": 10.0}),
    ],
)
def test_the_rest_follows_from_any_checkpoint(
    fitted: Pair, name: str, options: dict[str, Any]
) -> None:
    whole, checkpoints = _segments_and_checkpoints(fitted, name, **options)
    assert checkpoints
    assert checkpoints[-1].segments == len(whole)
    for checkpoint in (checkpoints[0], checkpoints[len(checkpoints) // 2]):
        resumed = pickle.loads(pickle.dumps(checkpoint))
        events = list(
            fitted.ours.stream(samples_of(RECORDINGS[name]), resume_from=resumed, **options)
        )
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
