"""Models in the Hugging Face cache of this machine, and the check whether a folder is usable.

The cache is the standard one (HF_HUB_CACHE, HF_HOME or ~/.cache/huggingface, as huggingface_hub
reads them), so models that other tools downloaded are found.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.families import (
    Task,
    class_of,
    family_by_type,
    family_of,
    native_types,
    task_of,
    wrapped_types,
)
from pipelines.formats import LINKS
from pipelines.hub.access import access, is_commit
from pipelines.hub.listing import is_shard_name
from pipelines.hub.names import is_repository, shown
from pipelines.json_files import TOKENIZER_BYTES, read_json_object

_SEPARATE_VOCABULARIES = (("target_vocab.json",),)

_chosen_folder: Path | None = None


def cache_folder() -> Path:
    """The Hugging Face cache of this machine, or the chosen one; it need not exist yet."""
    if (chosen := access().cache_dir or _chosen_folder) is not None:
        return chosen
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def language_tokens(folder: Path) -> tuple[str, ...] | None:
    """Return the codes of the languages that a Whisper model has tokens for; None if its
    generation_config.json has no table of them and does not say that it knows English only."""
    config = read_json(folder / "generation_config.json")
    if config.get("is_multilingual") is False:
        return ("en",)
    table = config.get("lang_to_id")
    if not isinstance(table, dict):
        return None
    return tuple(str(token).strip("<|>") for token in table)


def free_bytes() -> int:
    """Return the free bytes on the disk of the cache."""
    cache = cache_folder()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return shutil.disk_usage(existing).free


def use_cache_folder(folder: Path | None) -> None:
    """Use another cache in this process; None for that of the machine."""
    global _chosen_folder
    _chosen_folder = folder


def cached_snapshot(repository: str) -> Path | None:
    """The folder of a cached repository: the newest usable snapshot, else the newest.

    Returns:
        None if the cache has no snapshot of it.
    """
    return usable_snapshot(repository) or next(iter(snapshots(repository)), None)


def usable_snapshot(repository: str) -> Path | None:
    """The folder of a cached repository: the newest snapshot that can be loaded, or None."""
    return next((each for each in snapshots(repository) if unusable(each) is None), None)


def snapshots(repository: str) -> list[Path]:
    """The folders of a cached repository, the newest first."""
    try:
        parent = storage_folder(repository) / "snapshots"
        folders = [folder for folder in parent.iterdir() if folder.is_dir()]
    except OSError:
        return []
    main = _main_commit(repository)
    # The commit of "main" first: a later download of an older commit does not replace it.
    folders.sort(key=lambda folder: (folder.name == main, folder.stat().st_mtime), reverse=True)
    return folders


def snapshot_at(repository: str, revision: str) -> Path | None:
    """The folder of a usable snapshot of a branch, a tag or a commit, or None."""
    storage, commit = storage_folder(repository), revision
    if not is_commit(revision):
        try:
            commit = (storage / "refs" / revision).read_text(encoding="utf-8").strip()
        except OSError:
            return None
    folder = storage / "snapshots" / commit
    return folder if folder.is_dir() and unusable(folder) is None else None


def cached_repositories() -> Iterator[str]:
    """The repositories in the cache, sorted; some may be incomplete."""
    try:
        entries = sorted(cache_folder().iterdir())
    except OSError:
        return
    for entry in entries:
        kind, _, name = entry.name.partition("--")
        repository = name.replace("--", "/")
        if kind == "models" and is_repository(repository):
            yield repository


def cached_models() -> Iterator[tuple[str, Path]]:
    """(repository, folder) of every usable model in the cache, sorted by repository."""
    for repository in cached_repositories():
        try:
            folder = usable_snapshot(repository)
            if folder is not None:
                yield repository, folder
        except OSError:  # such as a folder without permission: the others are listed
            continue


def folder_task(folder: Path) -> Task | None:
    """Return the task of the model in a folder; None if its config.json names no model that runs
    here."""
    return task_of(read_json(folder / "config.json"))


def unsupported(config: dict[str, Any], subject: str = "it") -> str | None:
    """Return why a kind of model does not run here, as a sentence about `subject`; None if it
    does."""
    if task_of(config) is not None:
        return None
    family = family_by_type(config)
    if family is None or family.task is None:
        return (
            f"{subject} has the model_type {shown(config.get('model_type'))}; what runs here: "
            f"{native_types()} and, through transformers, {wrapped_types()}"
        )
    name = class_of(config)
    if family.classes:
        runs = ", ".join(family.classes)
        if not name:
            return (
                f"{subject} has a config.json that names no class in `architectures`; "
                f"of its family runs here: {runs}"
            )
        return f"{subject} is a {shown(name)}; of its family runs here: {runs}"
    if name.endswith("ForCausalLM"):
        return f"{subject} is a {shown(name)}, a decoder alone, which reads no source"
    return f"{subject} is a {shown(name)}, which generates no text"


def reads_lines(folder: Path) -> bool:
    """Whether the model in a folder was trained on pictures of single lines, as TrOCR."""
    decoder = read_json(folder / "config.json").get("decoder")
    return isinstance(decoder, dict) and decoder.get("model_type") == "trocr"


def unusable(folder: Path) -> str | None:
    """Why a folder cannot be loaded as a model, as the end of a sentence; None if it can."""
    config = read_json(folder / "config.json")
    if not config:
        return "it has no readable config.json"
    if reason := unsupported(config):
        return reason
    missing = _missing_weights(folder)
    if missing:
        return f"it lacks {missing}"
    family = family_of(config)
    groups = () if family is None else family.files
    if read_json(folder / "tokenizer_config.json").get("separate_vocabs"):
        groups += _SEPARATE_VOCABULARIES
    for group in groups:
        if not any((folder / name).is_file() for name in group):
            return f"it lacks {' and '.join(group)}"
    return None


def size_of(*folders: Path) -> int:
    """Return the bytes of the files in folders; links are followed, each file counts once."""
    files = {file.resolve() for each in folders for file in each.rglob("*") if file.is_file()}
    return sum(file.stat().st_size for file in files)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model; empty if it cannot be read, or is refused."""
    try:
        return read_json_object(path, TOKENIZER_BYTES)
    except (FileNotFoundError, CheckpointError):
        return {}


def shard_names(index: Path) -> list[str]:
    """The weights files that an index names, sorted; empty if it cannot be read."""
    weight_map = read_json(index).get("weight_map")
    files = weight_map.values() if isinstance(weight_map, dict) else ()
    return sorted({str(file) for file in files})


def storage_folder(repository: str) -> Path:
    """The folder of a repository in the cache; it need not exist yet."""
    return cache_folder() / f"models--{repository.replace('/', '--')}"


def _main_commit(repository: str) -> str:
    """The commit of the newest complete download; "" if there is none."""
    try:
        return (storage_folder(repository) / "refs" / "main").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _missing_weights(folder: Path) -> str | None:
    """The first missing weights file, in the order in which the engine looks for them."""
    for single in ("model.safetensors", "pytorch_model.bin"):
        if (folder / single).is_file():
            return None
        index = folder / f"{single}.index.json"
        if index.is_file():
            shards = shard_names(index)
            for shard in shards:
                if not is_shard_name(shard):
                    return f"the file {shown(shard)} that {index.name} names"
                if not (folder / shard).is_file():
                    return shard
            return None if shards else f"a readable {index.name}"
    if any((folder / link).is_file() for link in LINKS):
        return None
    return "weights (model.safetensors or pytorch_model.bin)"
