"""A speaker on each of two channels: the sentences of both, by time, also after a break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from edgeapp.cli import app
from pipelines import (
    Segment,
    SegmentDone,
    TranscribeOptions,
    Transcriber,
    TranscriptionInfo,
    Word,
    load_audio,
)
from pipelines.asr import Checkpoint, TranscriptEvent, open_audio
from pipelines.asr.audio.arrays import Samples
from pipelines.asr.two_channels import Events, OneChannel, sections_of, transcribe_sections
from tests.conftest import REPOSITORY

RATE = 16_000
SAMPLES = REPOSITORY / "assets" / "samples"
TEXTS = ("", " Good morning.", " Where is it?", " Over there.", " See you!", " Thanks.", " Bye.")


def sound(*texts: tuple[float, float]) -> Samples:
    """Return samples of which each value is the number of a text: (number, seconds) …"""
    parts = [np.full(round(seconds * RATE), number, np.float32) for number, seconds in texts]
    return np.concatenate(parts)


def recognize(
    audio: Samples | OneChannel,
    resume_from: Checkpoint | None,
    checkpoints: bool,
    begins: bool,
) -> Events:
    """Write the text of each run of equal samples; 0 is silence."""
    parts: list[Samples] = [audio] if isinstance(audio, np.ndarray) else list(audio)
    samples = np.concatenate(parts)
    language = "en" if resume_from is None else resume_from.language
    yield TranscriptionInfo(language, None if resume_from else 0.9, len(samples) / RATE)
    edges = [0, *(np.flatnonzero(np.diff(samples)) + 1), len(samples)]
    number = 0 if resume_from is None else resume_from.segments
    for start, end in zip(edges, edges[1:], strict=False):
        if samples[start] == 0:
            continue
        at, until, text = start / RATE, end / RATE, TEXTS[int(samples[start])]
        words = (Word(text, at, until, 1.0),)
        yield SegmentDone(Segment(number, 0, at, until, text, (), 0.0, -0.1, 1.0, 0.0, words))
        number += 1
        if checkpoints:
            yield Checkpoint(number, chunks=number, language=language)


BLOCKS = [
    sound((1, 10.0)),
    np.stack([sound((2, 5.0), (0, 5.0)), sound((0, 3.0), (3, 7.0))], axis=1),
    np.stack([sound((0, 4.0), (4, 6.0)), sound((5, 2.0), (0, 2.0), (4, 6.0))], axis=1),
    sound((6, 10.0)),
]


def events_of(resume_from: Checkpoint | None = None) -> list[TranscriptEvent]:
    sections = sections_of(BLOCKS, 40.0)
    return list(transcribe_sections(recognize, sections, 40.0, resume_from, True))


def segments_of(events: list[TranscriptEvent]) -> Iterator[Segment]:
    return (event.segment for event in events if isinstance(event, SegmentDone))


def test_sentences_of_both_channels_stand_in_the_order_of_time() -> None:
    events = events_of()
    first, *others = events
    assert first == TranscriptionInfo("en", 0.9, 40.0)
    assert not any(isinstance(event, TranscriptionInfo) for event in others)
    segments = list(segments_of(events))
    assert [segment.id for segment in segments] == list(range(6))
    assert [segment.text for segment in segments] == [TEXTS[n] for n in (1, 2, 3, 5, 4, 6)]
    assert [(segment.start, segment.end) for segment in segments] == [
        (0.0, 10.0), (10.0, 15.0), (13.0, 20.0), (20.0, 22.0), (24.0, 30.0), (30.0, 40.0),
    ]  # fmt: skip
    for segment in segments:
        assert [(word.start, word.end) for word in segment.words] == [(segment.start, segment.end)]


def test_every_checkpoint_goes_on_to_the_same_end() -> None:
    events = events_of()
    checkpoints = [event for event in events if isinstance(event, Checkpoint)]
    assert len(checkpoints) >= 4
    for checkpoint in checkpoints:
        before = list(segments_of(events[: events.index(checkpoint)]))
        assert checkpoint.segments == len(before)
        after = events_of(checkpoint)
        assert isinstance(after[0], TranscriptionInfo)
        done = {segment.id for segment in before}
        # The recognizer of this test has no chunks: it writes a section again that was begun.
        new = [segment for segment in segments_of(after) if segment.id not in done]
        if checkpoint.chunks == 0:
            assert [*before, *new] == list(segments_of(events))


@pytest.fixture
def call(tmp_path: Path) -> Path:
    """Two recordings that overlap in time, one on each channel."""
    left, right = load_audio(SAMPLES / "question.flac"), load_audio(SAMPLES / "story.flac")
    right = right[: 6 * RATE]
    both = np.zeros((max(len(left) + RATE, len(right) + 2 * RATE), 2), np.float32)
    both[RATE // 2 : RATE // 2 + len(left), 0] = left
    both[2 * RATE : 2 * RATE + len(right), 1] = right
    path = tmp_path / "call.wav"
    soundfile.write(path, both, RATE)
    return path


def words(text: str) -> set[str]:
    return {"".join(filter(str.isalnum, word)).lower() for word in text.split()}


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 8])
def test_both_speakers_of_a_call_are_written(call: Path, batch_size: int) -> None:
    options = TranscribeOptions(language="en", batch_size=batch_size, temperature=0.0)
    channels = load_audio(call, keep_unlike=True)
    with Transcriber("demo") as transcriber:
        alone = [
            list(transcriber.transcribe(np.ascontiguousarray(channels[:, each]), options))
            for each in (0, 1)
        ]
        expected = sorted((s.start, s.text) for track in alone for s in track)
        sources = [
            call, call.read_bytes(), channels, channels.T, (RATE, channels), open_audio(call),
        ]  # fmt: skip
        for source in sources:
            segments = list(transcriber.transcribe(source, options))
            assert [(s.start, s.text) for s in segments] == expected
            assert [s.id for s in segments] == list(range(len(segments)))


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 8])
def test_clips_have_both_speakers(call: Path, batch_size: int) -> None:
    """The rest is silent in chunks. Window by window, windows begin with the clips."""
    question = (SAMPLES / "question.txt").read_text("utf-8")
    with Transcriber("demo") as transcriber:

        def heard(source: Any, *clips: float) -> list[Segment]:
            options = TranscribeOptions(language="en", batch_size=batch_size, temperature=0.0)
            return list(transcriber.transcribe(source, options, clip_timestamps=clips))

        segments = heard(call, 0.0, 4.5)
        assert segments == heard(open_audio(call), 0.0, 4.5)
        later = heard(call, 2.0, 4.5)
        assert heard(call, 1000.0) == []
    text = " ".join(segment.text for segment in segments)
    assert len(words(text) & words(question)) >= 0.7 * len(words(question))
    assert len(segments) >= 2
    assert max(segment.end for segment in segments) <= 5.0
    assert later
    # A chunk begins a little before its speech.
    assert all(1.7 <= segment.start <= segment.end <= 5.0 for segment in later)


@pytest.mark.slow
def test_clips_in_windows_may_be_in_any_order_and_resumed(call: Path) -> None:
    options = TranscribeOptions(
        language="en", batch_size=1, temperature=0.0, clip_timestamps=(4.0, 7.0, 0.0, 3.5)
    )
    with Transcriber("demo") as transcriber:
        events = list(transcriber.stream(call, options, checkpoints=True))
        segments = list(segments_of(events))
        late = [segment for segment in segments if segment.start >= 4.0]
        assert 0 < len(late) < len(segments)
        assert segments[: len(late)] == late
        first = next(e for e in events if isinstance(e, Checkpoint) and e.segments == len(late))
        rest = transcriber.stream(call, options, resume_from=first)
        assert list(segments_of(list(rest))) == segments[len(late) :]


@pytest.mark.slow
def test_on_the_command_line(call: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    question = (SAMPLES / "question.txt").read_text("utf-8")
    for size in ("8", "1"):
        command = ["transcribe", str(call), "-m", "demo", "-f", "txt", "-o", str(tmp_path / size)]
        result = CliRunner().invoke(app, [*command, "--batch-size", size, "--language", "en"])
        assert result.exit_code == 0, result.output
        text = (tmp_path / size / "call.txt").read_text("utf-8")
        assert len(words(text) & words(question)) >= 0.7 * len(words(question))
        assert len(text.splitlines()) >= 2
