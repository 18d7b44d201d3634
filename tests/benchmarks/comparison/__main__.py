"""EdgeApp and its peers on the same random weights.

python -m tests.benchmarks.comparison peers     # all of them; some twenty minutes
python -m tests.benchmarks.comparison engine    # transformers alone; two minutes
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from edgeapp.commands.bench import Markdown, print_table
from edgeapp.commands.options import Debug, Device, Threads, settings_from_flags
from edgeapp.console import print_note, results_console
from edgeapp.exit_codes import exit_with_code
from pipelines.errors import OptionError

__all__ = ["app", "engine", "peers"]

_QUICK_KINDS = ("step", "encode", "window", "lines")

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="One object instead of a table.")]


@app.command()
def peers(
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            help="By commas, of step, encode, window, windows, lines, growth, memory, quality.",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape", help="By commas, of whisper-tiny, -base, -small and opus-mt-en-de."
        ),
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="By commas, how many are stepped at once.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A first look, in two minutes.")] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Runs at most, of which medians are shown.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="For quality: a folder with digits/ and tatoeba-eng-deu/."),
    ] = None,
    as_json: Json = False,
    markdown: Markdown = False,
    device: Device = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """EdgeApp beside transformers, openai-whisper, CTranslate2, faster-whisper and whisper.cpp.

    On the same random weights of true shape, each in its best configuration; and what precisions
    cost in quality. A peer that is not installed is left out. Takes some twenty minutes.
    """
    with exit_with_code(debug):
        from tests.benchmarks.comparison import report
        from tests.benchmarks.comparison.backends.registry import PEERS
        from tests.benchmarks.comparison.quality import Cost, quality
        from tests.benchmarks.comparison.race import Results, compare
        from tests.benchmarks.comparison.shapes import SHAPES
        from tests.benchmarks.comparison.work import KINDS, tasks_for

        every = {each.name: each for each in SHAPES}
        few = [name for name in every if not every[name].large]
        names = _listed(shape, "--shape", list(every)) or (few if quick else list(every))
        kinds = _listed(only, "--only", [*KINDS, "quality"])
        kinds = kinds or list(_QUICK_KINDS if quick else (*KINDS, "quality"))
        sizes = [int(size) for size in _listed(batch, "--batch", None)] or ([1] if quick else [])
        settings, said = settings_from_flags(device, None, threads), _with_time(print_note)
        where = _computing(settings.device)
        if where != "cpu":  # what is counted is the process's own memory, not the GPU's
            kinds = [kind for kind in kinds if kind != "memory"]
        work = {every[name]: tasks_for(every[name], kinds, sizes) for name in names}
        form = report.markdown if markdown else report.text
        found, costs = Results(()), list[Cost]()
        try:
            for one, tasks in work.items():
                if tasks:
                    found += compare(
                        {one: tasks},
                        PEERS,
                        rounds=rounds or 3,
                        device=where,
                        threads=_counts(settings.threads),
                        said=said,
                    )
            if "quality" in kinds:
                costs += quality(data, settings.device, settings.threads, said)
        finally:  # Ctrl-C in the third shape does not cost the first two
            if found.figures or costs:
                typer.echo((report.to_json if as_json else form)(found, costs))


@app.command()
def engine(
    markdown: Markdown = False,
    tokens: Annotated[int, typer.Option(min=1, max=400, help="New tokens in each run.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Runs, of which medians are shown.")] = 5,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Encoding and decoding against transformers, on random weights of true shape.

    Takes a minute or two.
    """
    with exit_with_code(debug):
        from tests.benchmarks.comparison import versus_transformers as report
        from tests.benchmarks.comparison.race import compare

        settings = settings_from_flags("cpu", None, threads)
        found = compare(
            report.work(tokens),
            report.ENTRANTS,
            rounds=rounds,
            device="cpu",
            threads=_counts(settings.threads),
            said=print_note,
        ).figures
        if markdown:
            typer.echo(f"{report.markdown(found)}\n\n{report.conditions(tokens, rounds)}")
        else:
            print_table(report.table(found))
            results_console().print(report.conditions(tokens, rounds))


def _listed(wanted: str | None, option: str, known: list[str] | None) -> list[str]:
    """What is listed in an option. known: what there is; None for numbers from 1 on."""
    parts = [part.strip() for part in (wanted or "").split(",") if part.strip()]
    for part in parts:
        if not (part in known if known is not None else part.isdecimal() and int(part) > 0):
            allowed = ", ".join(known) if known is not None else "numbers from 1 on"
            raise OptionError(f"{option} takes {allowed}, not {part!r}")
    return parts


def _counts(threads: int | str) -> list[int] | None:
    return [threads] if isinstance(threads, int) else None


def _computing(device: str) -> str:
    """ "cpu" or "cuda" for what may be "auto"."""
    from pipelines.engine import Engine

    return Engine(device=device).device


def _with_time(said: Callable[[str], None]) -> Callable[[str], None]:
    """Notes that say when they were made."""
    began = time.perf_counter()
    return lambda message: said(f"{time.perf_counter() - began:4.0f} s  {message}")


if __name__ == "__main__":
    app()
