"""`edgeapp bench`: how fast models are on this machine, and how late live captions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgeapp.commands.options.command import CommandGroup, GroupedCommand
from edgeapp.commands.options.common import (
    ComputeType,
    Debug,
    Device,
    Model,
    Threads,
    settings_from_flags,
)
from edgeapp.commands.options.completion import complete_models
from edgeapp.console import print_note, results_console
from edgeapp.exit_codes import EXIT_CODES, exit_with_code

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Markdown", "app", "print_table"]

_POLICIES: tuple[Literal["agreement", "attention"], ...] = ("agreement", "attention")
_TABLE_WIDTH = 120  # columns of the widest table

Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")]


app = typer.Typer(cls=CommandGroup, rich_markup_mode=None, no_args_is_help=True)


@app.command(epilog=EXIT_CODES, cls=GroupedCommand)
def speed(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Models. Default: all on this machine.", autocompletion=complete_models
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
    markdown: Markdown = False,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """How fast models are here: time for an hour of speech, time for 1,000 words, wrong words."""
    with exit_with_code(debug):
        settings = settings_from_flags(device, compute_type, threads)
        from edgeapp.bench import speed as bench
        from edgeapp.model_pool import ModelPool
        from pipelines.hub import list_models, resolve

        chosen = [(name, resolve(name).task) for name in models or ()]
        installed = [(model.name, model.task) for model in list_models() if model.native]
        speeds = []
        for name, task in chosen or installed:
            pool = ModelPool(settings)
            measured = bench.measure(pool, name, task)
            if measured is None:
                print_note(f"{name} is left out: the sample is English")
            else:
                speeds.append(measured)
            summary = bench.conditions(pool)
            pool.engine.close()  # one model in memory at a time
        if as_json:
            typer.echo(bench.to_json(speeds))
        elif markdown:
            typer.echo(f"{bench.markdown(speeds)}\n\n{summary}")
        else:
            print_table(bench.table(speeds))
            results_console().print(summary)


@app.command(epilog=EXIT_CODES, cls=GroupedCommand)
def live(
    recording: Annotated[
        Path | None,
        typer.Argument(
            help="Recording with a NAME.words.tsv beside it (start, end, word). Default: the "
            "bundled story."
        ),
    ] = None,
    model: Model = None,
    policy: Annotated[
        Literal["agreement", "attention"] | None,
        typer.Option("--policy", help="Default: both.", case_sensitive=False),
    ] = None,
    min_chunk: Annotated[
        float | None, typer.Option("--min-chunk", help="Seconds of new audio per update.")
    ] = None,
    markdown: Markdown = False,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Measure live captions of a recording in real time: lag of words, time per update.

    Takes two and a half minutes with the bundled recording.
    """
    with exit_with_code(debug):
        settings = settings_from_flags(device, compute_type, threads)
        from edgeapp.bench.word_lag import read_recording
        from edgeapp.model_pool import ModelPool
        from pipelines import LiveOptions
        from pipelines.hub import assets_folder

        options = LiveOptions() if min_chunk is None else LiveOptions(min_chunk_s=min_chunk)
        spoken = read_recording(recording or assets_folder() / "samples" / "story.flac")
        resolved = ModelPool(settings).find_recognizer(model, "en")
        from edgeapp.bench import captions_report as report
        from edgeapp.bench.captions import TimingEngine, caption
        from pipelines import Transcriber

        timing = TimingEngine(settings.device, settings.compute_type, settings.threads)
        transcriber = Transcriber(resolved.folder, engine=timing)
        figures = []
        for name in (policy,) if policy else _POLICIES:
            with_policy = replace(options, policy=name)
            figures.append(caption(timing, transcriber, spoken, with_policy, print_note))
        conditions = report.conditions(spoken, transcriber, options.min_chunk_s)
        if markdown:
            typer.echo(f"{report.markdown(figures)}\n\n{conditions}")
        else:
            print_table(report.table(figures))
            results_console().print(conditions)


def print_table(shown: Table) -> None:
    """Print a table at full width, even where the terminal is narrower or stdout is a file."""
    console = results_console()
    console.width = max(console.width, _TABLE_WIDTH)
    console.print(shown)
