"""Recordings of which it is known when each word is said, and what of them was heard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import SAMPLE_RATE, AudioError, Samples, load_audio

__all__ = ["Recording", "SpokenWord", "align", "word_errors", "plain_words", "read_recording"]


@dataclass(frozen=True)
class SpokenWord:
    """start, end: seconds from the start of the recording. text: as `plain_words` writes it."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, eq=False)
class Recording:
    """samples: mono float32 at 16 kHz."""

    name: str
    samples: Samples
    words: tuple[SpokenWord, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def read_recording(path: Path) -> Recording:
    """A recording, and NAME.words.tsv beside it: a line "start TAB end TAB word" for each word.

    Raises AudioError when either cannot be read.
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
            f"{table} does not tell when each word of {path.name} is said "
            f"(start, end and word, with tabs between): {error}"
        ) from error
    return Recording(path.stem, load_audio(path), words)


def plain_words(text: str) -> list[str]:
    """Lower case, without punctuation: what counts as the same word."""
    return re.sub(r"[^\w' ]+|_", " ", text.lower().replace("’", "'")).split()


def align(truth: Sequence[str], heard: Sequence[str]) -> list[tuple[int | None, int | None]]:
    """Which word was heard as which: pairs of indices, in order, with the fewest errors.

    None on the one side is a word too many, on the other a word missed.
    """
    cost = np.zeros((len(truth) + 1, len(heard) + 1), np.int32)
    cost[:, 0], cost[0] = np.arange(len(truth) + 1), np.arange(len(heard) + 1)
    for i, said in enumerate(truth):
        for j, word in enumerate(heard):
            instead = cost[i, j] + (said != word)
            cost[i + 1, j + 1] = min(instead, cost[i, j + 1] + 1, cost[i + 1, j] + 1)
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(truth), len(heard)
    while i or j:
        instead = i and j and cost[i, j] == cost[i - 1, j - 1] + (truth[i - 1] != heard[j - 1])
        missed = i and cost[i, j] == cost[i - 1, j] + 1
        i, j = i - bool(instead or missed), j - bool(instead or not missed)
        pairs.append((i if instead or missed else None, j if instead or not missed else None))
    return pairs[::-1]


def word_errors(truth: Sequence[str], heard: Sequence[str]) -> int:
    """Words missed, too many or taken for others: over len(truth) it is the word error rate."""
    return sum(i is None or j is None or truth[i] != heard[j] for i, j in align(truth, heard))
