"""`edgeapp bench`: how fast models are on this machine, and how late live captions."""

from __future__ import annotations

import sys
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
from pipelines import OptionError

if TYPE_CHECKING:
    from rich.table import Table

    from pipelines import Translator

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
def generate(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Texts, one per line (- reads stdin), or a recording. Default on a terminal: an "
            "interactive prompt."
        ),
    ] = None,
    model: Model = None,
    drafter: Annotated[
        str | None, typer.Option("--drafter", help="Draft model: smaller, same vocabulary.")
    ] = None,
    gamma: Annotated[int, typer.Option(min=1, help="Draft tokens per step.")] = 5,
    length: Annotated[int, typer.Option(min=1, help="Maximum number of new tokens.")] = 64,
    beam_size: Annotated[int, typer.Option("--beam-size", min=2, help="Number of beams.")] = 4,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Compare plain, uncached, beam, speculative and n-gram decoding.

    All methods decode the same texts, or the same recording window by window with a Whisper
    model; --drafter is then a Whisper model too. Speculative decoding yields the same tokens as
    plain decoding in float32 only: --compute-type float32.
    """
    with exit_with_code(debug):
        settings = settings_from_flags(device, compute_type, threads)
        from edgeapp.model_pool import Drafts, ModelPool

        pool = ModelPool(settings)
        is_recording = file is not None and str(file) != "-" and _is_recording(file)
        if is_recording:
            pool.find_recognizer(model, "en" if model is None else None, drafts=Drafts(drafter))
        else:
            source, target = ("en", "de") if model is None else (None, None)
            pool.find_translator(model, source, target, Drafts(drafter))
        from edgeapp.bench import generate as bench

        if file is not None and is_recording:
            from edgeapp.bench.generate_audio import TranscriptionComparison, windows

            audio_comparison = TranscriptionComparison(
                pool.transcriber(model, "en" if model is None else None, "transcribe"),
                pool.transcriber(drafter, None, "transcribe") if drafter else None,
                gamma=gamma,
                length=length,
                beams=beam_size,
            )
            runs = list(bench.compare(audio_comparison, windows(audio_comparison.pipeline, file)))
        else:

            def load(name: str) -> Translator:
                return pool.translator(name, None, None)

            comparison = bench.TranslationComparison(
                pool.translator(model, "en", "de") if model is None else load(model),
                load(drafter) if drafter else None,
                gamma=gamma,
                length=length,
                beams=beam_size,
            )
            if file is None and sys.stdin.isatty():
                from edgeapp.bench.generate_prompt import run_prompt

                run_prompt(comparison, results_console(), load)
                return
            text = sys.stdin.read() if file is None or str(file) == "-" else file.read_text("utf-8")
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            sources = [(line, comparison.encode(line)) for line in lines]
            runs = list(bench.compare(comparison, sources))
        if as_json:
            typer.echo(bench.to_json(runs))
        else:
            results_console().print(bench.table(runs))


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


def _is_recording(file: Path) -> bool:
    """Whether a file is binary: audio files have a zero byte early on.

    Raises:
        OptionError: It is no file.
    """
    if not file.is_file():
        raise OptionError(f"{file} is no file")
    with file.open("rb") as opened:
        return b"\0" in opened.read(4096)
