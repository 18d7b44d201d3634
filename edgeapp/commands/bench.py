"""`edgeapp bench`: what this machine makes of it, in tables for the terminal and the README."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from edgeapp.commands.options import ComputeType, Debug, Device, Model, Threads, chosen
from edgeapp.console import print_note, results_console
from edgeapp.exit_codes import EXIT_CODES, exit_with_code
from pipelines import OptionError

if TYPE_CHECKING:
    from rich.table import Table

    from pipelines import Translator

__all__ = ["Markdown", "app", "print_table"]

_POLICIES = ("agreement", "attention")
_TABLE_WIDTH = 120  # what the widest table takes; cut cells would be of no use in a file

Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")]


app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.command(epilog=EXIT_CODES)
def generate(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A text a line, - is stdin, none on a terminal: a prompt; or a recording."
        ),
    ] = None,
    model: Model = None,
    drafter: Annotated[
        str | None, typer.Option("--drafter", help="A smaller model of the same vocabulary.")
    ] = None,
    gamma: Annotated[int, typer.Option(min=1, help="Tokens guessed at once.")] = 5,
    length: Annotated[int, typer.Option(min=1, help="New tokens at most.")] = 64,
    beam_size: Annotated[int, typer.Option("--beam-size", min=2, help="Beams.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="One object instead of a table.")] = False,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Plain, uncached, beam, speculative and n-gram decoding of the same texts or recording.

    A recording goes to a Whisper model, window by window; --drafter may then be another.
    Speculation equals plain decoding token for token in float32 only: --compute-type float32.
    """
    with exit_with_code(debug):
        settings = chosen(device, compute_type, threads)
        from edgeapp.bench import generate as bench
        from edgeapp.model_pool import ModelPool

        pool = ModelPool(settings)
        if file is not None and str(file) != "-" and _is_recording(file):
            from edgeapp.bench.generate_audio import AudioSession, windows

            heard = AudioSession(
                pool.transcriber(model, "en" if model is None else None, "transcribe"),
                pool.transcriber(drafter, None, "transcribe") if drafter else None,
                gamma=gamma,
                length=length,
                beams=beam_size,
            )
            runs = list(bench.compare(heard, windows(heard.tool, file)))
        else:

            def load(name: str) -> Translator:
                return pool.translator(name, None, None)

            session = bench.Session(
                pool.translator(model, "en", "de") if model is None else load(model),
                load(drafter) if drafter else None,
                gamma=gamma,
                length=length,
                beams=beam_size,
            )
            if file is None and sys.stdin.isatty():
                from edgeapp.bench.generate_prompt import converse

                converse(session, results_console(), load)
                return
            text = sys.stdin.read() if file is None or str(file) == "-" else file.read_text("utf-8")
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            runs = list(bench.compare(session, [(line, session.read(line)) for line in lines]))
        if as_json:
            typer.echo(bench.to_json(runs))
        else:
            results_console().print(bench.table(runs))


@app.command(epilog=EXIT_CODES)
def live(
    recording: Annotated[
        Path | None,
        typer.Argument(
            help="With NAME.words.tsv beside it (start, end, word). Default: the bundled story."
        ),
    ] = None,
    model: Model = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="agreement or attention. Default: both.")
    ] = None,
    min_chunk: Annotated[
        float | None, typer.Option("--min-chunk", help="Seconds of new audio between two updates.")
    ] = None,
    markdown: Markdown = False,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Live captions of a recording, played in real time: lags, and what updates cost.

    With the bundled recording it takes two and a half minutes.
    """
    with exit_with_code(debug):
        if policy not in (None, *_POLICIES):
            raise OptionError(f"--policy takes agreement or attention, not {policy!r}")
        settings = chosen(device, compute_type, threads)
        from edgeapp.bench import captions_report as report
        from edgeapp.bench.captions import TimingEngine, caption
        from edgeapp.bench.word_lag import read_recording
        from pipelines import LiveOptions, Transcriber
        from pipelines.hub import assets_folder, choose_default, resolve

        heard = read_recording(recording or assets_folder() / "samples" / "story.flac")
        found = (
            resolve(model) if model else choose_default("asr", "en", None, preferred=settings.model)
        )
        if found.note:
            print_note(found.note)
        timing = TimingEngine(settings.device, settings.compute_type, settings.threads)
        transcriber = Transcriber(found.folder, engine=timing)
        options = LiveOptions() if min_chunk is None else LiveOptions(min_chunk_s=min_chunk)
        figures = []
        for name in (policy,) if policy else _POLICIES:
            chosen_policy = replace(options, policy=cast(Literal["agreement", "attention"], name))
            figures.append(caption(timing, transcriber, heard, chosen_policy, print_note))
        conditions = report.conditions(heard, transcriber, options.min_chunk_s)
        if markdown:
            typer.echo(f"{report.markdown(figures)}\n\n{conditions}")
        else:
            print_table(report.table(figures))
            results_console().print(conditions)


def print_table(shown: Table) -> None:
    """With all of its columns, however narrow the terminal or where there is none."""
    console = results_console()
    console.width = max(console.width, _TABLE_WIDTH)
    console.print(shown)


def _is_recording(file: Path) -> bool:
    """Whether a file holds no text: audio files hold zeros early on."""
    if not file.is_file():
        raise OptionError(f"{file} is no file")
    with file.open("rb") as opened:
        return b"\0" in opened.read(4096)
