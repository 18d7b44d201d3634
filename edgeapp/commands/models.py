"""`edgeapp models`: list, download and remove models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from edgeapp.commands.command import CommandGroup, GroupedCommand
from edgeapp.commands.completion import complete_models
from edgeapp.commands.options import Debug, ModelDirectory, use_model_directory
from edgeapp.console import print_note, printable, progress, results_console
from edgeapp.exit_codes import exit_with_code

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from pipelines.hub import PullProgress

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[
    str,
    typer.Argument(
        help="A short name (small.en, opus-mt-en-de) or a Hugging Face id.",
        autocompletion=complete_models,
    ),
]


@app.command("list", cls=GroupedCommand)
def list_(model_dir: ModelDirectory = None, debug: Debug = False) -> None:
    """List the models on this machine: name, task, size, source, folder."""
    with exit_with_code(debug):
        use_model_directory(model_dir)
        from pipelines.hub import list_models

        models = list_models()
        console = results_console()
        if not console.is_terminal:
            for model in models:
                fields = (model.name, model.task, model.size_bytes, model.source, model.folder)
                typer.echo("\t".join(map(str, fields)))
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("name", "task", "size", "from", "folder"):
            table.add_column(column, justify="right" if column == "size" else "left")
        for model in models:
            size, folder = _size(model.size_bytes), str(model.folder)
            row = (model.name, model.task, size, model.source, folder)
            table.add_row(*(Text(printable(field)) for field in row))
        console.print(table)


@app.command(cls=GroupedCommand)
def pull(
    names: Annotated[list[str], typer.Argument(help="Short names or Hugging Face ids.")],
    model_dir: ModelDirectory = None,
    debug: Debug = False,
) -> None:
    """Download models from the Hugging Face hub; an interrupted download is resumed."""
    with exit_with_code(debug):
        use_model_directory(model_dir, new=True)
        from pipelines.hub import pull as fetch

        for name in names:
            with progress(bytes_unit=True) as bar:
                task = bar.add_task(name, total=None)
                found = fetch(name, partial(_update, bar, task))
            if found.note:
                print_note(found.note)
            typer.echo(found.folder)


@app.command(cls=GroupedCommand)
def rm(name: Name, model_dir: ModelDirectory = None, debug: Debug = False) -> None:
    """Remove a downloaded model."""
    with exit_with_code(debug):
        use_model_directory(model_dir)
        from pipelines.hub import remove

        freed = remove(name)
        print_note(f"removed {name}, {_size(freed)} freed")


@app.command(cls=GroupedCommand)
def path(name: Name, model_dir: ModelDirectory = None, debug: Debug = False) -> None:
    """Print the folder of a model."""
    with exit_with_code(debug):
        use_model_directory(model_dir)
        from pipelines.hub import resolve

        typer.echo(resolve(name).folder)


def _update(bar: Progress, task: TaskID, state: PullProgress) -> None:
    bar.update(task, completed=state.done_bytes, total=state.total_bytes)


def _size(size_bytes: int) -> str:
    gb = size_bytes >= 1e9
    return f"{size_bytes / 1e9:.1f} GB" if gb else f"{size_bytes / 1e6:.1f} MB"
