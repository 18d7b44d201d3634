"""The desktop entry starts a command that exists."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import typer

from edgeapp.cli import app

FOLDER = Path(__file__).parents[2] / "assets/packaging"


def test_the_desktop_entry_starts_a_command() -> None:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys have capitals
    parser.read(FOLDER / "edgeapp.desktop", encoding="utf-8")
    entry = parser["Desktop Entry"]
    assert {"Type", "Name", "Exec", "Icon"} <= set(entry)
    program, command = entry["Exec"].split()
    assert program == "edgeapp"
    assert command in typer.main.get_command(app).commands  # type: ignore[attr-defined]
