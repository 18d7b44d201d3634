"""`edgeapp models` beyond download and removal: list --json, info, verify, convert, prune."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.edgeapp.test_cli import run


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("models", "list", "--json", capsys=capsys)
    models = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [model["name"] for model in models[:3]] == ["demo", "demo-en-de", "demo-de-en"]
    assert all(Path(model["folder"]).is_dir() for model in models)


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("models", "info", "demo-en-de", capsys=capsys)
    assert "languages: en de\n" in out
    assert "license:   cc-by-2.0" in out
    _, out, _ = run("models", "info", "demo", "--json", capsys=capsys)
    assert json.loads(out)["family"] == "whisper"


def test_verify(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("models", "verify", "demo-en-de", capsys=capsys)
    assert code == 0
    assert "model.safetensors\tno published hash\n" in out


@pytest.mark.slow
def test_convert_and_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "made")
    code, out, _ = run(
        "models", "convert", "demo-en-de", target, "--compute-type", "int8", capsys=capsys
    )
    assert (code, out) == (0, f"{target}\n")
    code, out, err = run("models", "convert", "demo-en-de", target, capsys=capsys)
    assert (code, out) == (2, "")
    assert "is not empty" in err
    _, info, _ = run("models", "info", target, capsys=capsys)
    assert "family:    marian\n" in info


def test_prune(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("models", "prune", "--dry-run", capsys=capsys)
    assert (code, out) == (0, "")
    assert err.endswith("would be freed\n")
