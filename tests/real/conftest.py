"""Whisper base as it is downloaded, and people's voices; what each program writes of them, once.

The data lies in ../shared (its READMEs have the sources); without it these tests are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipelines.asr import Segment, Transcriber
from pipelines.engine import Engine
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


class Ours:
    """EdgeApp in one compute type, greedily; each recording once for the same options."""

    def __init__(self, folder: Path, compute_type: str) -> None:
        self.engine = Engine(device="cpu", compute_type=compute_type, threads=1)
        self.transcriber = Transcriber(folder, engine=self.engine)
        self.find = cache(self._find)

    def _find(self, recording: Recording, words: bool = False, batch_size: int = 1) -> Found:
        result = self.transcriber.transcribe(
            recording.samples, temperature=0.0, word_timestamps=words, batch_size=batch_size
        )
        return Found(result.language, tuple(result))


@pytest.fixture(scope="session")
def folder() -> Path:
    path = SHARED / "models" / "whisper-base"
    if not path.is_dir():
        pytest.skip(f"needs the real Whisper base, which is not at {path}")
    return path


@pytest.fixture(scope="session")
def recordings(shared_data: Path) -> Recordings:
    """Six readers and speakers, under three minutes."""
    people = read_people(shared_data)
    return {
        "book": joined([people[name] for name in people if name.startswith("LJ")]),
        "voices": joined([people[n] for n in ("jfk", "6930-75918-0000", "7902-96591-0000")]),
        "sonnet": people["sonnet2"],
        "german": people["german"],
    }


@pytest.fixture(scope="session")
def exact(folder: Path) -> Iterator[Ours]:
    """In float32."""
    ours = Ours(folder, "float32")
    yield ours
    ours.transcriber.close()
    ours.engine.close()


@pytest.fixture(scope="session")
def quick(folder: Path) -> Iterator[Ours]:
    """In int8."""
    ours = Ours(folder, "int8")
    yield ours
    ours.transcriber.close()
    ours.engine.close()


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
