"""Recordings with word times, and the word error rate of what was recognized of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import SAMPLE_RATE, AudioError, load_audio
from pipelines.asr import Samples

__all__ = ["Recording", "SpokenWord", "align", "word_errors", "plain_words", "read_recording"]


@dataclass(frozen=True)
class SpokenWord:
    """A word of the reference.

    Attributes:
        start: Seconds from the start of the recording.
        end: Seconds from the start of the recording.
        text: Normalised by `plain_words`.
    """

    start: float
    end: float
    text: str


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording with its reference words.

    Attributes:
        name: Name of the file without its suffix.
        samples: float32[samples], mono, 16 kHz.
        words: The reference, in order.
    """

    name: str
    samples: Samples
    words: tuple[SpokenWord, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def read_recording(path: Path) -> Recording:
    """Read a recording, and its word times from NAME.words.tsv beside it.

    Each line of that file is "start TAB end TAB word", with times in seconds.

    Raises:
        AudioError: One of the files cannot be read.
    """
    table = path.with_suffix(".words.tsv")
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines]
        words = tuple(
            SpokenWord(float(start), float(end), plain)
            for start, end, text in rows
            for plain in plain_words(text)
        )
    except (OSError, ValueError) as error:
        raise AudioError(
            f"{table} has no valid word times of {path.name} "
            f"(lines of start, end and word, separated by tabs): {error}"
        ) from error
    return Recording(path.stem, load_audio(path), words)


def plain_words(text: str) -> list[str]:
    """The words of a text for comparison: lower case, without punctuation."""
    return re.sub(r"[^\w' ]+|_", " ", text.lower().replace("’", "'")).split()


def align(
    reference: Sequence[str], hypothesis: Sequence[str]
) -> list[tuple[int | None, int | None]]:
    """The alignment of two word sequences with the fewest errors (Levenshtein distance).

    Returns:
        Pairs of indices (reference, hypothesis), in order. None as first is an insertion, None as
        second a deletion.
    """
    rows, columns = len(reference), len(hypothesis)
    place = np.arange(columns + 1, dtype=np.int32)
    cost = np.empty((rows + 1, columns + 1), np.int32)  # [reference, hypothesis]
    cost[0] = place
    ids = {word: number for number, word in enumerate({*reference, *hypothesis})}
    words = np.array([ids[word] for word in hypothesis], np.int32)
    for i, expected in enumerate(reference):
        row = cost[i] + 1  # deletions
        np.minimum(row[1:], cost[i, :-1] + (words != ids[expected]), out=row[1:])
        # An insertion costs 1 for each word to the right.
        cost[i + 1] = np.minimum.accumulate(row - place) + place
    pairs: list[tuple[int | None, int | None]] = []
    i, j = rows, columns
    while i or j:
        substitution = reference[i - 1] != hypothesis[j - 1] if i and j else False
        diagonal = i and j and cost[i, j] == cost[i - 1, j - 1] + substitution
        deletion = i and cost[i, j] == cost[i - 1, j] + 1
        i, j = i - bool(diagonal or deletion), j - bool(diagonal or not deletion)
        pairs.append((i if diagonal or deletion else None, j if diagonal or not deletion else None))
    return pairs[::-1]


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Deletions, insertions and substitutions; over len(reference) it is the word error rate."""
    return sum(
        i is None or j is None or reference[i] != hypothesis[j]
        for i, j in align(reference, hypothesis)
    )
