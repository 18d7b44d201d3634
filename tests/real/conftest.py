"""Whisper base as it is downloaded, and people's voices; what each program writes of them, once.

The data lies in ../shared (its READMEs have the sources); without it these tests are skipped.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipelines.asr import Segment, Transcriber
from pipelines.malloc import trim_heap
from tests.conftest import REPOSITORY
from tests.fixtures.people import Recording, joined, read_people
from tests.tally import Tally

SHARED = REPOSITORY.parent / "shared"

Recordings = dict[str, Recording]

_NAMES = ("book", "voices", "sonnet", "german")


@dataclass(frozen=True)
class Found:
    """What a program wrote of one recording."""

    language: str
    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


class Weights:
    """Holds the weights of one program at a time: a worker has no memory for those of two."""

    def __init__(self) -> None:
        self._owner: object = None
        self._held: Any = None

    def of(self, owner: object, load: Callable[[], Any]) -> Any:
        """Return what `load` made for an owner. It is made anew if another owner came between."""
        if owner is not self._owner:
            self.drop()
            self._held, self._owner = load(), owner
        return self._held

    def drop(self) -> None:
        """Free the memory."""
        if isinstance(self._held, Transcriber):
            self._held.close()
        self._held = self._owner = None
        gc.collect()
        trim_heap()


class Ours:
    """EdgeApp in one compute type, greedily; each recording once for the same options."""

    def __init__(self, weights: Weights, folder: Path, compute_type: str) -> None:
        self._weights, self._folder, self._compute_type = weights, folder, compute_type
        self.find = cache(self._find)

    @property
    def transcriber(self) -> Transcriber:
        return self._weights.of(self, self._load)

    def _load(self) -> Transcriber:
        return Transcriber(self._folder, device="cpu", compute_type=self._compute_type, threads=1)

    def _find(self, recording: Recording, words: bool = False, batch_size: int = 1) -> Found:
        result = self.transcriber.transcribe(
            recording.samples, temperature=0.0, word_timestamps=words, batch_size=batch_size
        )
        return Found(result.language, tuple(result))


@pytest.fixture(scope="session")
def folder(real_base: Path) -> Path:
    return real_base


@pytest.fixture(scope="package")
def recordings(shared_data: Path) -> Recordings:
    """Six readers and speakers, under three minutes."""
    people = read_people(shared_data)
    return {
        "book": joined([people[name] for name in people if name.startswith("LJ")]),
        "voices": joined([people[n] for n in ("jfk", "6930-75918-0000", "7902-96591-0000")]),
        "sonnet": people["sonnet2"],
        "german": people["german"],
    }


@pytest.fixture(scope="package")
def weights() -> Iterator[Weights]:
    weights = Weights()
    yield weights
    weights.drop()


@pytest.fixture(scope="package")
def exact(weights: Weights, folder: Path) -> Ours:
    """In float32."""
    return Ours(weights, folder, "float32")


@pytest.fixture(scope="package")
def quick(weights: Weights, folder: Path) -> Ours:
    """In int8."""
    return Ours(weights, folder, "int8")


class Report:
    """Counts of edits, for the terminal summary."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def say(self, line: str) -> None:
        self._tally.lines.append(f"whisper-base: {line}")

    def edits(self, what: str, found: dict[str, str], recordings: Recordings) -> int:
        """Count the edits of what was found of some recordings."""
        counts = {name: recordings[name].edits(text) for name, text in found.items()}
        words = {name: recordings[name].words for name in found}
        parts = ", ".join(f"{name} {counts[name]} in {words[name]}" for name in found)
        total = sum(counts.values())
        self.say(f"{what}: {total} edits in {sum(words.values())} words ({parts})")
        return total


@pytest.fixture(scope="session")
def report(tally: Tally) -> Report:
    return Report(tally)


def alignment_heads(folder: Path) -> list[tuple[int, int]]:
    config = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    return [tuple(pair) for pair in config["alignment_heads"]]


def recorded(*gate: str) -> list[Any]:
    """Parameters for all recordings: some for the gate, the others, as long again, not."""
    others = [name for name in _NAMES if name not in gate]
    return [*gate, *(pytest.param(name, marks=pytest.mark.campaign) for name in others)]
