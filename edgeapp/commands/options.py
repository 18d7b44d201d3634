"""Options that several commands have."""

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
    "chosen",
]

Model = Annotated[
    str | None,
    typer.Option("-m", "--model", help="A bundled or short name, a hub id, or a folder."),
]
Language = Annotated[
    str | None, typer.Option("-l", "--language", help="What is spoken; detected if not given.")
]
Task = Annotated[str, typer.Option("--task", help="transcribe, or translate into English.")]
TranslateTo = Annotated[
    str | None, typer.Option("--translate-to", help="Also translate into this language: de.")
]
TranslationModel = Annotated[
    str | None, typer.Option("--translation-model", help="The model for --translate-to.")
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
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def chosen(device: str | None, compute_type: str | None, threads: str | None) -> Settings:
    """The settings with what the flags say on top. Raises OptionError."""
    settings = load_settings()
    return replace(
        settings,
        device=device or settings.device,
        compute_type=compute_type or settings.compute_type,
        threads=parse_threads(threads) if threads else settings.threads,
    )
