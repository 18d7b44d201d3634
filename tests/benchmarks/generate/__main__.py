"""Compares ways of decoding: `python -m tests.benchmarks.generate [FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgeapp.commands.options.common import (
    ComputeType,
    Debug,
    Device,
    Model,
    Threads,
    settings_from_flags,
)
from edgeapp.console import results_console
from edgeapp.exit_codes import exit_with_code
from edgeapp.model_pool import Drafts, ModelPool
from pipelines import OptionError, Translator
from tests.benchmarks.generate.methods import TranslationComparison, compare, table, to_json
from tests.benchmarks.generate.prompt import run_prompt
from tests.benchmarks.generate.recording import TranscriptionComparison, windows


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
        pool = ModelPool(settings)
        is_recording = file is not None and str(file) != "-" and _is_recording(file)
        if is_recording:
            pool.find_recognizer(model, "en" if model is None else None, drafts=Drafts(drafter))
        else:
            source, target = ("en", "de") if model is None else (None, None)
            pool.find_translator(model, source, target, Drafts(drafter))
        if file is not None and is_recording:
            audio_comparison = TranscriptionComparison(
                pool.transcriber(model, "en" if model is None else None, "transcribe"),
                pool.transcriber(drafter, None, "transcribe") if drafter else None,
                gamma=gamma,
                length=length,
                beams=beam_size,
            )
            runs = list(compare(audio_comparison, windows(audio_comparison.pipeline, file)))
        else:

            def load(name: str) -> Translator:
                return pool.translator(name, None, None)

            comparison = TranslationComparison(
                pool.translator(model, "en", "de") if model is None else load(model),
                load(drafter) if drafter else None,
                gamma=gamma,
                length=length,
                beams=beam_size,
            )
            if file is None and sys.stdin.isatty():
                run_prompt(comparison, results_console(), load)
                return
            text = sys.stdin.read() if file is None or str(file) == "-" else file.read_text("utf-8")
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            sources = [(line, comparison.encode(line)) for line in lines]
            runs = list(compare(comparison, sources))
        if as_json:
            typer.echo(to_json(runs))
        else:
            results_console().print(table(runs))


def _is_recording(file: Path) -> bool:
    """Whether a file is binary: audio files have a zero byte early on.

    Raises:
        OptionError: It is no file.
    """
    if not file.is_file():
        raise OptionError(f"{file} is no file")
    with file.open("rb") as opened:
        return b"\0" in opened.read(4096)


if __name__ == "__main__":
    typer.run(generate)
