"""When each word of live captions was emitted, and how many were taken back. No models, no files.

A word is emitted when it stands in its place for the last time: as re-translation is scored
(Arivazhagan et al. 2020), a changed word takes back all words after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

__all__ = [
    "Change",
    "Emission",
    "Update",
    "View",
    "changes",
    "emissions",
    "finish_times",
    "taken_back",
]

View = Literal["final", "shown"]  # the committed text, or that and the text that may still change


@dataclass(frozen=True)
class Update:
    """The captions after a block of audio.

    Attributes:
        audio_s: Audio fed so far.
        computing_s: Time that this block took.
        committed: All final text.
        partial: The text after it, which may still change.
    """

    audio_s: float
    computing_s: float
    committed: str
    partial: str

    def words(self, view: View) -> list[str]:
        """The words of the captions, with their punctuation."""
        return (self.committed + (self.partial if view == "shown" else "")).split()


@dataclass(frozen=True)
class Change:
    """What an update takes back from the end of the captions, and what it appends then."""

    deleted: tuple[str, ...]
    generated: tuple[str, ...]


@dataclass(frozen=True)
class Emission:
    """A word of the last captions.

    Attributes:
        word: With its punctuation.
        audio_s: Audio fed when it was emitted: computation-unaware.
        clock_s: Time when it was emitted in real time: computation-aware.
    """

    word: str
    audio_s: float
    clock_s: float


def changes(updates: Sequence[Update], view: View) -> list[Change]:
    """The change that each update makes."""
    made, before = [], list[str]()
    for update in updates:
        words = update.words(view)
        pairs = zip(before, words, strict=False)
        kept = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        made.append(Change(tuple(before[kept:]), tuple(words[kept:])))
        before = words
    return made


def taken_back(updates: Sequence[Update], view: View) -> int:
    """Number of words taken back; over the number of the last words it is normalized erasure."""
    return sum(len(change.deleted) for change in changes(updates, view))


def finish_times(updates: Sequence[Update]) -> list[float]:
    """When each block's work ends in real time (s).

    A block arrives at the end of its audio and waits until the work on those before it is done.
    """
    times, now = [], 0.0
    for update in updates:
        now = max(now, update.audio_s) + update.computing_s
        times.append(now)
    return times


def emissions(updates: Sequence[Update], view: View) -> list[Emission]:
    """The words of the last captions."""
    emitted = list[Emission]()
    for update, change, clock_s in zip(
        updates, changes(updates, view), finish_times(updates), strict=True
    ):
        del emitted[len(emitted) - len(change.deleted) :]
        emitted += [Emission(word, update.audio_s, clock_s) for word in change.generated]
    return emitted
