"""`edgeapp history`: list, export, delete and repair past sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeapp.batch.outputs import write_atomically
from edgeapp.commands.options.command import CommandGroup, GroupedCommand
from edgeapp.commands.options.common import Debug
from edgeapp.console import counted, format_clock, print_note, printable, results_console
from edgeapp.documents.transcript_formats import FORMATS, formats_of, render
from edgeapp.exit_codes import SOME_FAILED, exit_with_code
from edgeapp.settings import history_file, load_settings
from pipelines import InputError, OptionError

if TYPE_CHECKING:
    from edgeapp.history import History, Summary

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Owner = Annotated[
    str, typer.Option("--owner", help="User name, where the page asks for a password.")
]
_ALL = 1_000_000  # records


@app.command("list", cls=GroupedCommand)
def list_(
    search: Annotated[
        str, typer.Argument(help="Words that the title or the text must contain.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", help="Number of records, newest first.")] = 50,
    owner: Owner = "",
    debug: Debug = False,
) -> None:
    """List past sessions, recordings and texts: id, time, kind, duration, languages, title."""
    with exit_with_code(debug):
        rows = []
        if _path().exists():
            with _history(owner) as history:
                rows = [_row(summary) for summary in history.search(search, limit)]
        if not rows:
            print_note(f"no record has {search!r}" if search else "the history is empty")
            return
        console = results_console()
        if not console.is_terminal:
            for row in rows:
                typer.echo("\t".join(row))
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("id", "time", "kind", "duration", "languages", "title"):
            table.add_column(column, justify="right" if column in ("id", "duration") else "left")
        for row in rows:
            table.add_row(*(Text(printable(field)) for field in row))
        console.print(table)


@app.command(cls=GroupedCommand)
def export(
    record: Annotated[int, typer.Argument(help="Id of the record, as `list` prints it.")],
    output_format: Annotated[
        str, typer.Option("-f", "--output-format", help=f"{', '.join(FORMATS)}.")
    ] = "txt",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Output file. Default: stdout.")
    ] = None,
    translation: Annotated[
        bool, typer.Option("--translation", help="The translation instead of the original.")
    ] = False,
    owner: Owner = "",
    debug: Debug = False,
) -> None:
    """Write a record as text or subtitles."""
    with exit_with_code(debug), _history(owner) as history:
        formats = formats_of(output_format)
        if len(formats) != 1:
            raise OptionError(f"export writes one format: {', '.join(FORMATS)}")
        found = history.open(record)
        if found is None:
            raise InputError(f"the history has no record {record}; `edgeapp history list` has all")
        if found.kind == "text" and formats == ("txt",):
            content: str | bytes = found.translation if translation else found.text  # own lines
        else:
            which = "translated" if translation else ""
            content = render(found.transcript, formats[0], which=which, title=found.title)
        if output is not None:
            if output.exists():
                raise OptionError(f"{output} exists already: choose another name")
            write_atomically(output, content)
        elif isinstance(content, bytes):
            raise OptionError(f"{formats[0]} is no text for stdout: name a file with -o")
        else:
            typer.echo(content, nl=not content.endswith("\n"))


@app.command(cls=GroupedCommand)
def delete(
    records: Annotated[list[int] | None, typer.Argument(help="Ids of the records.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Delete all records.")] = False,
    owner: Owner = "",
    debug: Debug = False,
) -> None:
    """Delete records; their text is overwritten in the file."""
    with exit_with_code(debug), _history(owner) as history:
        if every == bool(records):
            raise OptionError("name the records to delete, or give --all")
        if every:
            count = len(history.list(_ALL))
            history.clear()
            print_note(f"{counted(count, 'record')} deleted")
            return
        missing = [record for record in records or () if not history.delete(record)]
        for record in missing:
            print_note(f"the history has no record {record}")
        if missing:
            raise typer.Exit(SOME_FAILED)


@app.command(cls=GroupedCommand)
def repair(debug: Debug = False) -> None:
    """Check the whole file and repair it: a damaged page costs what was on it.

    A damaged file is kept beside the new one.
    """
    with exit_with_code(debug), _history("") as history:
        if history.repair():
            print_note("the history is sound")
            return
        print_note("the history is repaired")


def _path() -> Path:
    """The file of the history. Raises OptionError if it is switched off."""
    path = history_file(load_settings())
    if path is None:
        raise OptionError("the history is switched off: EDGEAPP_HISTORY or the settings turn it on")
    return path


@contextmanager
def _history(owner: str) -> Iterator[History]:
    from edgeapp.history import History

    path = _path()
    if not path.exists():
        # It would be created, and remain empty.
        raise InputError(f"there is no history yet: {path} does not exist")
    with History(path) as history:
        yield history.of(owner)


def _row(summary: Summary) -> tuple[str, ...]:
    languages = " → ".join(filter(None, (summary.language, summary.target)))
    duration = format_clock(summary.duration_s).partition(".")[0] if summary.duration_s else ""
    time = summary.created.astimezone().strftime("%Y-%m-%d %H:%M")
    title = " ".join(summary.title.split())
    return str(summary.id), time, summary.kind, duration, languages, title
