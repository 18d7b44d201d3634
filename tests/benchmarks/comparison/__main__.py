"""Compares EdgeApp with other libraries on the same random weights.

python -m tests.benchmarks.comparison peers     # all libraries; some twenty minutes
python -m tests.benchmarks.comparison engine    # transformers only; two minutes
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from edgeapp.commands.bench import Markdown, print_table
from edgeapp.commands.options.common import Debug, Device, Threads, settings_from_flags
from edgeapp.console import print_note, results_console
from edgeapp.exit_codes import exit_with_code
from pipelines.errors import OptionError

__all__ = ["app", "engine", "peers"]

_QUICK_KINDS = ("step", "encode", "window", "lines")

app = typer.Typer(
    help="Compare EdgeApp with other libraries on the same random weights.",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


@app.command()
def peers(
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            help="What to measure, separated by commas: step, encode, window, windows, lines, "
            "growth, memory, quality. Default: all.",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape",
            help="Model shapes, separated by commas: whisper-tiny, whisper-base, whisper-small, "
            "opus-mt-en-de. Default: all.",
        ),
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="Batch sizes of a step, separated by commas.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer shapes and tasks; two minutes.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of runs; medians are shown.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Test data of quality: a folder with digits/ and tatoeba-eng-deu/."
        ),
    ] = None,
    neighbours: Annotated[
        int, typer.Option(min=0, help="Number of busy processes that run meanwhile.")
    ] = 0,
    as_json: Json = False,
    markdown: Markdown = False,
    device: Device = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Compare with transformers, openai-whisper, CTranslate2, faster-whisper and whisper.cpp.

    All libraries run the same random weights in real model shapes, each in its best
    configuration. Also measures the loss of quality by lower precision. A library that is not
    installed is left out. Takes some twenty minutes.
    """
    with exit_with_code(debug):
        from tests.benchmarks.comparison import report
        from tests.benchmarks.comparison.backends.registry import PEERS
        from tests.benchmarks.comparison.quality import Cost, quality
        from tests.benchmarks.comparison.race import Results, compare
        from tests.benchmarks.comparison.shapes import SHAPES
        from tests.benchmarks.comparison.work import KINDS, tasks_for
        from tests.benchmarks.neighbours import busy_neighbours

        shapes = {each.name: each for each in SHAPES}
        small = [name for name in shapes if not shapes[name].large]
        names = _listed(shape, "--shape", list(shapes)) or (small if quick else list(shapes))
        kinds = _listed(only, "--only", [*KINDS, "quality"])
        kinds = kinds or list(_QUICK_KINDS if quick else (*KINDS, "quality"))
        sizes = [int(size) for size in _listed(batch, "--batch", None)] or ([1] if quick else [])
        settings, said = settings_from_flags(device, None, threads), _with_time(print_note)
        resolved_device = _resolved_device(settings.device)
        if resolved_device != "cpu":  # process memory is measured, not GPU memory
            kinds = [kind for kind in kinds if kind != "memory"]
        work = {shapes[name]: tasks_for(shapes[name], kinds, sizes) for name in names}
        form = report.markdown if markdown else report.text
        results, costs = Results(()), list[Cost]()
        try:
            with busy_neighbours(neighbours):
                for one, tasks in work.items():
                    if tasks:
                        results += compare(
                            {one: tasks},
                            PEERS,
                            rounds=rounds or 3,
                            device=resolved_device,
                            threads=_counts(settings.threads),
                            said=said,
                        )
            if "quality" in kinds:
                costs += quality(data, settings.device, settings.threads, said)
        finally:  # after Ctrl-C, too: the shapes that are finished
            if results.figures or costs:
                typer.echo((report.to_json if as_json else form)(results, costs))


@app.command()
def engine(
    markdown: Markdown = False,
    tokens: Annotated[int, typer.Option(min=1, max=400, help="Number of new tokens per run.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Number of runs; medians are shown.")] = 5,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Compare encoding and decoding with transformers, on random weights in real model shapes.

    Takes a minute or two, on the CPU.
    """
    with exit_with_code(debug):
        from tests.benchmarks.comparison import versus_transformers as report
        from tests.benchmarks.comparison.race import compare

        settings = settings_from_flags("cpu", None, threads)
        figures = compare(
            report.work(tokens),
            report.ENTRANTS,
            rounds=rounds,
            device="cpu",
            threads=_counts(settings.threads),
            said=print_note,
        ).figures
        if markdown:
            typer.echo(f"{report.markdown(figures)}\n\n{report.conditions(tokens, rounds)}")
        else:
            print_table(report.table(figures))
            results_console().print(report.conditions(tokens, rounds))


def _listed(text: str | None, option: str, known: list[str] | None) -> list[str]:
    """The values of an option, separated by commas. Raises OptionError.

    Args:
        text: Value of the option.
        option: Its name.
        known: The valid values; None accepts numbers above 0.
    """
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    for part in parts:
        if not (part in known if known is not None else part.isdecimal() and int(part) > 0):
            allowed = ", ".join(known) if known is not None else "numbers above 0"
            raise OptionError(f"{option} takes {allowed}, not {part!r}")
    return parts


def _counts(threads: int | str) -> list[int] | None:
    return [threads] if isinstance(threads, int) else None


def _resolved_device(device: str) -> str:
    """The device that "auto" stands for: "cpu" or "cuda"."""
    from pipelines.engine import Engine

    return Engine(device=device).device


def _with_time(said: Callable[[str], None]) -> Callable[[str], None]:
    """A report function that adds the seconds since its creation to each message."""
    began = time.perf_counter()
    return lambda message: said(f"{time.perf_counter() - began:4.0f} s  {message}")


if __name__ == "__main__":
    app()
