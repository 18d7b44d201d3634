"""What is known of a model on this machine, and whether its files are as they were published."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.families import Task
from pipelines.hub.cache import cache_folder, language_tokens, read_json, size_of
from pipelines.hub.catalog import resolve
from pipelines.hub.deletion import delete_unused, unused_blobs
from pipelines.hub.foreign import foreign_origin, foreign_root, is_outdated
from pipelines.hub.listing import RemoteFile
from pipelines.hub.sources import published_model
from pipelines.hub.transfer import content_digest

_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_README_BYTES = 1 << 20
_ABANDONED_S = 24 * 3600.0  # a download that runs writes more often
# SHA-256 of openai-whisper's files: they are part of the addresses that it loads them from.
_OPENAI_HASHES = {
    "tiny.en": "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03",
    "tiny": "65147644a518d12f04e32d6f3b26facc3f8dd46e5390956a9424a650c0ce22b9",
    "base.en": "25a8566e1d0c1e2231d1c762132cd20e0f96a85d16145c3a00adf5d1ac670ead",
    "base": "ed3a0b6b1c0edf879ad9b11b1af5a0e6ab5db9205f891f668f8b0e6c6326e34e",
    "small.en": "f953ad0fd29cacd07d5a9eda5624af0f6bcf2258be67c92b79389873d91e0872",
    "small": "9ecf779972d90ba49c06d968637d720dd632c55bbf19d441fb42bf17a411e794",
    "medium.en": "d7440d1dc186f76616474e0ff0b3b6b879abc9d1a4926b7adfa41db2d497ab4f",
    "medium": "345ae4da62f9b3d59415adc60127b97c714f32e89e936602e85993674d08dcb1",
    "large-v1": "e4b87e7e0bf463eb8e6956e646f1e277e901512310def2c24bf0e11bd3c28e9a",
    "large-v2": "81f7c96c852ee8fc832187b0132e569d6c3065a3252ed18e56effd0b6a73e524",
    "large-v3": "e5b1a55b89c1367dacf97e3e19bfd829a01529dbfdeefa8caeb59b3f1b81dadb",
    "large-v3-turbo": "aff26ae408abcba5fbf8813c21e62b0941638c5f6eebfb145be0c9839262a19a",
}


@dataclass(frozen=True)
class ModelDetails:
    """What is known of a model.

    Attributes:
        name: For display.
        task: "asr" or "translation".
        family: model_type of its config, such as "marian".
        languages: Codes of its languages as far as its files state them; may be empty.
        size_bytes: Of all files.
        kind: The kind of number that the weights are stored in, such as "float16" or "q5_1".
        license: As its README states it, or None.
        tool: The program whose format it has, or None for transformers' layout.
        source: "bundled", "cache", "folder" or "other".
        origin: Where its files lie.
        commit: The commit of the repository, or None outside the Hugging Face cache.
    """

    name: str
    task: Task
    family: str
    languages: tuple[str, ...]
    size_bytes: int
    kind: str
    license: str | None
    tool: str | None
    source: str
    origin: str
    commit: str | None


@dataclass(frozen=True)
class CheckedFile:
    """A file whose content was compared with its published hash.

    Attributes:
        name: Of the file.
        state: "ok", "changed", or "unknown" where no hash is published.
    """

    name: str
    state: Literal["ok", "changed", "unknown"]


@dataclass(frozen=True)
class Leftover:
    """A file or folder that nothing uses any more.

    Attributes:
        path: What `remove` deletes.
        size_bytes: The space that it takes.
        reason: Why it is not needed, as the end of a sentence.
        is_shared: Whether it lies in the store that repositories share.
    """

    path: Path
    size_bytes: int
    reason: str
    is_shared: bool = False

    def remove(self) -> None:
        """Delete it. Raises OSError."""
        if self.is_shared:
            delete_unused(self.path)
        elif self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


def model_details(name: str) -> ModelDetails:
    """What is known of a model on this machine.

    Args:
        name: As for `resolve`.

    Raises:
        ModelError, OptionError: As `resolve`.
    """
    found = resolve(name)
    folder, config = found.folder, read_json(found.folder / "config.json")
    origin = foreign_origin(folder)
    kind = config.get("dtype") or config.get("torch_dtype") or "float32"
    published = published_model(found.name) if found.source == "cache" and origin else None
    files = Path(origin["path"]) if origin else folder
    commit = files.name if files.parent.name == "snapshots" else None
    return ModelDetails(
        name=found.name,
        task=found.task,
        family=str(config.get("model_type")),
        languages=_languages(folder),
        size_bytes=size_of(folder),
        kind=origin["kind"] if origin else str(kind),
        license=published.license if published else _front_matter(folder).get("license"),
        tool=origin["tool"] if origin else None,
        source=found.source,
        origin=str(files),
        commit=commit,
    )


def verify_files(name: str) -> Iterator[CheckedFile]:
    """Compare the files of a model with their published hashes.

    A link of the Hugging Face cache names the hash of its file. Of openai-whisper's files the hash
    is part of the address. For others there is none.

    Args:
        name: As for `resolve`.

    Raises:
        ModelError, OptionError: As `resolve`.
    """
    folder = resolve(name).folder
    origin = foreign_origin(folder)
    if origin is not None:
        path = Path(origin["path"])
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
    else:
        files = sorted(folder.iterdir())
    for file in files:
        if file.is_file():
            yield CheckedFile(file.name, _state(file))


def find_leftovers() -> list[Leftover]:
    """Return what is not used any more.

    These are folders for models of other programs that are gone or were changed, downloads that
    were interrupted a day ago or earlier, and shared files whose repositories were deleted.
    """
    found = []
    if foreign_root().is_dir():
        for folder in sorted(foreign_root().iterdir()):
            if folder.is_dir() and (reason := is_outdated(folder)):
                files = [file for file in folder.rglob("*") if file.is_file()]
                size = sum(file.lstat().st_size for file in files)
                found.append(Leftover(folder, size, reason))
    oldest = time.time() - _ABANDONED_S
    for part in sorted(cache_folder().glob("models--*/blobs/*.incomplete")):
        status = part.lstat()
        if status.st_mtime < oldest:
            found.append(Leftover(part, status.st_size, "its download was interrupted"))
    for folder in sorted(cache_folder().glob("models--*/index.*.tmp")):
        if folder.lstat().st_mtime < oldest:
            found.append(Leftover(folder, size_of(folder), "its download was interrupted"))
    for blob in unused_blobs():
        found.append(Leftover(blob, blob.stat().st_size, "no model links to it", is_shared=True))
    return found


def _state(file: Path) -> Literal["ok", "changed", "unknown"]:
    named = _digest_of_link(file)
    if named is not None:
        actual = content_digest(file, RemoteFile(file.name, file.stat().st_size, named))
        return "ok" if actual == named else "changed"
    published = _OPENAI_HASHES.get(file.stem) if file.suffix == ".pt" else None
    if published is None:
        return "unknown"
    with file.open("rb") as content:
        actual = hashlib.file_digest(content, "sha256").hexdigest()
    return "ok" if actual == published else "changed"


def _digest_of_link(file: Path) -> str | None:
    """Return the hash that the first of the links from a file names; None if there is none.

    That link may lead on to a shared file, whose name is a hash of another kind.
    """
    while file.is_symlink():
        file = file.parent / file.readlink()
        if _DIGEST.fullmatch(file.name):
            return file.name
    return None


def _languages(folder: Path) -> tuple[str, ...]:
    """By generation_config.json (Whisper), tokenizer_config.json (Marian) or the README."""
    codes = language_tokens(folder)
    if codes is not None:
        return codes
    config = read_json(folder / "tokenizer_config.json")
    pair = [config.get(key) for key in ("source_lang", "target_lang")]
    if all(isinstance(code, str) for code in pair):
        return tuple(map(str, pair))
    stated = _front_matter(folder).get("language", "")
    return tuple(code for code in re.split(r"[\s,\[\]]+", stated) if code)


def _front_matter(folder: Path) -> dict[str, str]:
    """The plain "key: value" lines at the head of a README.md, as on the hub."""
    path = folder / "README.md"
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            found = _FRONT_MATTER.match(file.read(_README_BYTES))
    except OSError:
        return {}
    lines = found[1].splitlines() if found else []
    pairs = (line.partition(":") for line in lines if not line.startswith((" ", "-")))
    return {key.strip(): value.strip() for key, _, value in pairs if value.strip()}
