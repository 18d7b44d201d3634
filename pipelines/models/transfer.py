"""One file from the hub into the Hugging Face cache.

huggingface_hub fetches the small files and keeps the cache's layout. Weights it would start from
zero whenever a download ends early, and it drops up to 10 MB at each cut; here they go, through its
session with a range, to a partial file that the next attempt continues, and are handed to it as a
finished blob.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

__all__ = ["Remote", "fetch_resumable", "fetch_small"]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PARTIAL_CONTENT = 206
_RETRIES = 5  # in a row that bring nothing
_PAUSE_S = 1.0  # before each


@dataclass(frozen=True)
class Remote:
    """A repository at one commit, and the cache that its files go to."""

    repository: str
    commit: str
    endpoint: str
    cache: Path


def fetch_small(remote: Remote, name: str, revision: str | None = None) -> Path:
    """A file by the client alone. revision: a branch instead of the commit; the cache notes where
    it points. Raises what the client raises."""
    from huggingface_hub import hf_hub_download

    path = hf_hub_download(
        remote.repository,
        name,
        revision=revision or remote.commit,
        cache_dir=remote.cache,
        endpoint=remote.endpoint,
        tqdm_class=cast(Any, _NoBar),
    )
    return Path(path)


def fetch_resumable(remote: Remote, name: str, report: Callable[[int], None]) -> Path:
    """A large file, going on where an earlier attempt stopped; report gets its bytes so far.

    Raises OSError when it arrives damaged, and what the client raises.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

    where = {"repo_id": remote.repository, "filename": name, "revision": remote.commit}
    cached = try_to_load_from_cache(**where, cache_dir=remote.cache)
    if isinstance(cached, str):
        return Path(cached)
    url = hf_hub_url(**where, endpoint=remote.endpoint)
    metadata = get_hf_file_metadata(url, endpoint=remote.endpoint)
    if not re.fullmatch(r"[\w-]+", metadata.etag or ""):
        raise OSError(f"the answer for {name} names no version of it")
    storage = f"models--{remote.repository.replace('/', '--')}"
    blob = remote.cache / storage / "blobs" / str(metadata.etag)
    # The client's own lock: two programs that want the same file take turns.
    lock = remote.cache / ".locks" / storage / f"{metadata.etag}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if not blob.exists():
            _write_blob(name, url, metadata, blob, report)
    return fetch_small(remote, name)


def _write_blob(
    name: str, url: str, metadata: HfFileMetadata, blob: Path, report: Callable[[int], None]
) -> None:
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    size = metadata.size
    if size is None:
        raise OSError(f"the answer for {name} does not say how large it is")
    unfinished = blob.with_name(f"{blob.name}.incomplete")
    if unfinished.exists() and unfinished.stat().st_size > size:
        unfinished.unlink()
    # A range of a compressed answer would be a range of something else.
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if urlsplit(metadata.location).netloc != urlsplit(url).netloc:
        # The content is served from elsewhere, by a signed address: the token stays here.
        headers.pop("authorization", None)
    with unfinished.open("ab") as file:
        _receive(metadata.location, headers, file, size, report)
    # Git's large files are named by their SHA-256.
    whole = unfinished.stat().st_size == size
    if not whole or (_SHA256.fullmatch(blob.name) and _sha256(unfinished) != blob.name):
        unfinished.unlink()
        raise OSError(f"{name} arrived damaged and was thrown away")
    unfinished.replace(blob)


def _receive(
    url: str, headers: dict[str, str], file: BinaryIO, size: int, report: Callable[[int], None]
) -> None:
    """Appends what is missing of a file, and goes on by itself where a connection breaks off."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]

    report(file.tell())
    failures, farthest = 0, file.tell()
    while file.tell() < size:
        try:
            _receive_once(url, headers, file, report)
            problem: Exception = OSError("the connection was closed too early")
        except HfHubHTTPError:
            raise
        except HTTPError as error:
            problem = error
        if file.tell() >= size:
            return
        failures = 1 if file.tell() > farthest else failures + 1
        if failures > _RETRIES:
            raise problem
        farthest = max(farthest, file.tell())
        time.sleep(_PAUSE_S)


def _receive_once(
    url: str, headers: dict[str, str], file: BinaryIO, report: Callable[[int], None]
) -> None:
    from huggingface_hub import constants, utils

    start = file.tell()
    ranged = {**headers, "Range": f"bytes={start}-"} if start else headers
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    session = utils.get_session()  # type: ignore[attr-defined]
    with session.stream(
        "GET", url, headers=ranged, timeout=timeout, follow_redirects=True
    ) as response:
        utils.hf_raise_for_status(response)  # type: ignore[attr-defined]
        if start and response.status_code != _PARTIAL_CONTENT:
            file.truncate(0)
            file.seek(0)
        for chunk in response.iter_bytes():
            file.write(chunk)
            report(file.tell())


class _NoBar:
    """For the client's `tqdm_class`: draws nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def update(self, n: float | None = 1) -> None:
        pass

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
