"""Random checkpoints of true layout, each written once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.engine import Engine, LoadedModel
from pipelines.engine.kernels.library import KernelLibrary
from pipelines.engine.kernels.loader import load_kernels
from tests.engine.stored import Stored
from tests.fixtures.checkpoints import write_marian, write_whisper

Folders = Callable[[str], Path]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """checkpoints("whisper:turbo") → a small model's folder; "whisper:tiny!" has the true shape."""
    made: dict[str, Path] = {}

    def folder(spec: str) -> Path:
        if spec not in made:
            family, shape = spec.rstrip("!").split(":")
            path = tmp_path_factory.mktemp(shape.replace(".", "-"))
            small = not spec.endswith("!")
            if family == "whisper":
                write_whisper(path, shape, small=small, dtype="float32")
            else:
                write_marian(path, shape, small=small)
            made[spec] = path
        return made[spec]

    return folder


@pytest.fixture(scope="session")
def library() -> KernelLibrary:
    """The compiled kernels of this machine; for files that are skipped where there can be none."""
    found = load_kernels()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The exact one: float32 on the CPU, on one thread, which a busy neighbor cannot hold up."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def marian(engine: Engine, checkpoints: Folders) -> LoadedModel:
    return engine.load(checkpoints("marian:opus-mt-en-de"))


@pytest.fixture(scope="module")
def whisper(engine: Engine, checkpoints: Folders) -> LoadedModel:
    return engine.load(checkpoints("whisper:tiny"))


def token_sources(model: LoadedModel, lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Random ids ending with eos, of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    eos = model.architecture.eos_ids[0]
    high = min(model.architecture.source_vocab_size, model.architecture.pad_id)
    return [
        [*torch.randint(3, high, (length - 1,), generator=generator).tolist(), eos]
        for length in lengths
    ]


def mel_source(model: LoadedModel, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (model.architecture.num_mel_bins, 2 * model.architecture.max_source_positions)
    return torch.randn(shape, generator=generator) * 0.5


@pytest.fixture(scope="session")
def _stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    size: dict[str, Any] = {"d_model": 16, "heads": 2}
    write_marian(
        folder / "marian", weights="safetensors", dtype="float32", layers=1, ffn=32, **size
    )
    write_whisper(
        folder / "whisper",
        encoder_layers=1,
        decoder_layers=1,
        source_positions=10,
        target_positions=8,
        alignment_heads=((0, 0),),
        **size,
    )
    return folder


@pytest.fixture
def stored_marian(_stored: Path) -> Stored:
    """A tiny Marian checkpoint, to be changed and written."""
    return Stored(_stored / "marian")


@pytest.fixture
def stored_whisper(_stored: Path) -> Stored:
    """A tiny Whisper checkpoint, to be changed and written."""
    return Stored(_stored / "whisper")


@pytest.fixture
def load() -> Iterator[Callable[..., LoadedModel]]:
    """The `load` of an engine that forgets everything with the test."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield engine.load
