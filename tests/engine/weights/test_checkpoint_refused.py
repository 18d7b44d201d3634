"""What Engine.load refuses, and why: code in pickles, damage, folders without a model."""

from __future__ import annotations

import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.engine import Engine
from pipelines.engine.weights.checkpoint import open_weights
from pipelines.errors import CheckpointError
from tests.engine.stored import Stored, refused


class Trap:
    """An object of a malicious checkpoint, whose unpickling calls a function."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("form", ["bin", "legacy bin"])
def test_a_pickle_that_runs_code_is_refused_and_not_run(
    form: str, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    trap: Any = Trap(tmp_path / "sprung")
    stored_marian.state["model.shared.weight"] = trap
    message = refused(load, stored_marian.write(tmp_path / "bad", form))
    assert "could run code; it is not loaded" in message
    assert not (tmp_path / "sprung").exists()


def test_a_bare_pickle_is_refused_and_not_run(
    stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    folder = stored_marian.write(tmp_path / "bad", "bin")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        content = pickle.dumps({"a": Trap(tmp_path / "sprung")}, protocol=protocol)
        (folder / "pytorch_model.bin").write_bytes(content)
        refused(load, folder)
    assert not (tmp_path / "sprung").exists()


def test_a_poisoned_shard_is_refused(stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    folder = stored_marian.write(tmp_path / "bad", "sharded bin")
    torch.save({"x": Trap(tmp_path / "sprung")}, folder / "pytorch_model-00002-of-00002.bin")
    assert "00002-of-00002.bin holds more than tensors" in refused(load, folder)
    assert not (tmp_path / "sprung").exists()


def test_archives_that_cannot_be_read_safely(
    stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    """torch's first format was a tar, and TorchScript is code by design."""
    folder = stored_marian.write(tmp_path / "bad", "bin")
    (folder / "pytorch_model.bin").unlink()
    with tarfile.open(folder / "pytorch_model.bin", "w") as tar:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            content = tmp_path / name
            content.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
            tar.add(content, name)
    assert "cannot be read without running its code; it is not loaded" in refused(load, folder)
    assert not (tmp_path / "sprung").exists()


# Damage


