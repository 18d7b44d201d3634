"""Damaged and hostile files of other programs: one line, and no memory for what they announce."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.engine.weights.checkpoint import open_weights
from pipelines.errors import CheckpointError
from pipelines.hub import resolve
from pipelines.hub.foreign import foreign_root


def refuse(path: Path) -> str:
    with pytest.raises(CheckpointError) as error:
        resolve(path)
    message = str(error.value)
    assert "\n" not in message
    assert str(path) in message
    assert not [*foreign_root().glob(f".{path.name}*")], "a part of a folder was left behind"
    return message


def ctranslate2(*variables: bytes, count: int | None = None, version: int = 6) -> bytes:
    spec = b"WhisperSpec\0"
    number = len(variables) if count is None else count
    head = struct.pack("<IH", version, len(spec)) + spec + struct.pack("<II", 3, number)
    return head + b"".join(variables) + struct.pack("<I", 0)


def variable(name: bytes, shape: tuple[int, ...], kind: int, size: int, content: bytes) -> bytes:
    head = struct.pack("<H", len(name) + 1) + name + b"\0" + struct.pack("<B", len(shape))
    return head + struct.pack(f"<{len(shape)}IBI", *shape, kind, size) + content


_HUGE = (1 << 30, 1 << 30)
_MODELS: dict[str, bytes] = {
    "empty": b"",
    "another version": ctranslate2(version=99),
    "more variables than bytes": ctranslate2(count=90_000),
    "a billion variables": ctranslate2(count=1 << 30),
    "a shape that does not fit its bytes": ctranslate2(variable(b"a", _HUGE, 0, 4, b"1234")),
    "bytes beyond the end": ctranslate2(variable(b"a", (1 << 20,), 0, 4 << 20, b"1234")),
    "an unknown kind": ctranslate2(variable(b"a", (1,), 77, 4, b"1234")),
    "two hundred dimensions": ctranslate2(variable(b"a", (1,) * 200, 0, 4, b"1234")),
    "no tensors": ctranslate2(),
}


@pytest.mark.parametrize("name", _MODELS)
def test_model_bin(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.bin").write_bytes(_MODELS[name])
    refuse(tmp_path)


def ggml(**header: int) -> bytes:
    sizes = {"vocab": 51_865, "ctx": 1500, "width": 64, "heads": 1, "layers": 1, "text": 448,
             "text_width": 64, "text_heads": 1, "text_layers": 1, "mels": 80, "ftype": 0,
             "rows": 0, "columns": 0, "tokens": 0, **header}  # fmt: skip
    return struct.pack("<I14i", 0x67676D6C, *sizes.values())


@pytest.mark.parametrize(
    "content",
    [
        ggml()[:20],
        ggml(width=-1),
        ggml(vocab=1 << 30),
        ggml(text_width=32),
        ggml(rows=1 << 30, columns=1 << 30),
        ggml(rows=-5, columns=-5),
        ggml(tokens=1 << 29),
        ggml(tokens=-1),
        ggml() + struct.pack("<3i", 2, 4, 0) + struct.pack("<2i", 1 << 30, 1 << 30) + b"name",
        ggml() + struct.pack("<3i", 1, 1 << 30, 0) + struct.pack("<i", 1),
        ggml() + struct.pack("<3i", 1, 4, 99) + struct.pack("<i", 32) + b"name",
        ggml() + struct.pack("<3i", 1, 4, 8) + struct.pack("<i", 33) + b"name",
        ggml() + struct.pack("<3i", -1, 4, 0),
    ],
)
def test_ggml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ggml-tiny.bin"
    path.write_bytes(content)
    refuse(path)


@pytest.mark.parametrize(
    "rest",
    [
        struct.pack("<QQ", 1 << 40, 0),
        struct.pack("<QQ", 0, 1 << 40),
        struct.pack("<QQQ", 0, 1, 1 << 40),
        struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 9, 1 << 40),
        struct.pack("<QQQ", 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, 1 << 20),
        struct.pack("<QQQ", 1, 0, 1) + b"t" + struct.pack("<IQQIQ", 2, 1 << 60, 8, 0, 0),
        struct.pack("<QQQ", 1, 0, 1) + b"t" + struct.pack("<IQIQ", 1, 8, 0, 1 << 50),
        struct.pack("<QQ", 0, 0),
    ],
)
def test_gguf(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(struct.pack("<II", 0x46554747, 3) + rest)
    refuse(path)


class _Touch:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self._path,)


def test_a_pt_runs_no_code(tmp_path: Path) -> None:
    path, touched = tmp_path / "base.pt", tmp_path / "touched"
    torch.save({"dims": _Touch(touched)}, path)
    assert "could run code" in refuse(path)
    path.write_bytes(pickle.dumps(_Touch(touched)))
    refuse(path)
    assert not touched.exists()


@pytest.mark.parametrize("content", [{}, {"dims": {"n_vocab": 3}}, [1], {"dims": 7}])
def test_a_pt_of_another_kind(tmp_path: Path, content: object) -> None:
    path = tmp_path / "base.pt"
    torch.save(content, path)
    assert "is not a model of openai-whisper" in refuse(path)


def argos(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.slow
def test_a_package_that_unpacks_to_too_much(tmp_path: Path) -> None:
    members = {"p/metadata.json": b"{}", "p/model/model.bin": bytes(50_000_000)}
    path = argos(tmp_path / "bomb.argosmodel", members)
    assert path.stat().st_size < 100_000
    assert "would unpack to 50,000,00" in refuse(path)


def test_a_package_writes_only_what_is_needed(tmp_path: Path) -> None:
    members = {
        "p/metadata.json": json.dumps({"from_code": "en", "to_code": "de"}).encode(),
        "p/model/model.bin": ctranslate2(),
        "p/../../outside.txt": b"x",
        "/tmp/outside.txt": b"x",
        "p/stanza/model.pt": b"x",
    }
    refuse(argos(tmp_path / "p.argosmodel", members))
    assert not [*tmp_path.rglob("outside.txt"), *foreign_root().rglob("outside.txt")]


@pytest.mark.parametrize("members", [{}, {"a/metadata.json": b"{}"}, {"metadata.json": b"{}"}])
def test_a_zip_that_is_no_package(tmp_path: Path, members: dict[str, bytes]) -> None:
    refuse(argos(tmp_path / "p.argosmodel", members))


def test_a_file_that_is_no_zip(tmp_path: Path) -> None:
    path = tmp_path / "p.argosmodel"
    path.write_bytes(b"PK" * 100)
    assert "is damaged, or no package" in refuse(path)


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    content = ctranslate2(variable(b"encoder/conv1/bias", (64,), 0, 256, bytes(256)))
    path = tmp_path / "weights.ctranslate2"
    path.write_bytes(content)
    weights = open_weights(tmp_path)
    path.write_bytes(content[:100])
    with pytest.raises(CheckpointError, match="became shorter"):
        weights.take("model.encoder.conv1.bias", 64)
