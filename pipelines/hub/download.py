"""Downloads from the Hugging Face hub, or a mirror of it, into its standard cache."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from logging import ERROR
from pathlib import Path

from pipelines.errors import ModelError, OptionError
from pipelines.hub.addresses import InsecureMirror, check_endpoint, insecure_mirror
from pipelines.hub.assets import BUNDLED
from pipelines.hub.cache import FAMILIES, TASKS, cache_folder, read_json, shard_names, unusable
from pipelines.hub.catalog import ResolvedModel, resolve, resolved
from pipelines.hub.listing import RemoteFile, is_shard_name
from pipelines.hub.names import is_repository, repository_of, shown
from pipelines.hub.network_errors import readable_network_errors
from pipelines.hub.snapshot import Snapshot
from pipelines.hub.transfer import Source, fetch_file, fetch_listing

__all__ = ["PullPlan", "PullProgress", "plan_pull", "pull"]

# What the tokenizers, the features and the decoding read; a repository has some of them.
_SMALL_FILES = (
    "generation_config.json",
    "preprocessor_config.json",
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
)
_PARSED_BYTES = 8 << 20  # the configuration and the index of weights, parsed while downloading
_SMALL_BYTES = 256 << 20  # the largest tokenizers have 35 MB
_MOST_SHARDS = 1000


@dataclass(frozen=True)
class PullProgress:
    """How far a download is. file: the one being fetched; the bytes are those of all its files."""

    file: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class PullPlan:
    """What a download would bring. files: (name, bytes). missing_bytes: not in the cache yet."""

    repository: str
    files: tuple[tuple[str, int], ...]
    missing_bytes: int

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.files)


def plan_pull(name: str) -> PullPlan:
    """What `pull` would download, of which only the configuration is fetched now.

    Warns with InsecureMirror as `pull` does. Raises ModelNotFound when the hub has no such model,
    refuses it, or cannot be reached; ModelError when it is of a kind that does not run here, or
    the hub's answers contradict each other.
    """
    repository = _repository(name)
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        with _client():
            return _Download(repository, lambda _: None).plan()
    except (OSError, HTTPError) as error:
        found = readable_network_errors(name, repository, error)
        raise ModelError(found.note or f"{repository} cannot be looked up") from error


def pull(name: str, progress: Callable[[PullProgress], None] | None = None) -> ResolvedModel:
    """Downloads a model: a short name or a hub id. Only the files that are needed, safetensors
    where there are any, else pytorch_model.bin. What is in the cache is not fetched again, and an
    interrupted download goes on where it stopped.

    progress is called in this thread; what it raises ends the download and keeps the partial file.
    Every file is compared with the size and the hash that the hub lists. Warns with InsecureMirror,
    before the first request, when HF_ENDPOINT is a plain http address of another machine.
    Raises ModelNotFound when the hub has no such model, refuses it, or cannot be reached while the
    cache does not have it either; ModelError when it is of a kind that does not run here, cannot
    be stored, or a file is not what the hub lists; OptionError when HF_ENDPOINT is no address.
    """
    if name in BUNDLED:
        return resolve(name)
    repository = _repository(name)
    # What the client's own HTTP library raises, whichever that is.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        with _client():
            folder = _Download(repository, progress or (lambda _: None)).run()
    except (OSError, HTTPError) as error:
        return readable_network_errors(name, repository, error)
    return resolved(repository, folder, "hub")


def _repository(name: str) -> str:
    repository = repository_of(name) or name
    if not is_repository(repository):
        raise OptionError(
            f"{name!r} is neither a known model nor a hub id like openai/whisper-tiny"
        )
    return repository


class _Download:
    """One `pull` of one repository, at the commit that its main branch has at the start."""

    def __init__(self, repository: str, report: Callable[[PullProgress], None]) -> None:
        from huggingface_hub import constants

        self._source = Source(repository, constants.ENDPOINT)
        self._listing = fetch_listing(self._source)
        self._snapshot = Snapshot(repository, self._listing.commit)
        self._report = report
        self._done = 0
        self._total = 0

    def run(self) -> Path:
        """Returns the snapshot's folder. Small files come first, so that weights complete it."""
        files = self._needed()
        self._check_space(files)
        self._total = sum(file.size for file in files)
        for file in files:
            self._say(file.name, 0)
            self._fetch(file, partial(self._say, file.name))
            self._done += file.size
            self._say(file.name, 0)
        folder = self._snapshot.folder
        reason = unusable(folder)
        if reason is not None:
            repository = self._source.repository
            raise ModelError(f"{repository} was downloaded and cannot be used: {reason}")
        # Only now does the branch point here: who asks the cache for "main" gets all or nothing.
        self._snapshot.set_main()
        return folder

    def plan(self) -> PullPlan:
        """What `run` would fetch."""
        files = self._needed()
        sizes = tuple((file.name, file.size) for file in files)
        missing = sum(self._snapshot.missing_bytes(file) for file in files)
        return PullPlan(self._source.repository, sizes, missing)

    def _needed(self) -> list[RemoteFile]:
        """All files of the model but its configuration, which is fetched."""
        repository = self._source.repository
        if not self._lists("config.json"):
            raise ModelError(f"{repository} has no config.json: no model for transformers")
        config = read_json(self._fetch(self._file("config.json", _PARSED_BYTES)))
        if not config:
            raise self._source.refusal("config.json is not a JSON object")
        family = config.get("model_type")
        if str(family) not in TASKS:
            raise ModelError(
                f"{repository} is a model of type {shown(family)}; only {FAMILIES} run here"
            )
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
            f"{self._source.repository} has neither model.safetensors nor pytorch_model.bin: "
            "its weights are in a format that does not run here"
        )

    def _shards(self, index: str) -> list[RemoteFile]:
        shards = shard_names(self._fetch(self._file(index, _PARSED_BYTES)))
        absent = [name for name in shards if not (self._lists(name) and is_shard_name(name))]
        if absent or not shards:
            raise ModelError(
                f"{self._source.repository} is incomplete: {index} names "
                f"{shown(absent[0])[1:-1] if absent else 'no files'}, which it does not hold"
            )
        if len(shards) > _MOST_SHARDS:
            raise self._source.refusal(f"{index} names {len(shards):,} files of weights")
        return [self._file(name) for name in shards]

    def _lists(self, name: str) -> bool:
        return name in self._listing.names

    def _file(self, name: str, largest: int | None = None) -> RemoteFile:
        """A file that the hub lists. largest: the bytes that a file of its kind may have."""
        file = self._listing.files.get(name)
        if file is None:
            raise self._source.refusal(f"it lists {name} without its size or its hash")
        if largest is not None and file.size > largest:
            raise self._source.refusal(
                f"it announces {name} with {file.size:,} bytes; at most {largest:,} are accepted"
            )
        return file

    def _check_twins(self, names: list[str]) -> None:
        """Two names that differ in case are one file on Windows and macOS."""
        wanted = {name.casefold(): name for name in names}
        for name in sorted(self._listing.names):
            twin = wanted.get(name.casefold(), name)
            if twin != name:
                raise self._source.refusal(
                    f"it lists both {twin} and {shown(name)}, which are one file on some systems"
                )

    def _check_space(self, files: list[RemoteFile]) -> None:
        """The announced bytes have to fit on the disk before the first of them is fetched."""
        missing = sum(self._snapshot.missing_bytes(file) for file in files)
        cache = cache_folder()
        there = next(folder for folder in (cache, *cache.parents) if folder.exists())
        free = shutil.disk_usage(there).free
        if missing > free:
            raise ModelError(
                f"{self._source.repository} cannot be stored in {cache}: {missing / 1e9:,.1f} GB "
                f"are still to be downloaded, and {free / 1e9:,.1f} GB are free; make room, or "
                "set HF_HUB_CACHE to a folder on another disk"
            )

    def _fetch(self, file: RemoteFile, report: Callable[[int], None] = lambda _: None) -> Path:
        return fetch_file(self._source, self._snapshot, self._listing.commit, file, report)

    def _say(self, name: str, bytes_of_file: int) -> None:
        self._report(PullProgress(name, self._done + bytes_of_file, self._total))


@contextmanager
def _client() -> Iterator[None]:
    """Checks the hub's address, and silences the client: it logs each of its attempts in lines of
    its own, and here the outcome is one line."""
    from huggingface_hub import constants
    from huggingface_hub.utils import logging

    check_endpoint(constants.ENDPOINT)
    warning = insecure_mirror(constants.ENDPOINT)
    if warning is not None:
        warnings.warn(warning, InsecureMirror, stacklevel=4)  # the caller of pull or plan_pull
    before = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)
