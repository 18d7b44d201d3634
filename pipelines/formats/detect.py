"""Which program a file or folder comes from, and the model in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.formats.described import GGML_MAGIC, GGUF_MAGIC, ForeignModel
from pipelines.json_files import read_json_object


def is_argos_package(folder: Path) -> bool:
    """Whether a folder is an unpacked package of Argos Translate."""
    return (folder / "metadata.json").is_file() and (folder / "model" / "model.bin").is_file()


def is_foreign(path: Path) -> bool:
    """Whether a file or folder looks like a model of another program; its content is not read
    beyond the first bytes."""
    try:
        if path.is_dir():
            return (path / "model.bin").is_file() or is_argos_package(path)
        return path.suffix == ".pt" or _magic(path) in (GGML_MAGIC, GGUF_MAGIC)
    except OSError:
        return False


def foreign_model(path: Path) -> ForeignModel:
    """The model in a file or folder for which `is_foreign` holds.

    Raises:
        CheckpointError: It is damaged, or of a kind that the engine does not run.
    """
    from pipelines.formats.whisper_model import ggml_whisper, gguf_whisper, pt_whisper

    if path.is_dir():
        return _folder(path)
    magic = _magic(path)
    if magic == GGML_MAGIC:
        return ggml_whisper(path)
    return gguf_whisper(path) if magic == GGUF_MAGIC else pt_whisper(path)


def _folder(folder: Path) -> ForeignModel:
    from pipelines.formats.ctranslate2 import read_ctranslate2
    from pipelines.formats.translation_model import ctranslate2_translation
    from pipelines.formats.whisper_model import ctranslate2_whisper

    languages, tool = None, "CTranslate2"
    if is_argos_package(folder):
        stated = read_json_object(folder / "metadata.json")
        languages, tool = _languages(stated, folder), "Argos Translate"
        folder = folder / "model"
    file = read_ctranslate2(folder / "model.bin")
    if file.spec == "WhisperSpec":
        return ctranslate2_whisper(file, folder)
    if file.spec in ("TransformerSpec", "TransformerBase", "TransformerBig"):
        return ctranslate2_translation(file, folder, languages, tool)
    raise CheckpointError(
        f"{folder} holds a {file.spec[:40]!r} of CTranslate2; Whisper and translation models run "
        "here"
    )


def _languages(stated: dict[str, Any], folder: Path) -> tuple[str, str]:
    codes = stated.get("from_code"), stated.get("to_code")
    if not all(isinstance(code, str) and code for code in codes):
        raise CheckpointError(f"{folder / 'metadata.json'} does not state from_code and to_code")
    return str(codes[0]), str(codes[1])


def _magic(path: Path) -> int:
    """The first four bytes of a file; 0 where it is no regular file."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return int.from_bytes(file.read(4), "little")
