"""Names → folders, and the list of what is here. Looks only at this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.errors import CheckpointError, ModelError, ModelNotFound, OptionError
from pipelines.hub.assets import BUNDLED, Task, bundled_folder
from pipelines.hub.cache import (
    TASKS,
    cache_folder,
    cached_models,
    cached_snapshot,
    delete_cached,
    read_json,
    size_of,
    task_of,
    unusable,
)
from pipelines.hub.names import is_repository, repository_of, short_name, similar_names

__all__ = [
    "ModelInfo",
    "ResolvedModel",
    "folder_of",
    "list_models",
    "remove",
    "resolve",
    "resolved",
]

Source = Literal["bundled", "cache", "folder", "hub"]


@dataclass(frozen=True)
class ResolvedModel:
    """A model that can be loaded.

    name: what to call it; task: what it is for; folder: with config, tokenizer and weights.
    source: "bundled", "cache" (the Hugging Face cache), "folder" (given by its path), "hub"
        (downloaded just now).
    note: one line for the user where the choice needs explaining, else None.
    """

    name: str
    task: Task
    folder: Path
    source: Source
    note: str | None = None


@dataclass(frozen=True)
class ModelInfo:
    """A line of the list of models. repository: None for bundled models."""

    name: str
    task: Task
    size_bytes: int
    folder: Path
    source: Source
    repository: str | None


def resolve(name: str | os.PathLike[str]) -> ResolvedModel:
    """The model that a name means, if it is on this machine; nothing is downloaded.

    In this order: a bundled name; a short name (tiny … turbo, distil-…, opus-mt-en-de); a path; a
    hub id. A path is what has a folder there, starts with "." or "~", is absolute, or comes as a
    Path: a folder named like a model is written ./tiny.
    Raises ModelNotFound when it is not here (the message says where was looked, and what to run),
    CheckpointError when it is here and cannot be used.
    """
    text = os.fspath(name)
    if not text.strip():
        raise OptionError("the model's name is empty; give a name, a hub id or a folder")
    if not isinstance(name, str):
        return _local(text)
    if text in BUNDLED:
        return ResolvedModel(text, BUNDLED[text].task, bundled_folder(text), "bundled")
    repository = repository_of(text)
    if repository is None:
        if _is_path(text):
            return _local(text)
        if not is_repository(text):
            raise ModelNotFound(_unknown(text))
    return _cached(text, repository or text)


def folder_of(model: str | os.PathLike[str]) -> Path:
    """The folder of a model: a Path as it is, else what `resolve` finds and raises."""
    return resolve(model).folder if isinstance(model, str) else Path(model)


def resolved(
    repository: str, folder: Path, source: Source, note: str | None = None
) -> ResolvedModel:
    """A usable folder of a repository as a ResolvedModel."""
    task = task_of(folder)
    assert task is not None
    return ResolvedModel(short_name(repository), task, folder, source, note)


def list_models() -> list[ModelInfo]:
    """Every model on this machine that can be named: the bundled ones, then those in the cache."""
    models = []
    for name, bundled in BUNDLED.items():
        try:
            folder = bundled_folder(name)
        except ModelNotFound:
            continue
        models.append(ModelInfo(name, bundled.task, size_of(folder), folder, "bundled", None))
    for repository, folder in cached_models():
        model = resolved(repository, folder, "cache")
        size = size_of(folder)
        models.append(ModelInfo(model.name, model.task, size, folder, "cache", repository))
    return models


def remove(name: str) -> int:
    """Deletes a downloaded model from the cache, all of its revisions. Returns the freed bytes.

    Raises ModelError for what was not downloaded (bundled models, folders), ModelNotFound for what
    is not in the cache.
    """
    if name in BUNDLED:
        raise ModelError(f"{name} is part of the program and cannot be removed")
    repository = repository_of(name)
    if repository is None:
        if _is_path(name):
            raise ModelError(f"{name} is a folder of yours; delete it yourself if you want to")
        if not is_repository(name):
            raise ModelNotFound(_unknown(name))
        repository = name
    try:
        freed = delete_cached(repository)
    except OSError as error:
        raise ModelError(
            f"{repository} cannot be removed from {cache_folder()}: {error.strerror or error}"
        ) from error
    if not freed:
        raise ModelNotFound(f"nothing to remove: {repository} is not in {cache_folder()}")
    return freed


def _is_path(text: str) -> bool:
    return text.startswith((".", "~")) or Path(text).is_absolute() or _is_folder(Path(text))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # too long for a path, or in a folder that is closed to us
        return False


def _cached(name: str, repository: str) -> ResolvedModel:
    folder = cached_snapshot(repository)
    pull = f"`edgeapp models pull {name}`"
    if folder is None:
        raise ModelNotFound(
            f"the model {name} is not on this machine: looked for {repository} in "
            f"{cache_folder()}; {pull} downloads it"
        )
    reason = unusable(folder)
    if reason is None:
        return resolved(repository, folder, "cache")
    family = read_json(folder / "config.json").get("model_type")
    if family is not None and str(family) not in TASKS:
        raise CheckpointError(f"the model {name} in {folder} cannot be used: {reason}")
    raise ModelNotFound(
        f"the model {name} is only partly on this machine ({folder}): {reason}; "
        f"{pull} downloads the rest"
    )


def _local(path: str) -> ResolvedModel:
    try:
        folder = Path(path).expanduser()
        there, is_folder = folder.exists(), folder.is_dir()
    except (OSError, RuntimeError) as error:  # RuntimeError: ~somebody, who has no home here
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelNotFound(f"no model at {path}: {reason}") from error
    if not is_folder:
        kind = "is a file, not a model folder" if there else "does not exist"
        raise ModelNotFound(f"no model at {folder}: it {kind}; `edgeapp models list` shows what is")
    reason = unusable(folder)
    task = task_of(folder)
    if reason is not None or task is None:
        raise CheckpointError(f"{folder} is no usable model folder: {reason}")
    return ResolvedModel(folder.resolve().name, task, folder.resolve(), "folder")


def _unknown(name: str) -> str:
    similar = similar_names(name, tuple(BUNDLED))
    hint = "`edgeapp models list` shows what is here"
    if similar:
        hint = f"did you mean {' or '.join(similar)}?"
    return f"no model is called {name!r}, and there is no such folder: {hint}"
