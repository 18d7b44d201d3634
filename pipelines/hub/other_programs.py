"""Models that other programs have put on this machine: where they lie, and by which names.

faster-whisper keeps folders of CTranslate2 in the Hugging Face cache, openai-whisper .pt files in
~/.cache/whisper, pywhispercpp and whisper.cpp ggml files, Argos Translate packages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

from pipelines.families import Task
from pipelines.hub.cache import snapshots
from pipelines.hub.foreign import holds_foreign_model

# Repositories of faster-whisper's models; {} is the size as in openai/whisper-{}.
_REPOSITORIES = (
    "Systran/faster-whisper-{}",
    "Systran/faster-{}",  # distil-whisper-large-v3
    "mobiuslabsgmbh/faster-whisper-{}",
    "deepdml/faster-whisper-{}-ct2",
    "distil-whisper/{}-ct2",  # distil-large-v3.5
)
_ALIASES = {"turbo": "large-v3-turbo", "large": "large-v3"}
_PAIR = re.compile(r"opus-mt-([a-z]{2,3})-([a-z]{2,3})")
_PACKAGE = re.compile(r"translate-([a-z]{2,3})_([a-z]{2,3})-.*")
_GGML = re.compile(r"ggml-(.+)\.bin")


@dataclass(frozen=True)
class OtherModel:
    """A model of another program.

    Attributes:
        name: As `resolve` accepts it, such as "base" or "opus-mt-en-de".
        task: "asr" or "translation".
        tool: The program.
        path: Its file or folder.
    """

    name: str
    task: Task
    tool: str
    path: Path


def find_elsewhere(name: str) -> OtherModel | None:
    """A model that another program has under a short name; the first of several."""
    name = name.removeprefix("whisper-")
    name = _ALIASES.get(name, name)
    if pair := _PAIR.fullmatch(name):
        return next(
            (m for m in _argos_packages() if m.name == f"opus-mt-{pair[1]}-{pair[2]}"), None
        )
    places = [("faster-whisper", path) for path in _faster_whisper(name)]
    places.append(("openai-whisper", _openai_folder() / f"{name}.pt"))
    places += [("whisper.cpp", folder / f"ggml-{name}.bin") for folder in _ggml_folders()]
    for tool, path in places:
        if _exists(path) and holds_foreign_model(path):
            return OtherModel(name, "asr", tool, path)
    return None


def other_models() -> Iterator[OtherModel]:
    """All models of other programs outside the Hugging Face cache, each by its name."""
    for path in _files(_openai_folder(), "*.pt"):
        yield OtherModel(path.stem, "asr", "openai-whisper", path)
    for folder in _ggml_folders():
        for path in _files(folder, "ggml-*.bin"):
            match = _GGML.fullmatch(path.name)
            if match and holds_foreign_model(path):
                yield OtherModel(match[1], "asr", "whisper.cpp", path)
    yield from _argos_packages()


def _faster_whisper(name: str) -> Iterator[Path]:
    """The folders of a size in the Hugging Face cache."""
    sizes = (name, name.replace("distil-", "distil-whisper-", 1))
    for repository in _REPOSITORIES:
        for size in dict.fromkeys(sizes):
            yield from snapshots(repository.format(size))


def _openai_folder() -> Path:
    return user_cache_path("whisper")


def _ggml_folders() -> tuple[Path, ...]:
    return user_data_path("pywhispercpp") / "models", Path("~/whisper.cpp/models").expanduser()


def _argos_packages() -> Iterator[OtherModel]:
    for path in _files(_argos_folder(), "*"):
        # Packages have been named en_de and translate-en_de-1_0.
        match = _PACKAGE.fullmatch(path.name) or _PACKAGE.fullmatch(f"translate-{path.name}-")
        if match and holds_foreign_model(path):
            yield OtherModel(
                f"opus-mt-{match[1]}-{match[2]}", "translation", "Argos Translate", path
            )


def other_folders() -> tuple[Path, ...]:
    """The folders of other programs' models outside the Hugging Face cache; some may be missing."""
    return _openai_folder(), *_ggml_folders(), _argos_folder()


def _argos_folder() -> Path:
    chosen = os.environ.get("ARGOS_PACKAGES_DIR")
    return Path(chosen) if chosen else user_data_path("argos-translate") / "packages"


def _files(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:  # such as a folder without permission
        return []


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
