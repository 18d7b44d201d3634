"""Model folders and the engine shared by the recognition tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from pipelines.asr import Transcriber
from pipelines.engine import Engine
from tests.asr.by_window import ByWindow
from tests.conftest import is_worker
from tests.fixtures.checkpoints import write_whisper

if TYPE_CHECKING:
    from whisper.model import Whisper


@pytest.fixture(scope="session")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder laid out as openai/whisper-tiny's, with small random weights."""
    return write_whisper(tmp_path_factory.mktemp("whisper") / "tiny", "tiny")


@pytest.fixture(scope="session")
def english_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as openai/whisper-tiny.en's."""
    return write_whisper(tmp_path_factory.mktemp("whisper") / "tiny.en", "tiny.en")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """A float32 engine on the CPU: exact."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def real(multilingual: Path, engine: Engine) -> Transcriber:
    """A transcriber with random weights, which decodes by windows."""
    return ByWindow(multilingual, engine=engine)


@dataclass(frozen=True)
class Pair:
    """The same weights in both programs; ours decodes by windows."""

    ours: Transcriber
    theirs: Whisper


@pytest.fixture(scope="session")
def _fitted_files(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Whisper, Path]:
    """A model fitted on tests.asr.recordings, by one worker for all, and its folder for ours."""
    from filelock import FileLock

    from tests.asr.fitted import fit, unfitted
    from tests.asr.oracle import from_openai

    base = tmp_path_factory.getbasetemp()
    # A worker's lies in that of the whole run.
    weights = (base.parent if is_worker(pytestconfig) else base) / "fitted.pt"
    with FileLock(weights.with_suffix(".lock")):
        if not weights.exists():
            torch.save(fit().state_dict(), weights)
    model = unfitted()
    model.load_state_dict(torch.load(weights, weights_only=True))
    folder = write_whisper(tmp_path_factory.mktemp("whisper") / "fitted", "tiny")
    return model, from_openai(model, folder)


@pytest.fixture(scope="module")
def fitted(engine: Engine, _fitted_files: tuple[Whisper, Path]) -> Pair:
    """The fitted model in both programs."""
    theirs, folder = _fitted_files
    return Pair(ByWindow(folder, engine=engine), theirs)


@pytest.fixture(scope="module", autouse=True)
def _freed_vocabularies() -> Iterator[None]:
    """Free openai-whisper's vocabularies after a file's tests: it keeps each, 22 MB, for ever."""
    from whisper import tokenizer

    yield
    tokenizer.get_encoding.cache_clear()
    tokenizer.get_tokenizer.cache_clear()
