"""Resolve names to folders, and list or remove models. Uses only this machine, no network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pipelines.errors import CheckpointError, ModelError, ModelNotFound, OptionError
from pipelines.families import Task, is_native, task_of
from pipelines.hub.assets import BUNDLED, assets_folder, bundled_folder
from pipelines.hub.cache import (
    cache_folder,
    cached_models,
    cached_repositories,
    cached_snapshot,
    folder_task,
    read_json,
    size_of,
    snapshots,
    storage_folder,
    unusable,
    usable_snapshot,
)
from pipelines.hub.deletion import delete_cached
from pipelines.hub.foreign import foreign_folder, foreign_origin, holds_foreign_model
from pipelines.hub.names import is_repository, repository_of, short_name, similar_names
from pipelines.hub.other_programs import find_elsewhere, other_folders, other_models
from pipelines.hub.sources import PublishedModel, published_model

Origin = Literal["bundled", "cache", "folder", "hub", "other"]
Stamp = tuple[tuple[str, int, int, int], ...]
"""(path, times of the last changes of its content and of itself in ns, size) of each file."""

_DEPTH = 4  # of the folders below one that is listed; links may lead in circles


@dataclass(frozen=True)
class ResolvedModel:
    """A model that can be loaded.

    Attributes:
        name: For display: the short name, the hub id or the folder's name.
        task: "asr", "translation" or "reading" (pictures to text).
        folder: Holds config, tokenizer and weights.
        source: "bundled", "cache" (the Hugging Face cache), "folder" (a path was given), "hub"
            (downloaded by this call) or "other" (another program has it).
        note: One line for the user if the choice needs an explanation, else None.
        better: Name of a better model to download, which the note names too, or None.
    """

    name: str
    task: Task
    folder: Path
    source: Origin
    note: str | None = None
    better: str | None = None


@dataclass(frozen=True)
class ModelInfo:
    """An entry of the list of models.

    Attributes:
        name: For display, and accepted by `resolve`.
        task: "asr", "translation" or "reading" (pictures to text).
        size_bytes: Of all files in the folder.
        folder: Holds config, tokenizer and weights.
        source: "bundled", "cache", or "other" for the model of another program.
        repository: The hub id; None where there is none.
        tool: The program that the model's files belong to, such as "openai-whisper"; None for
            files in transformers' layout.
        native: Whether it runs in the program's own code; else in that of transformers.
    """

    name: str
    task: Task
    size_bytes: int
    folder: Path
    source: Origin
    repository: str | None
    tool: str | None = None
    native: bool = True


def resolve(name: str | os.PathLike[str]) -> ResolvedModel:
    """Find a model on this machine, without any download.

    Args:
        name: In this order: the path of a model folder; a bundled name; a short name (tiny … turbo,
            distil-…, opus-mt-en-de); a path; a hub id. A string is a path if a folder or the file
            of a model exists there, if it starts with "." or "~", or if it is absolute. A Path is
            always a path. Paths may lead to models of other programs, and a short name that is not
            in the Hugging Face cache is looked for among those.

    Raises:
        OptionError: `name` is empty.
        ModelNotFound: The model is not on this machine, or only a part of it is.
        CheckpointError: It is on this machine and cannot be used.
    """
    text = os.fspath(name)
    if not text.strip():
        raise OptionError("the model's name is empty; give a name, a hub id or a folder")
    if not isinstance(name, str):
        return _local(text)
    repository = repository_of(text)
    if (text in BUNDLED or repository is not None) and _is_model_folder(Path(text)):
        note = f"using the folder {text} here, not the model of that name"
        return replace(_local(text), note=note)
    if text in BUNDLED:
        return ResolvedModel(text, BUNDLED[text].task, bundled_folder(text), "bundled")
    if repository is None:
        if _is_path(text):
            return _local(text)
        if not is_repository(text):
            raise ModelNotFound(_unknown(text))
    return _cached(text, repository or text)


def folder_of(model: str | os.PathLike[str]) -> Path:
    """The folder of a model.

    A string is resolved by `resolve`. A path is returned as it is, unless it leads to a model of
    another program.
    """
    if isinstance(model, str):
        return resolve(model).folder
    path = Path(model)
    return resolve(path).folder if _is_foreign(path) else path


def resolved(
    repository: str, folder: Path, source: Origin, note: str | None = None
) -> ResolvedModel:
    """The ResolvedModel of a usable folder of a repository."""
    task = folder_task(folder)
    assert task is not None
    return ResolvedModel(short_name(repository), task, folder, source, note)


def list_models() -> list[ModelInfo]:
    """The bundled models, then the usable models in the cache, sorted by repository.

    The list is remembered until a file of a model changes.
    """
    return list(_list_models(models_stamp()))


@lru_cache(maxsize=1)
def _list_models(stamp: Stamp) -> tuple[ModelInfo, ...]:
    """The list of the models whose files have a stamp."""
    models = []
    for name, bundled in BUNDLED.items():
        try:
            folder = bundled_folder(name)
        except ModelNotFound:
            continue
        models.append(ModelInfo(name, bundled.task, size_of(folder), folder, "bundled", None))
    for repository, folder in cached_models():
        model = resolved(repository, folder, "cache")
        try:
            size = size_of(folder)
        except OSError:  # it is being removed, or a part of it cannot be read
            continue
        info = ModelInfo(model.name, model.task, size, folder, "cache", repository)
        models.append(replace(info, native=is_native(read_json(folder / "config.json"))))
    return (*models, *_foreign_models())


def models_stamp() -> Stamp:
    """Return a stamp of the files of all models that `list_models` lists.

    Only their names, times and sizes are read, so that it takes a millisecond or two where a list
    of the models takes a second.
    """
    folders = map(str, _stamped_folders())
    return tuple(entry for folder in folders for entry in _stamped_entries(folder, _DEPTH))


def _stamped_folders() -> Iterator[Path]:
    with suppress(ModelNotFound):
        yield assets_folder() / "models"
    for repository in cached_repositories():
        for part in ("refs", "snapshots"):
            yield storage_folder(repository) / part
    yield from other_folders()


def _stamped_entries(folder: str, depth: int) -> Iterator[tuple[str, int, int, int]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:  # there is no such folder, or it cannot be read
        return
    for entry in entries:
        try:
            status = entry.stat()
            is_folder = entry.is_dir()
        except OSError:  # a link to a file that is missing
            yield entry.path, 0, 0, 0
            continue
        yield entry.path, status.st_mtime_ns, status.st_ctime_ns, status.st_size
        if is_folder and depth:
            yield from _stamped_entries(entry.path, depth - 1)


def incomplete_models() -> list[str]:
    """Return the hub ids of models in the cache that would run here, but lack a file, sorted."""
    found = []
    for repository in cached_repositories():
        try:
            folder = cached_snapshot(repository)
            if folder is None or folder_task(folder) is None or unusable(folder) is None:
                continue
            if not _is_foreign(folder):
                found.append(repository)
        except OSError:  # such as a folder without permission: the others are listed
            continue
    return found


def _foreign_models() -> Iterator[ModelInfo]:
    """The models of other programs, in the Hugging Face cache and outside."""
    for repository in cached_repositories():
        folder = cached_snapshot(repository)
        if folder is not None and _is_foreign(folder):
            published = published_model(repository)
            # The short name is that of the other repository if the cache has both.
            other = None if published is None else repository_of(published.name)
            if published is not None and not (other and usable_snapshot(other)):
                yield from _foreign_info(published.name, folder, repository, "cache")
            else:
                yield from _foreign_info(repository, folder, repository)
    for model in other_models():
        yield from _foreign_info(model.name, model.path, None)


def _foreign_info(
    name: str, path: Path, repository: str | None, source: Origin = "other"
) -> Iterator[ModelInfo]:
    try:
        folder = foreign_folder(path)
        task, origin = folder_task(folder), foreign_origin(folder)
        if task is not None and origin is not None:
            size, tool = size_of(folder), origin["tool"]
            yield ModelInfo(name, task, size, folder, source, repository, tool)
    except (OSError, ModelError):  # damaged, or of a kind that does not run here
        return


def cached_published(model: PublishedModel, *, either: bool = True) -> ResolvedModel | None:
    """Return a model that the hub and the package index have, if the cache has it.

    Args:
        model: The model.
        either: Whether the repository in transformers' layout that has the same short name will do,
            such as openai/whisper-base for "base". It comes first.

    Raises:
        CheckpointError: The files in the cache are damaged.
    """
    repository = repository_of(model.name)
    assert repository is not None
    folder = usable_snapshot(repository) if either else None
    if folder is not None:
        return resolved(repository, folder, "cache")
    foreign = next((each for each in snapshots(model.repository) if _is_foreign(each)), None)
    if foreign is None:
        return None
    return replace(_foreign(foreign, model.name), source="cache", note=None)


def remove(name: str) -> int:
    """Delete all revisions of a downloaded model from the cache.

    If a short name stands for two repositories, the one that `list_models` lists under it is
    deleted.

    Args:
        name: A short name or a hub id.

    Returns:
        The freed bytes.

    Raises:
        ModelError: It is a bundled model or a folder outside the cache, or cannot be deleted.
        ModelNotFound: It is not in the cache.
    """
    if name in BUNDLED:
        raise ModelError(f"{name} is part of the program and cannot be removed")
    repository = repository_of(name)
    if repository is None:
        if _is_path(name):
            raise ModelError(
                f"{name} is a folder outside the cache; delete it yourself if you want to"
            )
        if not is_repository(name):
            raise ModelNotFound(_unknown(name))
        repository = name
    elif (published := published_model(name)) and usable_snapshot(repository) is None:
        repository = published.repository if snapshots(published.repository) else repository
    try:
        freed = delete_cached(repository)
    except OSError as error:
        raise ModelError(
            f"{repository} cannot be removed from {cache_folder()}: {error.strerror or error}"
        ) from error
    if freed is None:
        raise ModelNotFound(f"{repository} cannot be removed: it is not in {cache_folder()}")
    return freed


def _is_path(text: str) -> bool:
    path = Path(text)
    is_given = text.startswith((".", "~")) or path.is_absolute()
    return is_given or _is_folder(path) or _is_foreign(path)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # too long for a path, or inside a folder without permission
        return False


def _is_foreign(path: Path) -> bool:
    """Whether a path leads to a model of another program, and to none in transformers' layout."""
    try:
        return holds_foreign_model(path) and (path.is_file() or unusable(path) is not None)
    except OSError:
        return False


