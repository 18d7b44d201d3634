"""What the journal does for a file does not grow with the number of files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeapp.batch.journal import digests
from edgeapp.cli import app
from edgeapp.store import database
from pipelines import TranslateOptions, Translation, Translator

pytestmark = pytest.mark.slow


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Hundreds of instructions that SQLite has run."""
    counted: list[int] = []
    connect = sqlite3.connect

    def watched(*arguments: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)  # type: ignore[call-overload]
        connection.set_progress_handler(lambda: counted.append(1), 100)
        return connection

    monkeypatch.setattr(database.sqlite3, "connect", watched)
    return counted


def _echo(
    _: Translator, lines: Iterable[str | None], options: TranslateOptions | None = None
) -> Iterator[Translation]:
    return (Translation(line, line) for line in lines if line is not None)


def test_the_journal_is_asked_as_much_for_each_of_many_files(
    tmp_path: Path, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translator, "translate_lines", _echo)
    # Else only the digests of the many files, which take longer, are old enough to be kept.
    monkeypatch.setattr(digests, "_SETTLED_S", -1.0)
    used: list[list[int]] = []
    for count in (25, 250):
        home = tmp_path / str(count)
        (home / "in").mkdir(parents=True)
        for number in range(count):
            (home / "in" / f"{number}.txt").write_text(f"Number {number}.\n")
        monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
        command = ["translate", str(home / "in"), "-m", "demo-en-de", "-o", str(home / "out")]
        used.append([])
        for more, said in (([], ""), (["--dry-run"], "done already"), ([], "done already"),
                           (["--retry-failed"], "")):  # fmt: skip
            before = len(steps)
            result = CliRunner().invoke(app, [*command, *more])
            assert result.exit_code == 0, result.output
            assert result.output.count("done already") == (count if said else 0)
            used[-1].append(len(steps) - before)
    few, many = used
    assert all(more <= 12 * less for less, more in zip(few, many, strict=True)), used
