"""Whisper base in every compute type, in batches and live: edits against what was said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines import SAMPLE_RATE, Transcriber
from pipelines.asr import TranscribeOptions
from pipelines.asr.live.events import CommittedText
from pipelines.asr.live.transcriber import LiveOptions, LiveTranscriber
from tests.real.conftest import Ours, Recordings, Report, Weights

SHORT = ("book", "voices")


def test_float32(exact: Ours, recordings: Recordings, report: Report) -> None:
    found = {name: exact.find(each).text for name, each in recordings.items()}
    edits = report.edits("float32", found, recordings)
    assert edits <= 36


def test_int8(exact: Ours, quick: Ours, recordings: Recordings, report: Report) -> None:
    found = {name: quick.find(each).text for name, each in recordings.items()}
    edits = report.edits("int8", found, recordings)
    best = sum(each.edits(exact.find(each).text) for each in recordings.values())
    assert edits <= best + 6


@pytest.mark.parametrize("compute_type", ["bfloat16", "float16"])
def test_half_precision(
    compute_type: str,
    folder: Path,
    weights: Weights,
    exact: Ours,
    recordings: Recordings,
    report: Report,
) -> None:
    ours = Ours(weights, folder, compute_type)
    found = {name: ours.find(recordings[name]).text for name in SHORT}
    edits = report.edits(compute_type, found, recordings)
    best = sum(recordings[n].edits(exact.find(recordings[n]).text) for n in SHORT)
    assert edits <= best + 3


def test_chunks_against_windows(quick: Ours, recordings: Recordings, report: Report) -> None:
    found = {name: quick.find(each, batch_size=4).text for name, each in recordings.items()}
    edits = report.edits("int8, batch of 4", found, recordings)
    windows = sum(each.edits(quick.find(each).text) for each in recordings.values())
    assert edits <= windows + 6


def test_live_against_offline(
    quick: Ours, recordings: Recordings, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live recognition encodes what was heard with a margin, not 30 s for each update."""
    recording = recordings["voices"]
    model, lengths = quick.transcriber.model, list[int]()
    encode = model.encode

    def counted(windows: Sequence[Any], priority: int = 0) -> Any:
        lengths.extend(window.shape[-1] for window in windows)
        return encode(windows, priority)

    monkeypatch.setattr(model, "encode", counted)
    options = LiveOptions(TranscribeOptions(language="en"), min_chunk_s=1.0)
    live = LiveTranscriber(quick.transcriber, options)
    events, block = [], SAMPLE_RATE // 10
    for at in range(0, len(recording.samples), block):
        events += live.feed(recording.samples[at : at + block])
    events += live.finish()
    monkeypatch.undo()
    text = "".join(event.text for event in events if isinstance(event, CommittedText))
    edits = report.edits("int8, live", {"voices": text}, recordings)
    assert edits <= recording.edits(quick.find(recording).text) + 3
    assert sum(lengths) < 0.5 * len(lengths) * 3_000


@pytest.mark.usefixtures("unpaused_drafts")
def test_drafts_change_no_token(folder: Path, exact: Ours, recordings: Recordings) -> None:
    """N-grams of what was recognized before: the second time nearly all is drafted."""
    recording = recordings["voices"]
    drafted = Transcriber(folder, engine=exact.transcriber.engine, draft="ngram")
    plain = [segment.tokens for segment in exact.find(recording).segments]
    for _ in range(2):
        again = drafted.transcribe(recording.samples, temperature=0.0, batch_size=1)
        assert [segment.tokens for segment in again] == plain
    report = drafted.draft_report
    assert report is not None
    assert report.accepted > 10