def _is_model_folder(path: Path) -> bool:
    """Whether a folder holds a model, or a part of one: it has a config."""
    return _is_folder(path) and _is_file(path / "config.json")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _cached(name: str, repository: str) -> ResolvedModel:
    """The cached model of a repository. name: as the caller gave it."""
    folder = cached_snapshot(repository)
    if folder is not None and _is_foreign(folder):
        return _foreign(folder, name)
    published = published_model(name) if name != repository else None
    if folder is None or unusable(folder) is not None:
        found = None if published is None else cached_published(published)
        found = found or elsewhere(short_name(repository))
        if found is not None:
            return found
    if folder is None:
        looked = f"{repository} and {published.repository}" if published else repository
        raise ModelNotFound(
            f"the model {name} is not on this machine: looked for {looked} in "
            f"{cache_folder()}; download it first",
            download=name,
        )
    reason = unusable(folder)
    if reason is None:
        return resolved(repository, folder, "cache")
    config = read_json(folder / "config.json")
    if config.get("model_type") is not None and task_of(config) is None:
        raise CheckpointError(f"the model {name} in {folder} cannot be used: {reason}")
    raise ModelNotFound(
        f"the model {name} is only partly on this machine ({folder}): {reason}; download the rest",
        download=name,
    )


def _local(path: str) -> ResolvedModel:
    """The model in a local folder."""
    try:
        folder = Path(path).expanduser()
        exists, is_folder = folder.exists(), folder.is_dir()
        foreign = exists and _is_foreign(folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~user for an unknown user
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelNotFound(f"no model at {path}: {reason}") from error
    if foreign:
        return _foreign(folder)
    if not is_folder:
        kind = "is a file, not a model folder" if exists else "does not exist"
        raise ModelNotFound(f"no model at {folder}: it {kind}; {_models_here()}")
    reason = unusable(folder)
    task = folder_task(folder)
    if reason is not None or task is None:
        raise CheckpointError(f"{folder} is not a usable model folder: {reason}")
    return ResolvedModel(folder.resolve().name, task, folder.resolve(), "folder")


def elsewhere(name: str) -> ResolvedModel | None:
    """The model that another program has under a short name, with a note; None if none has it."""
    model = find_elsewhere(name)
    return None if model is None else _foreign(model.path, name, model.tool)


def _foreign(path: Path, name: str | None = None, tool: str | None = None) -> ResolvedModel:
    """A model of another program.

    Args:
        path: Its file or folder.
        name: Under which it was looked for; None if the path was given.
        tool: The program in whose cache it was found, for the note.
    """
    folder = foreign_folder(path)
    task, reason = folder_task(folder), unusable(folder)
    if task is None or reason is not None:
        raise CheckpointError(f"{path} cannot be used: {reason}")
    if name is None:
        return ResolvedModel(path.resolve().name, task, folder, "folder")
    origin = foreign_origin(folder)
    tool = tool or (origin["tool"] if origin else "another program")
    note = f"using the model {name} that {tool} has in {path}"
    return ResolvedModel(name, task, folder, "other", note)


def _unknown(name: str) -> str:
    """The message for a name that is neither a short name, nor a path, nor a hub id."""
    similar = similar_names(name, tuple(BUNDLED))
    hint = f"did you mean {' or '.join(similar)}?" if similar else _models_here()
    return f"no model is called {name!r}, and there is no such folder: {hint}"


def _models_here() -> str:
    """The models on this machine, at most ten of them, for messages."""
    names = [model.name for model in list_models()]
    more = [f"{len(names) - 10} more"] if len(names) > 10 else []
    return f"on this machine are {', '.join([*names[:10], *more])}"
