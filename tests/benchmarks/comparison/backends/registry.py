"""Who takes part: names, as tables show them, and where each is to be imported from."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.benchmarks.comparison.backends.base import PeerBackend
from tests.benchmarks.comparison.shapes import Shape
from tests.benchmarks.comparison.work import KINDS, Kind, Task

__all__ = [
    "CT2",
    "FASTER",
    "HF",
    "HF_EXACT",
    "OPENAI",
    "OURS",
    "OURS_EXACT",
    "PEERS",
    "WHISPER_CPP",
    "Column",
    "Peer",
    "load_backend",
]


@dataclass(frozen=True)
class Column:
    """One line of a table: the best configuration among these dtypes, or among all."""

    name: str
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Peer:
    """One package in a process of its own, which may fill several lines of a table.

    place: module and class. package: what to install. work: the kinds that it takes part in.
    family: of the shapes it can run; None for all. base: the import that its memory is counted
    above. separate: a process for each configuration,
    because each model has threads of its own, and more of them than cores disturb each other.
    quick: fast enough to take part in everything; the others are left out of batches that
    would take them minutes. single: it knows no batches.
    """

    columns: tuple[Column, ...]
    place: str
    package: str
    work: tuple[Kind, ...]
    family: str | None = None
    base: str = "torch"
    quick: bool = False
    separate: bool = False
    single: bool = False

    def takes(self, shape: Shape, task: Task) -> bool:
        """Whether it has a part in this piece of work."""
        too_long = task.kind == "step" and task.batch > (1 if shape.large else 8)
        able = self.family in (None, shape.kind) and task.kind in self.work
        able = able and not (self.single and task.batch > 1)
        return able and (self.quick or not too_long)


OURS, OURS_EXACT = "EdgeApp", "EdgeApp float32"
HF, HF_EXACT = "transformers", "transformers float32"
OPENAI, CT2, FASTER = "openai-whisper", "CTranslate2", "faster-whisper"
WHISPER_CPP = "whisper.cpp"

_ALONE: tuple[Kind, ...] = ("step", "encode", "window")

PEERS = (
    Peer(
        (Column(HF_EXACT, ("float32",)), Column(HF)),
        "hugging_face:Transformers",
        "transformers",
        (*_ALONE, "lines", "memory"),
    ),
    Peer((Column(OPENAI),), "openai_whisper:OpenAIWhisper", "openai-whisper", _ALONE, "whisper"),
    Peer(
        (Column(CT2),),
        "ctranslate:CTranslate2",
        "ctranslate2",
        ("step", "encode", "windows", "lines", "memory"),
        base="ctranslate2",
        quick=True,
        separate=True,
    ),
    Peer(
        (Column(FASTER),),
        "faster_whisper:FasterWhisper",
        "faster-whisper",
        ("window",),
        "whisper",
        "ctranslate2",
        quick=True,
        separate=True,
    ),
    Peer(
        (Column(WHISPER_CPP),),
        "whisper_cpp:WhisperCpp",
        "pywhispercpp",
        ("step", "window", "memory"),
        "whisper",
        "numpy",
        quick=True,
        single=True,
    ),
    Peer(
        (Column(OURS_EXACT, ("float32",)), Column(OURS, ("auto",))),
        "ours:Ours",
        "edgeapp",
        KINDS,
        quick=True,
    ),
)


def load_backend(place: str, shape: Shape, folder: Path, device: str) -> PeerBackend:
    """Import and make one. Raises ModuleNotFoundError where its package is missing."""
    module, _, name = place.partition(":")
    made: PeerBackend = getattr(
        import_module(f"tests.benchmarks.comparison.backends.{module}"), name
    )(shape, folder, device)
    return made
