"""Model folders shared by the recognition tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.checkpoints import write_whisper


@pytest.fixture(scope="session")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder laid out as openai/whisper-tiny's, with small random weights."""
    return write_whisper(tmp_path_factory.mktemp("whisper") / "tiny", "tiny")


@pytest.fixture(scope="session")
def english_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as openai/whisper-tiny.en's."""
    return write_whisper(tmp_path_factory.mktemp("whisper") / "tiny.en", "tiny.en")
