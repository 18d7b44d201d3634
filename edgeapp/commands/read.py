"""`edgeapp read`: pictures → text."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgeapp.batch.find_inputs import PICTURE_SUFFIXES, find_inputs, read_list
from edgeapp.commands.options.batch import (
    FromList,
    Overwrite,
    end_without_files,
    open_journal,
)
from edgeapp.commands.options.common import (
    COMPUTING,
    DECODING,
    INPUT_OUTPUT,
    LANGUAGES,
    Debug,
    Device,
    Model,
    ModelDirectory,
    Threads,
    TranslateTo,
    TranslationModel,
    known_language,
    settings_from_flags,
    use_model_directory,
)
from edgeapp.commands.options.completion import complete_languages
from edgeapp.exit_codes import exit_with_code
from pipelines import OptionError

__all__ = ["read"]


def read(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE", help="Pictures, folders of them, or quoted patterns; - reads stdin."
        ),
    ] = None,
    model: Model = None,
    model_dir: ModelDirectory = None,
    lines: Annotated[
        Literal["auto", "find", "whole"],
        typer.Option(
            help="find: each line of text by itself, for the bundled reader and TrOCR; whole: the "
            "picture at once, for documents and captions; auto: by the model.",
            case_sensitive=False,
            rich_help_panel=DECODING,
        ),
    ] = "auto",
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Text that the model begins with: the task of a Donut model, or a caption.",
            metavar="TEXT",
            rich_help_panel=DECODING,
        ),
    ] = None,
    beam_size: Annotated[
        int, typer.Option(min=1, help="Number of beams; 1 is greedy.", rich_help_panel=DECODING)
    ] = 1,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Lines that are read in parallel.", rich_help_panel=COMPUTING)
    ] = 8,
    source: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--from",
            help="Language of the text, for --translate-to.",
            metavar="LANGUAGE",
            rich_help_panel=LANGUAGES,
            autocompletion=complete_languages,
        ),
    ] = None,
    translate_to: TranslateTo = None,
    translation_model: TranslationModel = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder for a file of each picture (page.txt); default: stdout.",
            metavar="FOLDER",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    from_list: FromList = None,
    overwrite: Overwrite = False,
    format: Annotated[
        Literal["text", "json"],
        typer.Option(
            help="json: one object a picture, with the score and place of each line.",
            case_sensitive=False,
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = "text",
    device: Device = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Read pictures: printed lines with the bundled reader or TrOCR, documents (Donut), captions
    (BLIP, GIT, ViT-GPT2).

    Lines are found on upright pages of one column. The models are run by transformers. Pictures
    whose text is in FOLDER already are skipped; a file of another picture is not replaced.
    """
    with exit_with_code(debug):
        if source in ("text", "json"):
            raise OptionError(f"-f {source}: here -f is the language; write --format {source}")
        source_code = known_language(source, "--from")
        target = known_language(translate_to, "--translate-to")
        listed = read_list(from_list) if from_list else []
        inputs = find_inputs([*(files or ()), *listed], PICTURE_SUFFIXES)
        if not inputs:
            raise OptionError("name the pictures to read: files, folders or patterns")
        settings = settings_from_flags(device, None, threads)
        use_model_directory(model_dir)
        from edgeapp.model_pool import ModelPool
        from pipelines import ReadOptions

        options = ReadOptions(
            lines=lines, prompt=prompt, beam_size=beam_size, batch_size=batch_size
        )
        pool = ModelPool(settings)
        pool.find_reader(model)
        if target is not None:
            pool.find_translator(translation_model, source_code, target)
        end_without_files(inputs, "lines", debug=debug)
        from edgeapp.batch.picture_runner import PictureRunner
        from edgeapp.batch.result_writer import ResultWriter

        translator = None
        if target is not None:
            translator = pool.translator(translation_model, source_code, target)
        reader = pool.reader(model)
        with ExitStack() as stack:
            journal = open_journal(stack, settings, wanted=output is not None)
            writer = ResultWriter(journal, overwrite)
            runner = PictureRunner(
                reader, options, translator, target, format, output, writer, debug
            )
            code = runner.run(inputs)
        raise typer.Exit(code)
