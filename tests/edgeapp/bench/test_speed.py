"""How fast models are: the figures of the bundled ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeapp.bench.speed import Speed, markdown
from edgeapp.cli import main


@pytest.mark.slow
def test_the_figures_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    names = ["demo", "demo-en-de", "demo-de-en"]
    with pytest.raises(SystemExit) as stop:
        main(["bench", "speed", *names, "--json", "--device", "cpu", "--threads", "1"])
    assert not stop.value.code
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert "Python" in content["machine"]
    recognition, translation = content["models"]
    assert (recognition["model"], recognition["task"]) == ("demo", "asr")
    assert recognition["amount"] == pytest.approx(52.8, abs=0.1)
    assert recognition["rate"] == pytest.approx(recognition["amount"] / recognition["wall_s"])
    assert recognition["errors"] < 0.1
    assert (translation["model"], translation["errors"]) == ("demo-en-de", None)
    assert translation["amount"] > 100
    assert "demo-de-en is left out" in err


def test_the_table_says_how_long_an_hour_takes() -> None:
    speeds = [
        Speed("tiny", "asr", "int8", 1.0, 60.0, 6.0, 0.05),
        Speed("en-de", "translation", "int8", 1.0, 500.0, 2.0),
    ]
    lines = markdown(speeds).splitlines()
    assert "| 10.0 × real time | 6.0 min for an hour | 5.0 % |" in lines[2]
    assert "| 250 words/s | 4.0 s for 1,000 words |  |" in lines[3]
