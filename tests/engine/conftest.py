"""Random checkpoints of true layout, each written once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from pipelines.engine import Engine, Model
from tests.fixtures.checkpoints import write_marian, write_whisper

Folders = Callable[[str], Path]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """checkpoints("whisper:turbo") → a folder; add "!" for the true shape instead of a small one."""
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
def engine() -> Iterator[Engine]:
    """The exact one: float32 on the CPU."""
    with Engine(device="cpu", precision="float32", threads=2) as engine:
        yield engine


@pytest.fixture(scope="session")
def marian(engine: Engine, checkpoints: Folders) -> Model:
    return engine.load(checkpoints("marian:opus-mt-en-de"))


@pytest.fixture(scope="session")
def whisper(engine: Engine, checkpoints: Folders) -> Model:
    return engine.load(checkpoints("whisper:tiny"))


def token_sources(model: Model, lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Random ids ending with eos, of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    eos = model.architecture.eos_ids[0]
    high = min(model.architecture.source_vocab_size, model.architecture.pad_id)
    return [
        [*torch.randint(3, high, (length - 1,), generator=generator).tolist(), eos]
        for length in lengths
    ]


def mel_source(model: Model, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (model.architecture.num_mel_bins, 2 * model.architecture.max_source_positions)
    return torch.randn(shape, generator=generator) * 0.5
