"""What is played: recordings with their text, in segments whose times are known."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipelines import SAMPLE_RATE, load_audio
from pipelines.asr import Samples
from tests.benchmarks.speeches import DATA, speeches
from tests.conftest import REPOSITORY
from tests.fixtures.people import Recording, read_people

__all__ = [
    "SHARED",
    "Segment",
    "Spoken",
    "bundled_samples",
    "in_german",
    "people",
    "sentences",
    "silences",
]

SHARED = REPOSITORY.parent / "shared"

# Rows of file, first line, last line, start and end (s).
_LINE_TIMES = Path(__file__).with_name("line_times.tsv")

_LEAD_S, _PAUSE_S = 3.0, 2.0  # before the first file and after each, where files are joined
_HISS = 2e-4  # amplitude of the noise in these pauses: no recording is silent to the last bit
_MIN_SILENCE_S = 1.0  # a shorter gap between segments is a pause for breath
_SILENCE_MARGIN_S = 0.2  # of a silence at both ends: times of words are no more exact


@dataclass(frozen=True)
class Segment:
    """A part of a recording with its true text.

    Attributes:
        start: Seconds from the start of the recording.
        end: Seconds from the start of the recording.
        text: One line.
    """

    start: float
    end: float
    text: str


@dataclass(frozen=True, eq=False)
class Spoken:
    """A recording with its true text.

    Attributes:
        name: Of letters and digits.
        language: Code.
        samples: float32[samples], mono, 16 kHz.
        segments: In order; all speech lies in them.
    """

    name: str
    language: str
    samples: Samples
    segments: tuple[Segment, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)


_File = tuple[Samples, list[Segment]]  # what is joined: its sound, and its segments' times in it


def people() -> list[Spoken]:
    """Four minutes of people reading and speaking, of ../shared/data, in English and in German.

    The files are joined with pauses. A file of one sentence is a segment; so is each line of the
    sonnets and of the German title page, whose times are those that Whisper base gives its words
    offline (line_times.tsv).

    Raises:
        OSError: ../shared/data is not there.
    """
    english, german = list[_File](), list[_File]()
    for name, recording in read_people(SHARED / "data").items():
        files = german if recording.language == "de" else english
        files.append((recording.samples, _segments(name, recording)))
    return [_joined("english", "en", english), _joined("german", "de", german)]


def bundled_samples() -> list[Spoken]:
    """The bundled samples, one segment a sentence."""
    found = []
    for path in sorted((REPOSITORY / "assets" / "samples").glob("*.flac")):
        rows = path.with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
        parts = [row.split("\t") for row in rows]
        segments = tuple(Segment(float(start), float(end), text) for start, end, text in parts)
        found.append(Spoken(path.stem, "en", load_audio(path), segments))
    return found


def sentences(words: int = 300) -> list[Spoken]:
    """Sentences of the test part of ../shared/data, spoken by espeak-ng and flite, one a segment.

    Raises:
        OSError: ../shared/data, espeak-ng or flite is not there.
    """
    return [
        Spoken(
            re.sub(r"\W+", "_", speech.voice),
            "en",
            speech.samples,
            tuple(Segment(*sentence) for sentence in speech.sentences),
        )
        for speech in speeches(words)
    ]


def in_german(recordings: Sequence[Spoken]) -> list[Spoken]:
    """Recordings of `sentences` with the segments' German text: what a translation is held to."""
    german: dict[str, str] = {}
    with gzip.open(DATA / "tatoeba-eng-deu" / "test.tsv.gz", "rt", encoding="utf-8") as pairs:
        for pair in pairs:
            english, translation = pair.rstrip("\n").split("\t")[:2]
            german.setdefault(english.strip(), translation)
    return [
        replace(
            recording,
            segments=tuple(
                replace(segment, text=german[segment.text]) for segment in recording.segments
            ),
        )
        for recording in recordings
    ]


def silences(recording: Spoken) -> list[tuple[float, float]]:
    """Pauses of more than a second: start and end (s), at the file's ends too."""
    starts = [*(segment.start for segment in recording.segments), recording.seconds]
    ends = [0.0, *(segment.end for segment in recording.segments)]
    return [
        (end + _SILENCE_MARGIN_S, start - _SILENCE_MARGIN_S)
        for end, start in zip(ends, starts, strict=True)
        if start - end > _MIN_SILENCE_S
    ]


def _segments(name: str, recording: Recording) -> list[Segment]:
    """Its lines, where their times are known; else one sentence."""
    lines = [" ".join(line.split()) for line in recording.text.splitlines() if line.strip()]
    segments = []
    for row in _LINE_TIMES.read_text(encoding="utf-8").splitlines():
        file, first, last, start, end = row.split("\t")
        if file == name:
            text = " ".join(lines[int(first) - 1 : int(last)])
            segments.append(Segment(float(start), float(end), text))
    seconds = len(recording.samples) / SAMPLE_RATE
    return segments or [Segment(0.0, seconds, recording.text)]


def _joined(name: str, language: str, files: Sequence[_File]) -> Spoken:
    """The files one after the other, with silence before, between and after them."""
    noise = np.random.default_rng(1)

    def pause(seconds: float) -> Samples:
        made = noise.standard_normal(round(seconds * SAMPLE_RATE)).astype(np.float32)
        return made * np.float32(_HISS)

    parts, segments = [pause(_LEAD_S)], list[Segment]()
    for samples, found in files:
        at = sum(map(len, parts)) / SAMPLE_RATE
        segments += [Segment(at + one.start, at + one.end, one.text) for one in found]
        parts += [samples, pause(_PAUSE_S)]
    return Spoken(name, language, np.concatenate(parts), tuple(segments))
