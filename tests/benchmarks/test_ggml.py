"""What whisper.cpp reads are the weights that everybody has."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.comparison.backends.base import Configuration
from tests.benchmarks.comparison.backends.registry import load_backend
from tests.benchmarks.comparison.shapes import SHAPES, ggml_file
from tests.benchmarks.comparison.work import samples
from tests.benchmarks.comparison.worker import Preparation
from tests.formats.writers import quantized

pytestmark = pytest.mark.slow

# At half this width (that of test_comparison) whisper.cpp decodes other tokens; cause unknown.
_SMALL = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1,
          "encoder_attention_heads": 2, "decoder_attention_heads": 2,
          "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}  # fmt: skip
SHAPE = replace(SHAPES[0], name="small-whisper", config={**SHAPES[0].config, **_SMALL})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("_pywhispercpp")
    made = tmp_path_factory.mktemp("ggml") / SHAPE.name
    Preparation(SHAPE, made, "cpu").write()
    return made


@pytest.mark.parametrize("compute_type", ["float16", "q8_0"])
def test_it_decodes_the_same_tokens(folder: Path, compute_type: str) -> None:
    said = []
    for place, dtype in (("whisper_cpp:WhisperCpp", compute_type), ("ours:Ours", "float32")):
        runner = load_backend(place, SHAPE, folder, "cpu").load(Configuration(dtype, 1))
        runner.ready()
        said.append([*runner.transcribe(samples(), 5)])
    assert said[0] == said[1]


def test_eight_bits_are_nearly_half_of_sixteen(folder: Path) -> None:
    halves, bytes_ = (ggml_file(folder, each).stat().st_size for each in ("float16", "q8_0"))
    assert 0.5 < bytes_ / halves < 0.8


def test_blocks_round_trip() -> None:
    values = np.random.default_rng(0).standard_normal((3, 64), np.float32)
    read = np.frombuffer(quantized("q8_0", values), np.int8).reshape(-1, 34)
    scale = read[:, :2].copy().view(np.float16).astype(np.float32)
    back = (read[:, 2:] * scale).reshape(values.shape)
    np.testing.assert_allclose(back, values, atol=np.abs(values).max() / 127)


def test_whisper_cpp_imports_no_torch() -> None:
    """Its memory is counted above the import of numpy."""
    pytest.importorskip("_pywhispercpp")
    module = "tests.benchmarks.comparison.backends.whisper_cpp"
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
