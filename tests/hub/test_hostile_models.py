"""Model folders that mean harm are refused in one line, soon, and do not hide the others."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeapp.server.page.picker_options import picker_options
from pipelines.asr.capabilities import read_generation_config
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.engine.weights.checkpoint import open_weights
from pipelines.errors import CheckpointError
from pipelines.families import architecture_of, read_config
from pipelines.hub import assets_folder, bundled_folder, list_models
from pipelines.json_files import read_json_object
from pipelines.tokenizer_json import read_tokenizer_json
from pipelines.translation.tokenizers.marian import MarianTokenizer

LONGEST_S = 20.0  # CPU time of a refusal


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    def copied(name: str) -> Path:
        return Path(shutil.copytree(bundled_folder(name), tmp_path / name))

    return copied


def refuse(load: Callable[[], Any]) -> str:
    began = time.process_time()
    with pytest.raises(CheckpointError) as error:
        load()
    assert time.process_time() - began < LONGEST_S
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


# JSON

NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"]
NESTED = ["[" * 10_000 + "]" * 10_000, '{"a":' * 100_000, "[" * 10_000_000]


@pytest.mark.parametrize("number", [*NUMBERS, "9" * 5000])
@pytest.mark.parametrize("around", ['{{"a": {}}}', '{{"a": [[{{"b": {}}}]]}}'])
def test_numbers_that_are_none(tmp_path: Path, number: str, around: str) -> None:
    (tmp_path / "x.json").write_text(around.format(number))
    assert "x.json cannot be read: " in refuse(lambda: read_json_object(tmp_path / "x.json"))


@pytest.mark.parametrize("content", [*NESTED, '{"a":' + "[" * 10_000 + "]" * 10_000 + "}"])
def test_nested_brackets(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    assert "x.json cannot be read: " in refuse(lambda: read_json_object(tmp_path / "x.json"))


def no_file(kind: str, path: Path) -> None:
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.touch()
        os.truncate(path, 1 << 40)


KINDS = ["pipe", "folder", "device", "loop", "sparse"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file(copy: Callable[[str], Path], kind: str) -> None:
    whisper, marian = copy("demo"), copy("demo-en-de")
    (whisper / "tokenizer.json").unlink(missing_ok=True)  # vocab.json is read instead
    files: list[tuple[Path, str, Callable[[], Any]]] = [
        (whisper, "config.json", lambda: read_config(whisper)),
        (whisper, "model.safetensors", lambda: open_weights(whisper)),
        (whisper, "vocab.json", lambda: WhisperTokenizer(whisper)),
        (marian, "tokenizer_config.json", lambda: MarianTokenizer(marian)),
        (marian, "vocab.json", lambda: MarianTokenizer(marian)),
        (marian, "source.spm", lambda: MarianTokenizer(marian)),
    ]
    for folder, name, load in files:
        before = (folder / name).read_bytes() if (folder / name).exists() else None
        no_file(kind, folder / name)
        assert str(folder) in refuse(load)
        (folder / name).rmdir() if kind == "folder" else (folder / name).unlink()
        if before is not None:
            (folder / name).write_bytes(before)
    no_file("sparse", whisper / "generation_config.json")
    assert "larger than" in refuse(lambda: read_generation_config(whisper))


# Sizes in config.json

HUGE: list[Any] = [10**9, 10**30, 0, -1, 1.5, "many", [2], None, True]


@pytest.mark.parametrize("value", HUGE, ids=str)
@pytest.mark.parametrize("name", ["demo", "demo-en-de"])
def test_sizes_that_no_model_has(name: str, value: Any) -> None:
    config = json.loads((bundled_folder(name) / "config.json").read_text())
    positions = (
        ["max_source_positions", "max_target_positions", "num_mel_bins"]
        if name == "demo"
        else ["max_position_embeddings"]
    )
    sides = [f"{side}_{key}" for side in ("encoder", "decoder") for key in
             ("layers", "attention_heads", "ffn_dim")]  # fmt: skip
    for key in ["d_model", "vocab_size", *positions, *sides]:
        message = refuse(lambda key=key: architecture_of(config | {key: value}, "x"))  # type: ignore[misc]
        assert key in message or "heads" in message


# Steps of a tokenizer.json

REGEXES = [r"(a+)+$", r"(?=x)", r"\s*\s*\s*\s*x", r"(.)\1", "a" * 200, "a{5000}", "(a|a)*", "a+b*"]


@pytest.mark.parametrize("regex", REGEXES)
@pytest.mark.parametrize("step", ["normalizer", "pre_tokenizer", "decoder"])
def test_regular_expressions_that_can_take_long(
    copy: Callable[[str], Path], step: str, regex: str
) -> None:
    folder = copy("demo")
    path = _with_tokenizer(folder)
    content = json.loads(path.read_text())
    inner = {"type": "Replace", "pattern": {"Regex": regex}, "content": ""}
    content[step] = {"type": "Sequence", f"{step}s": [{"type": "Sequence", "x": [inner]}]}
    path.write_text(json.dumps(content))
    assert "regular expression" in refuse(lambda: WhisperTokenizer(folder))


def test_replacements_that_multiply_a_text(tmp_path: Path) -> None:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"normalizer": {"type": "Sequence", "normalizers": [step] * 9}}))
    assert "times longer" in refuse(lambda: read_tokenizer_json(path))
    path.write_text(json.dumps({"decoder": [step | {"content": ""}] * 1000}))
    assert "more than 100 steps" in refuse(lambda: read_tokenizer_json(path))
    blob = (4).to_bytes(4, "little") + b"trie" + b"x" * 100_000 + b"\0"
    charsmap = base64.b64encode(blob).decode()
    path.write_text(json.dumps({"normalizer": {"precompiled_charsmap": charsmap}}))
    assert "character map" in refuse(lambda: read_tokenizer_json(path))
    path.write_text(json.dumps({"normalizer": {"precompiled_charsmap": "!"}}))
    assert "character map" in refuse(lambda: read_tokenizer_json(path))


def test_steps_of_published_models_are_accepted(tmp_path: Path) -> None:
    """The normalizers of NLLB, mBART and T5, and GPT-2's byte level."""
    texts = b"\0".join("".join(map(chr, range(0x61, 0x61 + n))).encode() for n in range(20))
    blob = base64.b64encode((8).to_bytes(4, "little") + bytes(8) + texts + b"\0").decode()
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    steps = [{"type": "Precompiled", "precompiled_charsmap": blob}, {"type": "Strip"}, spaces]
    content = {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    assert read_tokenizer_json(path) == content


def _with_tokenizer(folder: Path) -> Path:
    """tokenizer.json of a folder; written from its vocabulary if it has none."""
    path = folder / "tokenizer.json"
    if not path.exists():
        from tokenizers import Tokenizer
        from tokenizers.models import BPE

        Tokenizer(BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))).save(
            str(path)
        )
    return path


