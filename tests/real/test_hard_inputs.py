"""Recordings on which chunks in parallel were worse than one window after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pipelines import SAMPLE_RATE, Segment
from tests.benchmarks.matrix.sounds import read_utterances, row_sounds
from tests.fixtures.people import Recording, read_people
from tests.real.conftest import SHARED, Ours

pytestmark = pytest.mark.usefixtures("folder")
CASES = SHARED / "data" / "cases"
PRINTING = (
    "Printing, in the only sense with which we are at present concerned, differs from most if not "
    "from all the arts and crafts represented in the Exhibition"
)


@pytest.fixture(scope="module")
def people(shared_data: Path) -> dict[str, Recording]:
    return read_people(shared_data)


def heard(ours: Ours, sound: str | np.ndarray, **options: object) -> Sequence[Segment]:
    """Return the segments; they lie within the recording, one after the other."""
    audio = str(CASES / sound) if isinstance(sound, str) else sound
    found = ours.transcriber.transcribe(audio, **{"language": "en", **options})
    segments, end = list(found), 0.0
    for segment in segments:
        assert end <= segment.start <= segment.end <= (found.duration or 0) + 1e-6
        end = segment.end
    return segments


def edits(said: str, segments: Sequence[Segment]) -> int:
    text = "".join(segment.text for segment in segments)
    return Recording(np.zeros(0, np.float32), said).edits(text)


def test_what_is_said_three_times_is_written_three_times(quick: Ours) -> None:
    segments = heard(quick, "01_said_three_times_b.ogg")
    assert edits(" ".join([PRINTING] * 3), segments) <= 2
    assert {segment.temperature for segment in segments} == {0.0}


def test_a_short_sentence_that_is_said_three_times_is_written_three_times(
    quick: Ours, people: dict[str, Recording]
) -> None:
    once = people["LJ001-0002"]  # in being comparatively modern.
    pause = np.zeros(round(0.4 * SAMPLE_RATE), np.float32)
    sound = np.concatenate([once.samples, pause, once.samples, pause, once.samples])
    assert edits(" ".join([once.text] * 3), heard(quick, sound)) == 0


def test_no_sentence_is_left_out_of_what_is_said_three_times(
    quick: Ours, shared_data: Path
) -> None:
    """The first segment had the time of two sentences, and the text of one."""
    (utterance,) = row_sounds("three times", read_utterances(shared_data), [28])
    said = utterance.recording
    assert said.edits("".join(s.text for s in heard(quick, said.samples))) <= 6


@pytest.mark.parametrize(
    ("row", "number", "most"), [("clean", 34, 0), ("peak -26 dB", 34, 0), ("telephone", 8, 3)]
)
def test_a_short_sentence_is_heard_as_well_as_window_by_window(
    quick: Ours, shared_data: Path, row: str, number: int, most: int
) -> None:
    """What follows a chunk is digital silence; a hiss made “the eye-beauty's” of “thy beauty's”."""
    (utterance,) = row_sounds(row, read_utterances(shared_data), [number])
    said = utterance.recording
    assert said.edits("".join(s.text for s in heard(quick, said.samples))) <= most


def test_a_quiet_recording_is_heard(quick: Ours) -> None:
    assert edits("I'm from the cutter lying off the coast", heard(quick, "02_quiet.flac")) <= 1


def test_the_first_word_of_a_telephone_call_is_heard(quick: Ours) -> None:
    assert edits(PRINTING, heard(quick, "04_first_word.wav")) == 0


def test_what_follows_a_quiet_sentence_says_nothing(quick: Ours, shared_data: Path) -> None:
    """Half a second after the last word: the sentence was written once more there."""
    utterances = read_utterances(shared_data)
    (utterance,) = row_sounds("peak -36 dB", utterances, [30])
    said = utterance.recording
    assert said.edits("".join(s.text for s in heard(quick, said.samples))) <= 2


@pytest.mark.parametrize("words", [False, True])
def test_noise_after_speech_says_nothing(
    quick: Ours, people: dict[str, Recording], words: bool
) -> None:
    jfk = people["jfk"]
    noise = np.random.default_rng(0).normal(0, 0.02, 3 * SAMPLE_RATE).astype(np.float32)
    sound = np.concatenate([jfk.samples, noise])
    assert jfk.edits("".join(s.text for s in heard(quick, sound, word_timestamps=words))) == 0


def test_silence_has_no_text(quick: Ours) -> None:
    """Window after window it is "you"."""
    silence = np.zeros(40 * SAMPLE_RATE, np.float32)
    assert heard(quick, silence) == []
    noise = np.random.default_rng(0).normal(0, 1e-3, len(silence)).astype(np.float32)
    assert heard(quick, noise, language=None) == []
    assert "you" in "".join(segment.text for segment in heard(quick, silence, batch_size=1))


@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_prefix_begins_the_sentence(
    quick: Ours, people: dict[str, Recording], batch_size: int
) -> None:
    jfk = people["jfk"]
    segments = heard(quick, jfk.samples, prefix="And so", batch_size=batch_size)
    assert "".join(segment.text for segment in segments).startswith(" And so")
    assert edits(jfk.text, segments) == 0
