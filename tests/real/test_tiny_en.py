"""Whisper tiny.en as the set-up brings it: real words at the first try."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import Transcriber
from pipelines.hub import resolve
from pipelines.hub.details import model_details
from tests.fixtures.people import Recording, read_people

FOLDER = "models--Systran--faster-whisper-tiny.en"


@pytest.fixture
def tiny_alone(real_hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that has nothing but tiny.en, for this process and for those that it starts."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    cache.mkdir()
    (cache / FOLDER).symlink_to(real_hub_cache / FOLDER)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    return cache


@pytest.mark.usefixtures("tiny_alone")
def test_a_recording_is_transcribed_without_an_option(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGEAPP_MODEL")
    file = shared_data / "speech" / "jfk.flac"
    command = [sys.executable, "-m", "edgeapp", "transcribe", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=True)
    assert read_people(shared_data)["jfk"].edits(done.stdout) == 0
    assert "tiny.en" in done.stderr
    assert model_details("tiny.en").languages == ("en",)


@pytest.mark.usefixtures("tiny_alone")
def test_people_reading_prose_are_understood(shared_data: Path) -> None:
    """faster-whisper has seven words of these wrong."""
    people = read_people(shared_data)
    prose = [people[name] for name in people if name[0] in "L67j"]
    with Transcriber(resolve("tiny.en").folder, device="cpu", threads=1) as transcriber:
        wrong = sum(edits(transcriber, person) for person in prose)
    assert wrong <= 7 < sum(person.words for person in prose) // 10


def edits(transcriber: Transcriber, person: Recording) -> int:
    segments = transcriber.transcribe(person.samples, language="en")
    return person.edits("".join(segment.text for segment in segments))


def test_faster_whisper_loads_it_offline(tiny_alone: Path, shared_data: Path) -> None:
    from faster_whisper import WhisperModel

    model = WhisperModel(
        "tiny.en", "cpu", cpu_threads=1, download_root=str(tiny_alone), local_files_only=True
    )
    person = read_people(shared_data)["jfk"]
    segments, _ = model.transcribe(person.samples)
    assert person.edits("".join(segment.text for segment in segments)) == 0
