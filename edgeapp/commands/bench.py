"""`edgeapp bench`: our engine and transformers side by side on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeapp.commands.shared import Debug, Threads, chosen
from edgeapp.outcome import ending
from edgeapp.terminal import note, results
from pipelines.errors import OptionError

__all__ = ["bench"]


def bench(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as the README has it.")
    ] = False,
    tokens: Annotated[int, typer.Option(min=1, max=400, help="New tokens in each run.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Runs, of which medians are shown.")] = 5,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Time encoding and decoding against transformers, on random weights of true shape.

    Needs the extra `bench`: pip install 'edgeapp[bench]'. Takes a minute or two.
    """
    with ending(debug):
        settings = chosen("cpu", None, threads)
        try:
            from edgeapp.bench.comparison import compare
            from edgeapp.bench.report import conditions, table
            from edgeapp.bench.report import markdown as as_markdown
        except ModuleNotFoundError as error:
            if error.name != "transformers":
                raise
            raise OptionError(
                "the benchmark compares with transformers, which is not installed: "
                "pip install 'edgeapp[bench]'"
            ) from None
        from pipelines.engine import Engine

        used = Engine(device="cpu", threads=settings.threads).threads
        figures = compare(used, tokens, rounds, note)
        if markdown:
            typer.echo(f"{as_markdown(figures)}\n\n{conditions(tokens, rounds)}")
        else:
            console = results()
            console.print(table(figures))
            console.print(conditions(tokens, rounds))
