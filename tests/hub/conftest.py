"""Repositories of a few hundred bytes with the files of the real ones, and a cache to put them in.

Names are resolved by what files there are; that folders of this layout load is tested with whole
checkpoints in test_layouts.py.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.errors import ModelError, ModelNotFound
from pipelines.hub import assets, pull, resolve

REFUSAL_S = 60.0  # how long one may take on a busy machine

Files = dict[str, bytes]
Cached = Callable[..., Path]

TINY, OPUS = "openai/whisper-tiny", "Helsinki-NLP/opus-mt-en-de"
WEIGHTS = "model.safetensors"


def whisper_files() -> Files:
    """What a repository of openai/whisper-* lists, the other frameworks' weights included."""
    texts = (
        "added_tokens generation_config normalizer preprocessor_config special_tokens_map "
        "tokenizer tokenizer_config vocab"
    )
    return {
        **{f"{name}.json": json.dumps({"of": name}).encode() for name in texts.split()},
        "config.json": b'{"model_type": "whisper"}',
        "merges.txt": b"#version: 0.2\n",
        "model.safetensors": bytes(range(256)) * 800,
        "pytorch_model.bin": b"bin" * 1000,
        "flax_model.msgpack": b"flax" * 1000,
        "tf_model.h5": b"tf" * 1000,
        "README.md": b"# Whisper",
        ".gitattributes": b"*.bin filter=lfs",
    }


def opus_files(source: str = "en", target: str = "de") -> Files:
    """What a repository of Helsinki-NLP/opus-mt-* lists: no safetensors."""
    return {
        "config.json": b'{"model_type": "marian"}',
        "generation_config.json": b'{"max_length": 512}',
        "tokenizer_config.json": json.dumps(
            {"source_lang": source, "target_lang": target}
        ).encode(),
        "vocab.json": b'{"</s>": 0}',
        "source.spm": b"source" * 50,
        "target.spm": b"target" * 50,
        "pytorch_model.bin": bytes(range(256)) * 400,
        "rust_model.ot": b"rust" * 1000,
        "tf_model.h5": b"tf" * 1000,
        "README.md": b"# opus",
        ".gitattributes": b"*.bin filter=lfs",
    }


def many_files(family: str = "m2m_100") -> Files:
    """What the repositories of models for many languages list, facebook/nllb-200-* for one."""
    spm = "spiece.model" if family == "t5" else "sentencepiece.bpe.model"
    return {
        "config.json": json.dumps({"model_type": family}).encode(),
        "generation_config.json": b'{"max_length": 200}',
        "tokenizer_config.json": b"{}",
        "special_tokens_map.json": b"{}",
        "tokenizer.json": b"{}",
        spm: b"spm" * 300,
        "pytorch_model.bin": b"bin" * 1000,
        "rust_model.ot": b"rust" * 1000,
        "README.md": b"# Many",
    }


def reader_files(decoder: str = "trocr") -> Files:
    """What makes a model of pictures, by the type of its decoder."""
    config = {
        "model_type": "vision-encoder-decoder",
        "architectures": ["VisionEncoderDecoderModel"],
        "decoder": {"model_type": decoder},
    }
    return {
        "config.json": json.dumps(config).encode(),
        "preprocessor_config.json": b"{}",
        "tokenizer.json": b"{}",
        "model.safetensors": b"weights",
    }


def write_files(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def cached(hub_cache: Path) -> Cached:
    """cached(repository, files) puts a download into the cache, as huggingface_hub lays it out:
    blobs by their hash, a snapshot of links, and the branch's name."""

    def put(repository: str, files: Files, commit: str = "a" * 40, main: bool = True) -> Path:
        storage = hub_cache / f"models--{repository.replace('/', '--')}"
        snapshot = storage / "snapshots" / commit
        for folder in (storage / "blobs", storage / "refs", snapshot):
            folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            blob = hashlib.sha256(content).hexdigest()
            (storage / "blobs" / blob).write_bytes(content)
            (snapshot / name).symlink_to(Path("../../blobs") / blob)
        if main:
            (storage / "refs" / "main").write_text(commit)
        return snapshot

    return put


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of its own with all bundled models; returns its models folder."""
    monkeypatch.setattr(assets, "__file__", str(tmp_path / "site/pipelines/hub/assets.py"))
    models = tmp_path / "site/pipelines/assets/models"
    write_files(models / "demo", whisper_files())
    write_files(models / "demo-en-de", opus_files())
    write_files(models / "demo-de-en", opus_files("de", "en"))
    return models


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits a second before each attempt to go on."""
    monkeypatch.setattr(time, "sleep", lambda _: None)


def refusal(name: str) -> str:
    with pytest.raises(ModelError) as error:
        pull(name)
    message = str(error.value)
    assert "\n" not in message
    assert "Traceback" not in message
    return message


def resolve_here(name: str) -> bool:
    try:
        resolve(name)
    except ModelNotFound:
        return False
    return True


@pytest.fixture
def canary(tmp_path: Path, hub_cache: Path) -> Iterator[None]:
    """Whatever the server does, the files around the cache stay as they are."""
    for name in ("config.json", "x", "etc/passwd", "home/.bashrc"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("not for the server")
    before = around(tmp_path, hub_cache)
    yield
    assert around(tmp_path, hub_cache) == before
    for link in hub_cache.rglob("*"):
        assert link.resolve().is_relative_to(hub_cache.resolve()), link
    leftovers = [*hub_cache.rglob("*.tmp"), *hub_cache.rglob("*.incomplete")]
    assert leftovers == []


def around(root: Path, cache: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(f): f.read_bytes() for f in files if not f.is_relative_to(cache)}


def refused(said: str) -> None:
    """The pull and the look before it fail with one line that names the repository."""
    started = time.monotonic()
    message = refusal("tiny")
    assert time.monotonic() - started < REFUSAL_S
    assert TINY in message
    assert said in message
    assert message.isprintable()
    assert len(message) < 500
    assert not resolve_here("tiny")
