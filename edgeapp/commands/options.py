"""Command-line options that several commands share."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from edgeapp.settings import Settings, load_settings, parse_threads

__all__ = [
    "ComputeType",
    "Debug",
    "Device",
    "Language",
    "Model",
    "Task",
    "Threads",
    "TranslateTo",
    "TranslationModel",
    "settings_from_flags",
]

Model = Annotated[
    str | None,
    typer.Option(
        "-m", "--model", help="Model: a bundled or short name, a Hugging Face id, or a folder."
    ),
]
Language = Annotated[
    str | None, typer.Option("-l", "--language", help="Spoken language. Default: detected.")
]
Task = Annotated[str, typer.Option("--task", help="transcribe, or translate into English.")]
TranslateTo = Annotated[
    str | None,
    typer.Option("--translate-to", help="Also translate into this language, such as de."),
]
TranslationModel = Annotated[
    str | None, typer.Option("--translation-model", help="Model for --translate-to.")
]
Device = Annotated[
    str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N.", show_default="auto")
]
ComputeType = Annotated[
    str | None,
    typer.Option(
        "--compute-type",
        "--precision",
        help="auto, float32, bfloat16, float16 or int8.",
        show_default="auto",
    ),
]
Threads = Annotated[
    str | None,
    typer.Option("--threads", help="CPU threads: auto or a number.", show_default="auto"),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")]


def settings_from_flags(
    device: str | None, compute_type: str | None, threads: str | None
) -> Settings:
    """The settings, overridden by the flags that were given.

    Raises:
        OptionError: A setting or a flag is invalid.
    """
    settings = load_settings()
    return replace(
        settings,
        device=device or settings.device,
        compute_type=compute_type or settings.compute_type,
        threads=parse_threads(threads) if threads else settings.threads,
    )
