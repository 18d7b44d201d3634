"""Downloads from the Hugging Face hub into its standard cache, through huggingface_hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from logging import ERROR
from pathlib import Path

from pipelines.errors import ModelError, OptionError
from pipelines.models.assets import BUNDLED
from pipelines.models.cache import FAMILIES, TASKS, cache_folder, read_json, shard_names, unusable
from pipelines.models.catalog import ResolvedModel, resolve, resolved
from pipelines.models.names import is_repository, repository_of
from pipelines.models.refusals import without_the_hub
from pipelines.models.transfer import Remote, fetch_resumable, fetch_small

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

    Raises ModelNotFound when the hub has no such model, refuses it, or cannot be reached;
    ModelError when it is of a kind that does not run here.
    """
    repository = _repository(name)
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        with _quiet_client():
            return _Download(repository, lambda _: None).plan()
    except (OSError, HTTPError) as error:
        found = without_the_hub(name, repository, error)
        raise ModelError(found.note or f"{repository} cannot be looked up") from error


def pull(name: str, progress: Callable[[PullProgress], None] | None = None) -> ResolvedModel:
    """Downloads a model: a short name or a hub id. Only the files that are needed, safetensors
    where there are any, else pytorch_model.bin. What is in the cache is not fetched again, and an
    interrupted download goes on where it stopped.

    progress is called in this thread; what it raises ends the download and keeps the partial file.
    Raises ModelNotFound when the hub has no such model, refuses it, or cannot be reached while the
    cache does not have it either; ModelError when it is of a kind that does not run here, or cannot
    be stored.
    """
    if name in BUNDLED:
        return resolve(name)
    repository = _repository(name)
    # What the client's own HTTP library raises, whichever that is.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        with _quiet_client():
            folder = _Download(repository, progress or (lambda _: None)).run()
    except (OSError, HTTPError) as error:
        return without_the_hub(name, repository, error)
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
        from huggingface_hub import HfApi, constants

        endpoint = constants.ENDPOINT
        info = HfApi(endpoint=endpoint).model_info(repository, files_metadata=True)
        self._remote = Remote(repository, str(info.sha), endpoint, cache_folder())
        self._sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        self._report = report
        self._done = 0
        self._total = 0

    def run(self) -> Path:
        """Returns the snapshot's folder. Small files come first, so that weights complete it."""
        folder, names = self._needed()
        self._total = sum(self._sizes[name] for name in names)
        for name in names:
            self._fetch(name)
        # Only now does the branch point here: who asks the cache for "main" gets all or nothing.
        fetch_small(self._remote, "config.json", revision="main")
        reason = unusable(folder)
        if reason is not None:
            repository = self._remote.repository
            raise ModelError(f"{repository} was downloaded and cannot be used: {reason}")
        return folder

    def plan(self) -> PullPlan:
        """What `run` would fetch."""
        folder, names = self._needed()
        files = tuple((name, self._sizes[name]) for name in names)
        missing = sum(size for name, size in files if not (folder / name).exists())
        return PullPlan(self._remote.repository, files, missing)

    def _needed(self) -> tuple[Path, list[str]]:
        """The snapshot's folder, with the configuration in it, and all else that it needs."""
        repository = self._remote.repository
        if "config.json" not in self._sizes:
            raise ModelError(f"{repository} has no config.json: no model for transformers")
        folder = fetch_small(self._remote, "config.json").parent
        family = read_json(folder / "config.json").get("model_type")
        if family not in TASKS:
            raise ModelError(
                f"{repository} is a model of type {family!r}; only {FAMILIES} run here"
            )
        names = [name for name in _SMALL_FILES if name in self._sizes] + self._weights()
        return folder, names

    def _weights(self) -> list[str]:
        for single in ("model.safetensors", "pytorch_model.bin"):
            if single in self._sizes:
                return [single]
            index = f"{single}.index.json"
            if index in self._sizes:
                return [index, *self._shards(index)]
        raise ModelError(
            f"{self._remote.repository} has neither model.safetensors nor pytorch_model.bin: "
            "its weights are in a format that does not run here"
        )

    def _shards(self, index: str) -> list[str]:
        shards = shard_names(fetch_small(self._remote, index))
        absent = [file for file in shards if file not in self._sizes or "/" in file]
        if absent or not shards:
            raise ModelError(
                f"{self._remote.repository} is incomplete: {index} names "
                f"{absent[0] if absent else 'no files'}, which it does not hold"
            )
        return shards

    def _fetch(self, name: str) -> None:
        self._say(name, 0)
        if name.endswith((".safetensors", ".bin")):
            fetch_resumable(self._remote, name, partial(self._say, name))
        else:
            fetch_small(self._remote, name)
        self._done += self._sizes[name]
        self._say(name, 0)

    def _say(self, name: str, bytes_of_file: int) -> None:
        self._report(PullProgress(name, self._done + bytes_of_file, self._total))


@contextmanager
def _quiet_client() -> Iterator[None]:
    """The client logs each of its attempts in lines of its own; here the outcome is one line."""
    from huggingface_hub.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)
