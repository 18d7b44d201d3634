"""One file from the hub into the Hugging Face cache.

huggingface_hub fetches the small files and keeps the cache's layout. Weights it would start from
zero whenever a download ends early; here they go, by its own `http_get` with a range, to a partial
file that the next attempt continues, and are handed to it as a finished blob.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

__all__ = ["Remote", "fetch_resumable", "fetch_small"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


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
        tqdm_class=_bar(lambda _: None),
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
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    unfinished = blob.with_name(f"{blob.name}.incomplete")
    size = metadata.size
    if size is not None and unfinished.exists() and unfinished.stat().st_size > size:
        unfinished.unlink()
    # A range of a compressed answer would be a range of something else.
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if urlsplit(metadata.location).netloc != urlsplit(url).netloc:
        # The content is served from elsewhere, by a signed address: the token stays here.
        headers.pop("authorization", None)
    with unfinished.open("ab") as file:
        http_get(
            metadata.location,
            file,
            resume_size=file.tell(),
            headers=headers,
            expected_size=size,
            displayed_filename=name,
            tqdm_class=_bar(report),
        )
    # Git's large files are named by their SHA-256.
    if _SHA256.fullmatch(blob.name) and _sha256(unfinished) != blob.name:
        unfinished.unlink()
        raise OSError(f"{name} arrived damaged and was thrown away")
    unfinished.replace(blob)


def _bar(report: Callable[[int], None]) -> Any:
    """A class for the client's `tqdm_class` that reports one file's bytes and draws nothing."""

    class Bar:
        def __init__(self, *_: object, initial: int = 0, **__: object) -> None:
            self.n = 0
            self.update(initial)

        def update(self, n: float | None = 1) -> None:
            self.n += int(n or 0)
            report(self.n)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    return Bar


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
