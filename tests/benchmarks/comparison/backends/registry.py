"""The libraries that are compared: their names in tables, and their backend classes."""

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
    """One column of a table: the best configuration of a library among `dtypes`; () allows all."""

    name: str
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Peer:
    """A library, which runs in its own process.

    Attributes:
        columns: Its columns of the table.
        place: "module:class" of its PeerBackend, in this folder.
        package: Name of the package to install.
        work: Kinds of tasks that it runs.
        family: Kind of the shapes that it runs; None runs all.
        base: Module whose import is not counted in its peak memory.
        quick: Fast enough for all batch sizes; slow libraries skip tasks of minutes.
        separate: One process per configuration: each model has its own threads, and more threads
            than cores slow each other down.
        single: It has no batches.
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
        """Whether it runs a task of a shape."""
        too_long = task.kind == "step" and task.batch > (1 if shape.large else 8)
        supported = self.family in (None, shape.kind) and task.kind in self.work
        supported = supported and not (self.single and task.batch > 1)
        return supported and (self.quick or not too_long)


OURS, OURS_EXACT = "EdgeApp", "EdgeApp float32"
HF, HF_EXACT = "transformers", "transformers float32"
OPENAI, CT2, FASTER = "openai-whisper", "CTranslate2", "faster-whisper"
WHISPER_CPP = "whisper.cpp"

_BASIC_KINDS: tuple[Kind, ...] = ("step", "encode", "window")

PEERS = (
    Peer(
        (Column(HF_EXACT, ("float32",)), Column(HF)),
        "hugging_face:Transformers",
        "transformers",
        (*_BASIC_KINDS, "lines", "memory"),
    ),
    Peer(
        (Column(OPENAI),), "openai_whisper:OpenAIWhisper", "openai-whisper", _BASIC_KINDS, "whisper"
    ),
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
    """Import and create a backend. Raises ModuleNotFoundError if its package is missing.

    Args:
        place: "module:class", in this folder.
        shape: The model.
        folder: Folder with its weights.
        device: "cpu" or "cuda".
    """
    module, _, name = place.partition(":")
    made: PeerBackend = getattr(
        import_module(f"tests.benchmarks.comparison.backends.{module}"), name
    )(shape, folder, device)
    return made
