"""Whether a history is kept, and where: settings file, environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeapp.settings import history_file, load_settings
from pipelines.errors import OptionError


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "config.toml"))
    return tmp_path / "config.toml"


def test_it_is_kept_in_the_platforms_folder(config: Path) -> None:
    file = history_file(load_settings())
    assert file is not None
    assert (file.parent.name, file.name) == ("edgeapp", "history.db")


@pytest.mark.parametrize(
    ("line", "variable", "expected"),
    [
        ("history = false", "", None),
        ('history = "off"', "", None),
        ('history = "mine.db"', "", "mine.db"),
        ("history = false", "on", "history.db"),
        ("", "no", None),
        ('history = "mine.db"', "other.db", "other.db"),
    ],
)
def test_choosing(
    config: Path, monkeypatch: pytest.MonkeyPatch, line: str, variable: str, expected: str | None
) -> None:
    config.write_text(line, "utf-8")
    if variable:
        monkeypatch.setenv("EDGEAPP_HISTORY", variable)
    file = history_file(load_settings())
    assert (file and file.name) == expected
    if expected == "mine.db":
        assert file == config.parent / "mine.db", "meant from the settings file"


def test_what_it_cannot_be(config: Path) -> None:
    config.write_text("history = 3", "utf-8")
    with pytest.raises(OptionError, match="history must be true, false or a file"):
        load_settings()
