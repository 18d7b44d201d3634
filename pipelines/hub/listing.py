"""The hub's description of a repository, checked before any of it is used.

The description is the answer of /api/models/{repository}?blobs=true. Downloads are
compared with its hashes and sizes; the headers of the files themselves are not trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipelines.errors import ModelError
from pipelines.hub.names import shown

Refusal = Callable[[str], ModelError]

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA1 = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}\.(safetensors|bin)")
# Device names on Windows, with any extension.
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:")
_LARGEST = 1 << 40  # bytes of a file: 1 TiB
_LONGEST_PATH = 4096  # bytes
_LONGEST_NAME = 255  # bytes, the limit of common file systems


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository as the hub announces it.

    Attributes:
        name: Path inside the repository.
        size: In bytes.
        digest: SHA-256 of a large file (Git LFS), 64 hexadecimal digits; else the SHA-1 that git
            gives to its blob, 40 digits. It is also the file's name among the blobs of the cache.
    """

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class Listing:
    """A repository at one commit.

    Attributes:
        commit: 40 hexadecimal digits.
        names: The names of all files.
        files: Name → file, for the files that are listed with a size and a hash.
    """

    commit: str
    names: frozenset[str]
    files: dict[str, RemoteFile]


def parse_listing(content: bytes, refusal: Refusal) -> Listing:
    """Check and read the hub's description of a repository.

    Args:
        content: JSON, of a bounded length.
        refusal: Makes the error from the end of a sentence, such as "it lists x twice".

    Raises:
        ModelError: From `refusal`, if a value is malformed or out of range.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise refusal("its description of the repository is not readable JSON") from error
    if not isinstance(answer, dict):
        raise refusal("its description of the repository is not a JSON object")
    commit = answer.get("sha")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise refusal(f"it names the commit {shown(commit)}, which is not 40 hexadecimal digits")
    entries = answer.get("siblings")
    if not isinstance(entries, list):
        raise refusal("its description of the repository has no list of files")
    names: set[str] = set()
    files: dict[str, RemoteFile] = {}
    for entry in entries:
        name = _name(entry, refusal)
        if name in names:
            raise refusal(f"it lists {shown(name)} twice")
        names.add(name)
        size, digest = _size(name, entry, refusal), _digest(name, entry, refusal)
        if size is not None and digest is not None:
            files[name] = RemoteFile(name, size, digest)
    return Listing(commit, frozenset(names), files)


def is_shard_name(name: str) -> bool:
    """Whether a name in an index is a plain file name of weights, on every system."""
    return _SHARD.fullmatch(name) is not None and not _RESERVED.fullmatch(name)


def _name(entry: Any, refusal: Refusal) -> str:
    name = entry.get("rfilename") if isinstance(entry, dict) else None
    if not isinstance(name, str):
        raise refusal("its list of files has an entry without a name")
    problem = _name_problem(name)
    if problem:
        raise refusal(f"it lists a file named {shown(name)}, {problem}")
    return name


def _name_problem(name: str) -> str | None:
    """Why a path inside a repository is refused: unsafe or impossible on some file system."""
    if _CONTROL.search(name):
        return "which has control characters"
    # A backslash separates folders on Windows.
    parts = name.replace("\\", "/").split("/")
    if not parts[0] or _DRIVE.match(name):
        return "which is empty or an absolute path"
    if any(part in ("", ".", "..") for part in parts):
        return "which leads out of the repository"
    encoded = name.encode("utf-8")
    if len(encoded) > _LONGEST_PATH or any(len(p) > _LONGEST_NAME for p in encoded.split(b"/")):
        return "which is longer than a file name can be"
    return None


def _size(name: str, entry: dict[str, Any], refusal: Refusal) -> int | None:
    size = entry.get("size")
    if size is not None and (type(size) is not int or not 0 <= size <= _LARGEST):
        raise refusal(f"it announces a size of {shown(size)} bytes for {shown(name)}")
    return size


def _digest(name: str, entry: dict[str, Any], refusal: Refusal) -> str | None:
    lfs = entry.get("lfs")
    if lfs is None:
        digest, form = entry.get("blobId"), _SHA1
    else:
        digest, form = lfs.get("sha256") if isinstance(lfs, dict) else lfs, _SHA256
    if digest is None and lfs is None:
        return None
    if not isinstance(digest, str) or not form.fullmatch(digest):
        raise refusal(f"it gives {shown(digest)} as the hash of {shown(name)}")
    return digest
