"""Command-line options that several commands share, and the values of options."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgeapp.commands.options.command import SWITCH
from edgeapp.commands.options.completion import complete_languages, complete_models
from edgeapp.settings import Settings, load_settings, parse_threads
from pipelines import OptionError

if TYPE_CHECKING:
    from edgeapp.model_pool import Drafts

__all__ = [
    "CAPTIONS",
    "COMPUTING",
    "DECODING",
    "INPUT_OUTPUT",
    "LANGUAGES",
    "MODELS",
    "OPTIONAL_FLOAT",
    "OPTIONAL_INT",
    "OTHER",
    "SILENCE",
    "SWITCHED",
    "WORDS",
    "ComputeType",
    "Debug",
    "Device",
    "Draft",
    "DraftModel",
    "Model",
    "ModelDirectory",
    "NoDownload",
    "Switch",
    "Threads",
    "TranslateTo",
    "TranslationModel",
    "drafts_from_flags",
    "known_language",
    "optional_float",
    "optional_prompt",
    "optional_text",
    "settings_from_flags",
    "use_model_directory",
]

# Titles of the groups of options in the help.
MODELS, LANGUAGES, INPUT_OUTPUT, CAPTIONS = "Models", "Languages", "Input and output", "Captions"
DECODING, SILENCE, WORDS = "Decoding", "Silence", "Words and subtitles"
COMPUTING, OTHER = "Computing", "Other"

Switch = Literal["True", "False"]

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
# Groups of languages, as OPUS-MT models name them.
_GROUPS = frozenset({"ROMANCE", "SCANDINAVIA", "NORTH_EU", "CELTIC", "mul"})
_COMPUTE_TYPES = ("auto", "float32", "bfloat16", "float16", "int8")


def optional_int(text: str | int | None) -> int | None:
    """A whole number; "None" is no number, as in openai-whisper.

    Raises:
        typer.BadParameter: The text is neither.
    """
    if text is None or isinstance(text, int):
        return text
    try:
        return None if text.strip().lower() == "none" else int(text)
    except ValueError:
        raise typer.BadParameter(f"takes a whole number or None, not {text!r}") from None


def optional_float(text: str | float | None) -> float | None:
    """A number; "None" is no number, as in openai-whisper.

    Raises:
        typer.BadParameter: The text is neither.
    """
    if text is None or isinstance(text, int | float):
        return text
    try:
        return None if text.strip().lower() == "none" else float(text)
    except ValueError:
        raise typer.BadParameter(f"takes a number or None, not {text!r}") from None


def optional_text(text: str | None) -> str | None:
    """A name; "None" and "auto" leave the choice to the program."""
    return None if text is None or text.strip().lower() in ("", "none", "auto") else text


def optional_prompt(text: str | None) -> str | None:
    """A text for the model; "None" is none, as Python prints it into scripts."""
    return None if text == "None" else text


# Settings of options that take a number or None, and of switches.
OPTIONAL_INT: dict[str, Any] = {"parser": optional_int, "metavar": "N|None"}
OPTIONAL_FLOAT: dict[str, Any] = {"parser": optional_float, "metavar": "NUMBER|None"}
SWITCHED: dict[str, Any] = {"metavar": SWITCH, "case_sensitive": False}


def _compute_type(text: str) -> str:
    """A compute type; "default" is faster-whisper's word for "auto"."""
    plain = text.strip().lower()
    if plain == "default":
        return "auto"
    if plain not in _COMPUTE_TYPES:
        raise typer.BadParameter(f"takes {', '.join(_COMPUTE_TYPES)}, not {text!r}")
    return plain


def _threads(text: str) -> str:
    """A number of threads; 0 and "None" are "auto", as in openai-whisper."""
    plain = text.strip().lower()
    if plain in ("0", "none", "auto"):
        return "auto"
    try:
        parse_threads(plain)
    except OptionError as error:
        raise typer.BadParameter(str(error)) from None
    return plain


