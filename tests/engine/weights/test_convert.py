"""A converted folder holds the same model, in the chosen kind of numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipelines.engine import Engine, GenerationOptions, Request, compare_with_transformers
from pipelines.engine import convert_model as convert
from pipelines.engine.weights import convert as module
from pipelines.engine.weights.checkpoint import open_weights
from pipelines.errors import OptionError
from pipelines.hub import resolve
from tests.fixtures.checkpoints import write_marian, write_whisper
from tests.formats.writers import write_pt

_LINEAR = "model.decoder.layers.1.fc1.weight"


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_marian(tmp_path_factory.mktemp("marian") / "opus-mt-en-de", dtype="float32")


def tokens(folder: Path, compute_type: str = "float32") -> tuple[int, ...]:
    with Engine(device="cpu", compute_type=compute_type, threads=1) as engine:
        model = engine.load(folder)
        encoded = model.encode([[5, 6, 7, 0]])[0]
        options = GenerationOptions(max_new_tokens=20, eos_ids=())
        start = (model.architecture.start_id,)
        return engine.generate([Request(encoded, start, options)])[0].tokens


@pytest.mark.parametrize("compute_type", ["float32", "float16", "bfloat16"])
def test_floats(marian: Path, tmp_path: Path, compute_type: str) -> None:
    made = convert(marian, tmp_path / "made", compute_type)
    stored = load_file(made / "model.safetensors")
    assert {t.dtype for t in stored.values()} == {getattr(torch, compute_type)}
    assert json.loads((made / "config.json").read_text())["dtype"] == compute_type
    assert (made / "source.spm").read_bytes() == (marian / "source.spm").read_bytes()
    if compute_type == "float32":
        assert tokens(made) == tokens(marian)


@pytest.mark.slow
def test_int8_is_what_the_engine_quantizes_to_itself(marian: Path, tmp_path: Path) -> None:
    made = convert(marian, tmp_path / "made", "int8")
    stored = load_file(made / "model.safetensors")
    assert stored[_LINEAR].dtype == torch.int8
    assert stored["model.decoder.layers.1.fc1.bias"].dtype == torch.float32
    again = convert(made, tmp_path / "again", "int8")
    assert torch.equal(load_file(again / "model.safetensors")[_LINEAR], stored[_LINEAR])
    assert tokens(made, "int8") == tokens(marian, "int8")
    shape = tuple(stored[_LINEAR].shape)
    exact, read = (open_weights(f).take(_LINEAR, *shape).float() for f in (marian, made))
    assert (exact - read).abs().max() <= exact.abs().max() / 127


@pytest.mark.slow
def test_shards(marian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHARD_BYTES", 1 << 20)
    made = convert(marian, tmp_path / "made", "float32")
    assert (made / "model.safetensors.index.json").is_file()
    assert len([*made.glob("model-*-of-*.safetensors")]) > 1
    assert tokens(made) == tokens(marian)
    assert resolve(made).task == "translation"


@pytest.mark.oracle
@pytest.mark.slow
def test_a_pt_becomes_a_folder_that_transformers_confirms(tmp_path: Path) -> None:
    folder = write_whisper(tmp_path / "tiny", "tiny", dtype="float32")
    made = convert(
        resolve(write_pt(folder, tmp_path / "tiny.pt")).folder, tmp_path / "made", "float32"
    )
    assert not (made / "origin.json").exists()
    result = compare_with_transformers(made, tokens=8)
    assert result.difference is None
    assert result.max_logit_error < 1e-3


@pytest.mark.oracle
@pytest.mark.slow
def test_a_wrong_computation_is_found(marian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.engine import LoadedModel

    score = LoadedModel.score
    monkeypatch.setattr(LoadedModel, "score", lambda *args: score(*args) + 1)
    assert compare_with_transformers(marian, tokens=8).max_logit_error > 0.9
    monkeypatch.setattr(LoadedModel, "score", score)
    monkeypatch.setattr(
        "pipelines.engine.transformers_check.GenerationOptions",
        lambda **options: GenerationOptions(**options, temperature=3.0, seed=1),
    )
    assert compare_with_transformers(marian, tokens=8).difference is not None


def test_refusals(marian: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is none of"):
        convert(marian, tmp_path / "made", "int4")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OptionError, match="is not empty"):
        convert(marian, tmp_path / "full", "float16")
    assert not (tmp_path / "made").exists()