@pytest.mark.parametrize("form", ["safetensors", "bin", "legacy bin"])
@pytest.mark.parametrize("kept", [0, 5, 60, 0.5, 0.999])
def test_a_truncated_file(
    form: str, kept: float, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    folder = stored_marian.write(tmp_path, form)
    (file,) = (f for f in folder.iterdir() if f.suffix in (".bin", ".safetensors"))
    content = file.read_bytes()
    file.write_bytes(content[: kept if kept > 1 else int(len(content) * kept)])
    message = refused(load, folder)
    assert f"{file} is damaged" in message
    assert "run code" not in message


@pytest.mark.parametrize("form", ["safetensors", "bin"])
@pytest.mark.parametrize(
    "content",
    [b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", b"<html></html>"],
    ids=["git-lfs pointer", "web page"],
)
def test_other_content_in_a_weights_file(
    form: str, content: bytes, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    folder = stored_marian.write(tmp_path, form)
    (file,) = (f for f in folder.iterdir() if f.suffix in (".bin", ".safetensors"))
    file.write_bytes(content)
    assert f"{file} is damaged" in refused(load, folder)


def test_a_bin_without_names(stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    folder = stored_marian.write(tmp_path, "bin")
    torch.save([torch.zeros(3)], folder / "pytorch_model.bin")
    assert "holds no named tensors" in refused(load, folder)


def test_a_missing_tensor_is_named(stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    del stored_marian.state["model.decoder.layers.0.encoder_attn.k_proj.weight"]
    message = refused(load, stored_marian.write(tmp_path))
    assert "the weights lack 'model.decoder.layers.0.encoder_attn.k_proj.weight'" in message


def test_a_wrong_shape_is_named(stored_whisper: Stored, tmp_path: Path, load: Any) -> None:
    stored_whisper.config["num_mel_bins"] = 128
    message = refused(load, stored_whisper.write(tmp_path))
    assert "'model.encoder.conv1.weight' has the shape [16, 80, 3]" in message
    assert "config.json asks for [16, 128, 3]" in message


def test_a_size_that_differs_from_the_config(
    stored_whisper: Stored, tmp_path: Path, load: Any
) -> None:
    stored_whisper.config |= {
        "d_model": 384,
        "encoder_attention_heads": 6,
        "decoder_attention_heads": 6,
    }
    assert "but config.json asks for [600, 384]" in refused(load, stored_whisper.write(tmp_path))


def test_tensors_of_integers(stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    name = "model.encoder.layers.0.fc1.weight"
    stored_marian.state[name] = stored_marian.state[name].to(torch.int8)
    assert f"{name!r} holds torch.int8, not floats" in refused(load, stored_marian.write(tmp_path))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("not json", "is not an index of weights"),
        ("[]", "is not an index of weights"),
        ("{}", "is not an index of weights: 'weight_map'"),
        ('{"weight_map": [1]}', "is not an index of weights"),
        ('{"weight_map": {"a": [1]}}', "is not an index of weights"),
        ('{"weight_map": {"a": 1}}', "is damaged or incomplete"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors is damaged or incomplete"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "points outside its folder: '../x.safe"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "points outside its folder: '/etc/passwd'"),
        ('{"weight_map": {"a": ".."}}', "is damaged or incomplete"),
        ('{"weight_map": {}}', "the weights lack"),
    ],
)
def test_an_invalid_index(
    index: str, message: str, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    folder = stored_marian.write(tmp_path, "sharded")
    (folder / "model.safetensors.index.json").write_text(index)
    assert message in refused(load, folder)


# Folders without a model


def test_no_weights_at_all(stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    folder = stored_marian.write(tmp_path)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    message = refused(load, folder)
    assert "neither model.safetensors nor pytorch_model.bin is there" in message
    with pytest.raises(CheckpointError):
        open_weights(folder)


def test_no_config(stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    folder = stored_marian.write(tmp_path)
    (folder / "config.json").unlink()
    assert refused(load, folder) == f"{folder} is not a model folder: it has no config.json"
    (folder / "config.json").mkdir()
    assert "config.json cannot be read" in refused(load, folder)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"nonsense", b"\xff\xfe", b'{"d_model": }', b"[" * 100_000]
)
def test_a_config_that_is_not_json(
    content: bytes, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    folder = stored_marian.write(tmp_path)
    (folder / "config.json").write_bytes(content)
    assert "config.json cannot be read" in refused(load, folder)


@pytest.mark.parametrize(
    "value",
    [float("inf"), float("nan"), 10**400, 10**9, 0],
    ids=["inf", "nan", "huge", "large", "0"],
)
def test_positions_that_no_model_has(
    value: float, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    stored_marian.config["max_position_embeddings"] = value
    said = refused(load, stored_marian.write(tmp_path))
    if isinstance(value, float):
        assert "config.json cannot be read: it holds" in said
    else:
        assert "config.json is invalid" in said


@pytest.mark.parametrize("content", ["[]", '"whisper"', "3", "null"])
def test_a_config_that_is_no_object(
    content: str, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    folder = stored_marian.write(tmp_path)
    (folder / "config.json").write_text(content)
    assert "config.json does not hold a JSON object" in refused(load, folder)


@pytest.mark.parametrize("family", ["bert", "wav2vec2", "umt5", "llama", None, 3, ["whisper"]])
def test_an_unsupported_family(
    family: Any, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    stored_marian.config["model_type"] = family
    message = refused(load, stored_marian.write(tmp_path))
    assert f"model_type {family!r} is not supported" in message
    assert "runs whisper, marian, m2m_100, mbart, bart, t5, mt5, pegasus" in message


def test_another_familys_weights(
    stored_marian: Stored, stored_whisper: Stored, tmp_path: Path
) -> None:
    """A config of another model: the error names the first missing tensor."""
    stored_marian.state, stored_whisper.state = stored_whisper.state, stored_marian.state
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        for name, checkpoint in (("marian", stored_marian), ("whisper", stored_whisper)):
            message = refused(engine.load, checkpoint.write(tmp_path / name))
            assert "the weights lack 'model." in message or "has the shape" in message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("d_model", None, "is invalid"),
        ("d_model", "wide", "is invalid"),
        ("d_model", 17, "does not divide into 2 heads"),
        ("decoder_attention_heads", 0, "is invalid"),
        ("activation_function", "tanh", "'tanh' is not one of"),
        ("normalize_before", True, "normalize_before is set"),
        ("eos_token_id", "</s>", "is invalid"),
        ("encoder_layers", 2, "the weights lack 'model.encoder.layers.1."),
    ],
)
def test_an_invalid_config(
    key: str, value: Any, message: str, stored_marian: Stored, tmp_path: Path, load: Any
) -> None:
    stored_marian.config[key] = value
    assert message in refused(load, stored_marian.write(tmp_path))


@pytest.mark.parametrize("key", ["d_model", "vocab_size", "decoder_start_token_id", "pad_token_id"])
def test_a_missing_key(key: str, stored_marian: Stored, tmp_path: Path, load: Any) -> None:
    del stored_marian.config[key]
    assert f"config.json lacks {key!r}" in refused(load, stored_marian.write(tmp_path))


def test_no_folder(tmp_path: Path, load: Any) -> None:
    assert "is not a folder" in refused(load, tmp_path / "gone")
    (tmp_path / "file").write_text("x")
    assert "is not a folder" in refused(load, tmp_path / "file")


def test_a_failed_load_can_be_repeated(stored_marian: Stored, tmp_path: Path) -> None:
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        folder = stored_marian.write(tmp_path)
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(weights[:100])
        refused(engine.load, folder)
        assert engine.models == ()
        (folder / "model.safetensors").write_bytes(weights)
        model = engine.load(folder)
        assert engine.models == (model,)
        assert engine.load(folder) is model
