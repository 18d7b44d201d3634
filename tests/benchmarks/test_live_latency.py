"""The pure parts of tests/benchmarks/live_latency, on made-up updates."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from pipelines import LiveOptions, Transcriber
from pipelines.asr import Word
from tests.benchmarks.live_latency.emissions import (
    Update,
    changes,
    emissions,
    finish_times,
    taken_back,
)
from tests.benchmarks.live_latency.logs import LogFiles, write_logs, write_references
from tests.benchmarks.live_latency.playing import play
from tests.benchmarks.live_latency.quality import Quality, quality
from tests.benchmarks.live_latency.recordings import Segment, Spoken, bundled_samples, silences

# Two words are taken back after 1.5 s: "recognize" and, as it follows, "beach".
UPDATES = (
    Update(0.5, 0.2, "", ""),
    Update(1.0, 0.2, "", " I recognize beach"),
    Update(1.5, 0.9, " I", " wreck a nice"),
    Update(2.0, 0.1, " I wreck", " a nice beach."),
    Update(2.0, 0.0, " I wreck a nice beach.", ""),
)


def test_words_shown_are_taken_back_from_the_first_one_that_changes() -> None:
    shown = changes(UPDATES, "shown")
    assert [change.deleted for change in shown] == [(), (), ("recognize", "beach"), (), ()]
    assert shown[3].generated == ("beach.",)
    assert (taken_back(UPDATES, "shown"), taken_back(UPDATES, "final")) == (2, 0)


def test_a_word_is_emitted_when_it_comes_to_stay() -> None:
    shown = [(word.word, word.audio_s) for word in emissions(UPDATES, "shown")]
    assert shown == [("I", 1.0), ("wreck", 1.5), ("a", 1.5), ("nice", 1.5), ("beach.", 2.0)]
    final = [(word.word, word.audio_s) for word in emissions(UPDATES, "final")]
    assert final == [("I", 1.5), ("wreck", 2.0), ("a", 2.0), ("nice", 2.0), ("beach.", 2.0)]


def test_blocks_wait_for_the_work_on_earlier_ones() -> None:
    assert finish_times(UPDATES) == pytest.approx([0.7, 1.2, 2.4, 2.5, 2.5])
    assert emissions(UPDATES, "shown")[-1].clock_s == pytest.approx(2.5)


def spoken(text_of_second: str = "nice beach") -> Spoken:
    """Four seconds: a second of silence, "I wreck a", 1.5 s of silence, and a second text."""
    segments = (Segment(1.0, 1.5, "I wreck a"), Segment(3.0, 4.0, text_of_second))
    return Spoken("sea", "en", np.zeros(64_000, np.float32), segments)


@pytest.fixture
def files(tmp_path: Path) -> LogFiles:
    write_references(tmp_path, [spoken()])
    return write_logs(tmp_path, "agreement", "shown", [("sea", UPDATES)])


def test_omnistevals_log_has_the_times_of_each_word_in_milliseconds(files: LogFiles) -> None:
    (line,) = map(json.loads, files.hypothesis.read_text("utf-8").splitlines())
    assert line == {
        "source": "sea.wav",
        "prediction": "I wreck a nice beach.",
        "delays": [1000.0, 1500.0, 1500.0, 1500.0, 2000.0],
        "elapsed": [1200.0, 2400.0, 2400.0, 2400.0, 2500.0],
        "source_length": 2000.0,
    }


def test_simulstreams_log_has_a_line_a_block(files: LogFiles) -> None:
    head, *lines = map(json.loads, files.metrics.read_text("utf-8").splitlines())
    assert head == {"id": 0, "metadata": {"wav_name": "sea.wav"}}
    assert len(lines) == len(UPDATES)
    assert lines[2] == {
        "id": 0,
        "total_audio_processed": 1.5,
        "computation_time": 0.9,
        "generated_tokens": ["wreck", "a", "nice"],
        "deleted_tokens": ["recognize", "beach"],
    }


def test_each_segment_has_its_time_and_its_line_of_text(files: LogFiles) -> None:
    assert json.loads(files.segments.read_text("utf-8")) == [
        {"wav": "sea.wav", "offset": 1.0, "duration": 0.5},
        {"wav": "sea.wav", "offset": 3.0, "duration": 1.0},
    ]
    assert files.references.read_text("utf-8") == "I wreck a\nnice beach\n"


def test_silences_are_the_long_gaps_between_segments() -> None:
    # A gap of exactly one second is a pause for breath.
    assert silences(spoken()) == [(1.7, 2.8)]


def test_words_heard_in_silence_are_counted_apart_from_other_errors() -> None:
    said = [("I", 1.1), ("wreck", 1.2), ("a", 1.4), ("Thanks", 2.0), ("nice", 3.1), ("peach.", 3.5)]
    found = [Word(text, at, at + 0.1, 1.0) for text, at in [*said, ("so", 3.8)]]
    assert quality(spoken(), found) == Quality(words=5, edits=3, insertions=2, in_silence=1)


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_a_recording_is_played_in_blocks_and_its_last_words_are_final() -> None:
    (question,) = (sample for sample in bundled_samples() if sample.name == "question")
    with Transcriber("demo", compute_type="int8", threads=1) as transcriber:
        played = play(transcriber, question, LiveOptions())
    *blocks, end = played.updates
    assert len(blocks) == math.ceil(10 * question.seconds)
    assert blocks[-1].audio_s == end.audio_s == question.seconds
    assert end.partial == ""
    assert quality(question, played.words).edits <= 2
    final, shown = (emissions(played.updates, view) for view in ("final", "shown"))
    assert [word.word for word in final] == [word.word for word in shown]
    assert shown[0].audio_s < final[-1].audio_s
    assert all(word.clock_s > word.audio_s for word in final)
