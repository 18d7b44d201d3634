from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.engine import Engine
from pipelines.translation import Translator

DEMO = Path(__file__).resolve().parents[2] / "assets" / "models" / "demo-en-de"


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    assert DEMO.is_dir(), f"the bundled model is missing: {DEMO}"
    return DEMO


@pytest.fixture(scope="module")
def exact_engine() -> Iterator[Engine]:
    """An engine that computes what transformers computes."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def demo(demo_folder: Path, exact_engine: Engine) -> Translator:
    return Translator(demo_folder, engine=exact_engine)


@pytest.fixture(scope="session")
def oracle_tokenizer() -> Callable[[Path], Any]:
    """transformers' tokenizer of a folder, reading "</s>" in a text as text."""
    from transformers import MarianTokenizer

    def load(folder: Path) -> Any:
        with warnings.catch_warnings():
            # It would like sacremoses, which rewrites punctuation before sentencepiece.
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
            return MarianTokenizer.from_pretrained(folder, split_special_tokens=True)

    return load