# A shared cache


def spoil(folder: Path, name: str) -> None:
    config = folder / "config.json"
    if name in KINDS:
        no_file(name, config)
    elif name.startswith("weights-"):
        no_file(name.removeprefix("weights-"), folder / "model.safetensors")
    elif name.startswith("tokenizer-"):
        for file in ("tokenizer_config.json", "generation_config.json", "vocab.json"):
            no_file(name.removeprefix("tokenizer-"), folder / file)
    elif name == "nested":
        config.write_text("[" * 100_000)
    elif name == "types":
        for file in ("tokenizer_config.json", "generation_config.json"):
            (folder / file).write_text('{"source_lang": 5, "target_lang": [], "lang_to_id": [1]}')
    elif name == "texts":
        for file in ("tokenizer_config.json", "generation_config.json", "vocab.json"):
            (folder / file).write_text("\x00 no JSON")


SPOILED = [*KINDS, *(f"weights-{kind}" for kind in KINDS), *(f"tokenizer-{k}" for k in KINDS)]
SPOILED += ["nested", "types", "texts"]


@pytest.fixture
def bad_cache(hub_cache: Path) -> Path:
    """One good model, and two of each bad kind."""
    for name in [*SPOILED, "good"]:
        for model in ("demo", "demo-en-de"):
            repository = hub_cache / f"models--{name}--{model}"
            folder = repository / "snapshots" / ("a" * 40)
            shutil.copytree(bundled_folder(model), folder)
            spoil(folder, name)
    (hub_cache / "models--file--x").touch()
    no_file("loop", hub_cache / "models--loop--x")
    return hub_cache


@pytest.mark.slow
def test_bad_folders_do_not_hide_the_others(bad_cache: Path) -> None:
    began = time.process_time()
    names = {model.name for model in list_models()}
    options = picker_options()
    assert time.process_time() - began < LONGEST_S
    assert {"good/demo", "good/demo-en-de", "demo", "demo-en-de"} <= names
    assert not names & {f"{kind}/demo" for kind in KINDS}
    assert "good/demo" in {option.name for option in options.recognizers}
    assert ("good/demo-en-de", "en", "de") in {
        (pair.model, pair.source, pair.target) for pair in options.pairs
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("transcribe", assets_folder() / "samples" / "question.flac"),
        ("translate", "a.txt"),
    ],
)
def test_the_exit_code_of_a_bad_model(
    command: tuple[Any, ...], copy: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = copy("demo" if command[0] == "transcribe" else "demo-en-de")
    (tmp_path / "a.txt").write_text("Good morning.\n")
    config = json.loads((folder / "config.json").read_text())
    config["encoder_layers"] = 10**9
    (folder / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-m", "edgeapp", *map(str, command), "-m", str(folder)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LONGEST_S * 5,
    )
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.splitlines()
    assert "encoder_layers 1000000000 is not between 1 and 1,000" in line
