"""`edgeapp translate`: text → text, line by line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from edgeapp.batch.outputs import check_no_collisions, plan_translations
from edgeapp.batch.translation_job import LineTranslator, TranslationJob
from edgeapp.commands.options import (
    ComputeType,
    Debug,
    Device,
    Model,
    Threads,
    settings_from_flags,
)
from edgeapp.console import print_note
from edgeapp.exit_codes import DONE, exit_code_of, exit_with_code, print_error
from pipelines import OptionError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translator

__all__ = ["translate"]


class _Format(StrEnum):
    TEXT = "text"
    TSV = "tsv"
    JSON = "json"


def translate(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Text files; none or - reads stdin."),
    ] = None,
    model: Model = None,
    source: Annotated[
        str | None, typer.Option("-f", "--from", help="Language of the text, such as en.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--to",
            help="Language to translate into: a code such as de, or a code of the model such as "
            "zho_Hant.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", help="Output file; a folder for several inputs (talk.de.txt)."
        ),
    ] = None,
    document: Annotated[
        bool,
        typer.Option("--document", help="Join wrapped lines; each paragraph becomes one line."),
    ] = False,
    beam_size: Annotated[
        int, typer.Option("--beam-size", help="Number of beams; 1 is greedy and faster.")
    ] = 1,
    format: Annotated[
        _Format,
        typer.Option(
            "--format",
            help="text; tsv (source, tab, translation); json (one object per line).",
        ),
    ] = _Format.TEXT,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Add the word alignment as source-target pairs: 0-0 1-2 (after ||| in text; "
            "words are separated by spaces).",
        ),
    ] = False,
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Restrict the output to the vocabulary of the target language: faster, for "
            "models with one vocabulary per language.",
        ),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            min=1,
            help="Number of processes, each with a copy of the model and a share of the threads; "
            "for long files on a CPU.",
        ),
    ] = 1,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Translate text: exactly one output line for each input line, in every format.

    Each line is written as soon as it is translated. With -o, an interrupted run keeps its lines
    in a file that ends with .part; the same command resumes there if its input is a regular file.
    """
    with exit_with_code(debug):
        inputs = files or ["-"]
        names = plan_translations(inputs, output)
        settings = settings_from_flags(device, compute_type, threads)
        if inputs == ["-"] and sys.stdin.isatty():
            print_note("reading from the terminal; press Ctrl-D to end")
        from edgeapp.model_pool import ModelPool, language_code_of
        from pipelines import TranslateOptions

        source_code = source and language_code_of(source)
        target_code = target and language_code_of(target)
        translator = ModelPool(settings).translator(model, source_code, target_code, shortlist)
        source, target = _with_region(source, source_code), _with_region(target, target_code)
        options = TranslateOptions(
            target=target if translator.target_codes else None,
            source_language=source,
            beam_size=beam_size,
            word_alignments=alignments,
        )
        _check_languages(translator, options)
        suffix = target or translator.target_language or "translated"
        targets = [None if name is None else name(suffix) for name in names]
        check_no_collisions([path for path in targets if path is not None], inputs)
        code = DONE
        with _line_translator(translator, workers) as line_translator:
            for name, path in zip(inputs, targets, strict=True):
                job = TranslationJob(
                    line_translator, translator, options, name, document, format.value
                )
                try:
                    job.run(path)
                except BrokenPipeError:
                    raise  # stdout is closed, for the remaining inputs too
                except Exception as error:  # a failed input does not stop the remaining ones
                    print_error(error, "stdin" if name == "-" else name, debug)
                    code = max(code, exit_code_of(error))
        raise typer.Exit(code)


@contextmanager
def _line_translator(translator: Translator, workers: int) -> Iterator[LineTranslator]:
    """The translator itself, or `workers` processes that share its threads. Raises OptionError."""
    if workers == 1:
        yield translator
        return
    from pipelines import ParallelTranslator

    threads = max(1, translator.engine.threads // workers)
    with ParallelTranslator(translator, workers, threads) as parallel:
        yield parallel


def _check_languages(translator: Translator, options: TranslateOptions) -> None:
    """Raise for languages that are missing or that the model lacks, before any input is read.

    Raises:
        UnsupportedTask: The model does not translate from or into the language.
        OptionError: The model needs --from.
    """
    source = options.source_language or translator.source or translator.source_language
    if translator.source_codes and not source:
        raise OptionError(
            f"{translator.name} needs the language of the text: name it with --from, such as "
            f"--from en; it has {', '.join(translator.source_codes)}"
        )
    # A missing target is no error yet: each line may name its own (">>deu<< Good morning.").
    translator.translate_lines([], options)


def _with_region(text: str | None, code: str | None) -> str | None:
    """The code of a language, or the given text where it names a region or script (zho_Hant)."""
    if text is None or code is None or not set("-_") & set(text.strip()):
        return code
    return text.strip()
