"""Moonshine by its short name: downloaded from a stand-in hub, described, compared, converted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeapp.cli import main
from pipelines import Transcriber, load_audio
from pipelines.hub import assets_folder, resolve
from tests.fixtures.hub import Hub
from tests.fixtures.moonshine import save_moonshine

pytestmark = [pytest.mark.oracle, pytest.mark.slow]


def test_it_is_pulled_described_and_compared(
    hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save_moonshine(tmp_path / "made")
    files = {file.name: file.read_bytes() for file in (tmp_path / "made").iterdir()}
    hub.host_files("UsefulSensors/moonshine-base", files)

    def said(*arguments: str) -> str:
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(["models", *arguments])
        out, err = capfd.readouterr()
        assert stop.value.code in (0, None), err
        return out

    said("pull", "moonshine-base")
    assert resolve("moonshine-base").folder == resolve("UsefulSensors/moonshine-base").folder
    details = json.loads(said("info", "moonshine-base", "--json"))
    assert (details["family"], details["task"]) == ("moonshine", "asr")
    (listed,) = [line for line in said("list").splitlines() if "moonshine-base" in line]
    assert "transformers" not in listed
    verified = said("verify", "moonshine-base", "--transformers")
    assert "model.safetensors" in verified
    assert "32" in verified, "tokens that are equal"
    small = tmp_path / "int8"
    said("convert", "moonshine-base", str(small), "--compute-type", "int8")
    speech = load_audio(assets_folder() / "samples" / "question.flac")
    with Transcriber(small, device="cpu") as transcriber:
        assert list(transcriber.transcribe(speech, beam_size=2))