Model = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--model",
        help="A bundled or short name, a Hugging Face id, or a folder. Default: the best here.",
        rich_help_panel=MODELS,
        autocompletion=complete_models,
    ),
]
ModelDirectory = Annotated[
    Path | None,
    typer.Option(
        "--model-dir",
        help="Folder in which models are looked for, instead of the Hugging Face cache.",
        rich_help_panel=MODELS,
    ),
]
NoDownload = Annotated[
    bool,
    typer.Option(
        "--no-download",
        help="Do not ask whether a recognizer is to be downloaded if none is here.",
        rich_help_panel=MODELS,
    ),
]
TranslateTo = Annotated[
    str | None,
    typer.Option(
        "--translate-to",
        help="Also translate into this language, such as de.",
        rich_help_panel=LANGUAGES,
        metavar="LANGUAGE",
        autocompletion=complete_languages,
    ),
]
TranslationModel = Annotated[
    str | None,
    typer.Option(
        "--translation-model",
        help="Model for --translate-to.",
        rich_help_panel=MODELS,
        autocompletion=complete_models,
    ),
]
DraftModel = Annotated[
    str | None,
    typer.Option(
        "--draft-model",
        help="Smaller model of the same vocabulary that proposes words: the same text, sooner.",
        rich_help_panel=MODELS,
        metavar="MODEL",
        autocompletion=complete_models,
    ),
]
Draft = Annotated[
    Literal["ngram"] | None,
    typer.Option(
        "--draft",
        help="ngram: propose what followed the same words before; for texts that repeat.",
        case_sensitive=False,
        rich_help_panel=MODELS,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="The CPU or GPU that computes.",
        show_default="auto",
        metavar="[auto|cpu|cuda|cuda:N]",
        rich_help_panel=COMPUTING,
        autocompletion=lambda: ["auto", "cpu", "cuda"],
    ),
]
ComputeType = Annotated[
    str | None,
    typer.Option(
        "--compute-type",
        "--precision",
        help="Number format of the weights and the arithmetic.",
        show_default="auto",
        parser=_compute_type,
        metavar=f"[{'|'.join(_COMPUTE_TYPES)}]",
        rich_help_panel=COMPUTING,
        autocompletion=lambda: list(_COMPUTE_TYPES),
    ),
]
Threads = Annotated[
    str | None,
    typer.Option(
        "--threads",
        help="CPU threads: a number, or auto (also 0).",
        show_default="auto",
        parser=_threads,
        metavar="[auto|N]",
        rich_help_panel=COMPUTING,
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of errors.", rich_help_panel=OTHER)
]


def settings_from_flags(
    device: str | None,
    compute_type: str | None,
    threads: str | None,
    *,
    no_download: bool = False,
    device_hint: str = "",
) -> Settings:
    """The settings, overridden by the flags that were given.

    Args:
        device: Value of --device.
        compute_type: Value of --compute-type.
        threads: Value of --threads.
        no_download: Value of --no-download.
        device_hint: Appended to the error for a device that is none.

    Raises:
        OptionError: A setting or a flag is invalid.
    """
    settings = load_settings()
    if device is not None:
        device = device.strip().lower() if _DEVICE.fullmatch(device.strip().lower()) else device
        if not _DEVICE.fullmatch(device):
            raise OptionError(
                f"--device is the CPU or GPU that computes: auto, cpu, cuda or cuda:N, not "
                f"{device!r}{device_hint}"
            )
    return replace(
        settings,
        device=device or settings.device,
        compute_type=compute_type or settings.compute_type,
        threads=parse_threads(threads) if threads else settings.threads,
        ask_to_download=settings.ask_to_download and not no_download,
    )


def drafts_from_flags(model: str | None, kind: Literal["ngram"] | None) -> Drafts:
    """What drafts: the values of --draft-model and --draft.

    Raises:
        OptionError: Both are given.
    """
    from edgeapp.model_pool import Drafts

    if model is not None and kind is not None:
        raise OptionError("--draft-model and --draft exclude each other")
    return Drafts(model, kind)


def known_language(text: str | None, flag: str) -> str | None:
    """The code of a language that was given on the command line, such as "de" for "German".

    A code of three letters, or with a script or region, is left to the model.

    Args:
        text: The value of the option, or None.
        flag: The option, for the message.

    Raises:
        OptionError: It is no language.
    """
    from edgeapp.model_pool import language_code_of
    from pipelines import LANGUAGES
    from pipelines.languages import is_one_language

    if text is None:
        return None
    code = language_code_of(text)
    language = re.split("[-_]", code.strip().removeprefix(">>").removesuffix("<<"))[0]
    named = code in LANGUAGES or is_one_language(language) or language in _GROUPS
    if not named and not re.fullmatch("[a-z]{3}", language):
        raise OptionError(f"{flag} {text}: unknown language; give a code (de) or a name (German)")
    return code


def use_model_directory(folder: Path | None, *, new: bool = False) -> None:
    """Look for models in another folder than the Hugging Face cache, in this process.

    Args:
        folder: The folder, or None for the cache.
        new: It need not exist: models are downloaded into it.

    Raises:
        OptionError: It is no folder.
    """
    from pipelines.hub import use_cache_folder

    if folder is not None and not folder.is_dir() and not (new and not folder.exists()):
        raise OptionError(f"--model-dir {folder} is no folder")
    use_cache_folder(folder)
