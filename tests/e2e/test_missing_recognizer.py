"""A machine without a recognizer for people's voices: the question on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from pipelines.hub import assets_folder
from tests.e2e.conftest import FRESH
from tests.fixtures.hub import Hub

pytestmark = pytest.mark.slow
TALK = assets_folder() / "samples" / "question.flac"
QUESTION = b"Whisper base, 99 languages, 145 MB: download it now? [Y/n] "


def read_terminal(terminal: int, until: bytes = b"\0") -> bytes:
    """What programs write to a terminal, up to a text or until none has it open."""
    text = b""
    while until not in text:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # on Linux, where other systems return nothing
            piece = b""
        if not piece:
            break
        text += piece
    return text


def test_one_question_one_download_and_the_command_goes_on(
    environment: dict[str, str],
    stand_in_hub: Hub,
    hosted_base: dict[str, str],
    tmp_path: Path,
) -> None:
    for name in ("EDGEAPP_MODEL", "HF_HUB_OFFLINE", "CI"):
        environment.pop(name, None)
    environment |= hosted_base | {"HF_ENDPOINT": stand_in_hub.url, "HF_HUB_DISABLE_XET": "1"}
    said = []
    for _ in range(2):
        here, there = pty.openpty()
        process = subprocess.Popen(
            [*FRESH, "transcribe", str(TALK), "-l", "en"],
            stdin=there, stdout=there, stderr=there, env=environment, cwd=tmp_path,
        )  # fmt: skip
        os.close(there)
        text = read_terminal(here, QUESTION)
        if QUESTION in text:
            os.write(here, b"\n")
            text += read_terminal(here)
        said.append(text)
        os.close(here)
        assert process.wait(120) == 0, text
    first, second = said
    assert first.count(QUESTION) == 1
    assert b"GB free" in first
    assert QUESTION not in second, "it is here now"
    assert b"the best model for en" in second
