"""Download files from the hub: bounded, resumable, checked against the announced size and hash.

huggingface_hub contributes its HTTP session, its token and its errors. Its own download function is
not used: it names files in the cache after headers of the response, checks no hash, and starts from
zero after an interruption.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

from pipelines.errors import ModelError
from pipelines.hub.access import access, is_commit
from pipelines.hub.addresses import may_send_token, redirect_target, same_origin
from pipelines.hub.listing import Listing, RemoteFile, parse_listing
from pipelines.hub.names import shown

if TYPE_CHECKING:
    from pipelines.hub.snapshot import Snapshot


_OK, _PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 200, 206, 416
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500
_LISTING_BYTES = 16 << 20  # about 60,000 files
_REDIRECTS = 5
_RETRIES = 5  # consecutive ones with less than _PROGRESS_BYTES each
_PAUSE_S = 1.0  # before each retry
_PROGRESS_BYTES = 64 << 10
_STALL_S = 60.0  # a connection that brings less than _PROGRESS_BYTES in this time has stalled
# huggingface_hub builds paths from these headers. They are not used here, and a response that has a
# path in one of them is refused.
_PATH_HEADERS = ("ETag", "X-Linked-ETag", "X-Repo-Commit")
_PATH = re.compile(r"\.\.|\\|[\x00-\x1f\x7f]|^/")


class _WrongContent(ModelError):
    """The content of a file cannot become the listed one."""


@dataclass(frozen=True)
class RemoteRepository:
    """A repository on a hub.

    Attributes:
        repository: The hub id, "organisation/model".
        endpoint: The hub's address.
        silence_s: If set, a hub that sends nothing for so long has failed, and one that brings
            nothing is not asked again.
    """

    repository: str
    endpoint: str
    silence_s: float | None = None

    def refusal(self, problem: str) -> ModelError:
        """The error for a refused response. problem: "it lists …", "x.json is …"."""
        return ModelError(
            f"{self.repository} cannot be downloaded from {self.endpoint}: {problem}; "
            "try again, and do not trust this hub if the message stays"
        )


def fetch_listing(remote: RemoteRepository) -> Listing:
    """The files of a repository, at the revision of the call, or the commit that its main branch
    has now.

    Raises:
        ModelError: The response is malformed, or of another commit than the one that was named.
        OSError: The connection stalled.
        HTTPError: (of huggingface_hub.errors) The hub refused, or cannot be reached.
    """
    url, revision = f"{remote.endpoint}/api/models/{remote.repository}", access().revision
    if revision is not None:
        url += f"/revision/{quote(revision, safe='')}"
    what = "its description of the repository"
    answer = fetch_answer(remote, f"{url}?blobs=true", what, _LISTING_BYTES)
    listing = parse_listing(answer, remote.refusal)
    if revision is not None and is_commit(revision) and listing.commit != revision:
        raise remote.refusal(f"it answers with commit {listing.commit} for {revision}")
    return listing


def fetch_answer(remote: RemoteRepository, url: str, what: str, limit: int) -> bytes:
    """The body of a short answer.

    Args:
        remote: What is asked for, for messages.
        url: The address.
        what: The answer in messages.
        limit: The most bytes.

    Raises:
        ModelError: The answer is longer, or malformed.
        OSError, HTTPError: As for `fetch_listing`.
    """
    content = bytearray()
    with _response(remote, url, what) as response:
        for chunk in _chunks(remote, response, what):
            content += chunk
            if len(content) > limit:
                raise remote.refusal(f"{what} is larger than {limit:,} bytes")
    return bytes(content)


def fetch_file(
    remote: RemoteRepository,
    snapshot: Snapshot,
    commit: str,
    file: RemoteFile,
    report: Callable[[int], None],
) -> Path:
    """Store a file in the snapshot, continuing where an earlier attempt stopped.

    Args:
        remote: The repository.
        snapshot: Where the file is stored.
        commit: The commit of the listing that `file` is from.
        file: The file with its announced size and hash.
        report: Called with the bytes of the file that are stored so far.

    Returns:
        The path of the file in the snapshot.

    Raises:
        ModelError: The content is not what the listing announced, and the partial file is deleted;
            or an answer is refused.
        OSError: It cannot be stored, or the connection failed. The partial file is kept.
        HTTPError: (of huggingface_hub.errors) As for `fetch_listing`.
    """
    if not snapshot.holds(file):
        url = f"{remote.endpoint}/{remote.repository}/resolve/{commit}/{quote(file.name)}"
        with snapshot.locked(file, lambda: report(file.size - snapshot.missing_bytes(file))):
            if not snapshot.has_blob(file):
                _fetch_blob(remote, url, file, snapshot.partial(file), report)
                snapshot.partial(file).replace(snapshot.blob(file))
            if not snapshot.holds(file):
                snapshot.link(file)
    return snapshot.folder / file.name


def _fetch_blob(
    remote: RemoteRepository,
    url: str,
    file: RemoteFile,
    partial: Path,
    report: Callable[[int], None],
) -> None:
    """Complete the partial file and check its hash."""
    try:
        if partial.is_symlink() or (partial.exists() and partial.stat().st_size > file.size):
            partial.unlink()
        with partial.open("ab") as out:
            _receive(remote, url, file, out, report)
        if content_digest(partial, file) != file.digest:
            name, kind = file.name, "SHA-256" if len(file.digest) == 64 else "git SHA-1"
            raise _wrong_content(
                remote,
                f"{name} arrived damaged and was deleted: its {kind} is not the published one",
            )
    except _WrongContent:
        partial.unlink(missing_ok=True)
        raise
    finally:
        if file.size and partial.exists() and not partial.stat().st_size:
            partial.unlink()


def _receive(
    remote: RemoteRepository,
    url: str,
    file: RemoteFile,
    out: BinaryIO,
    report: Callable[[int], None],
) -> None:
    """Append the missing bytes of a file, reconnecting after an interruption."""
    from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]

    report(out.tell())
    failures, farthest = 0, out.tell()
    while out.tell() < file.size:
        before = out.tell()
        try:
            _receive_once(remote, url, file, out, report)
            problem: Exception = OSError("the connection was closed too early")
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status == _RANGE_NOT_SATISFIABLE:
                raise _wrong_size(remote, file, f"at most {out.tell():,}") from error
            if status < _SERVER_ERROR and status != _TOO_MANY_REQUESTS:
                raise
            problem = error
        except HTTPError as error:
            problem = error
        if out.tell() >= file.size:
            return
        if remote.silence_s is not None and out.tell() <= before:
            raise problem
        failures = 1 if out.tell() >= farthest + _PROGRESS_BYTES else failures + 1
        if failures > _RETRIES:
            raise problem
        if failures == 1:
            farthest = max(farthest, out.tell())
        time.sleep(_PAUSE_S)


def _receive_once(
    remote: RemoteRepository,
    url: str,
    file: RemoteFile,
    out: BinaryIO,
    report: Callable[[int], None],
) -> None:
    """Append bytes until the connection ends."""
    start = out.tell()
    with _response(remote, url, file.name, start) as response:
        if response.status_code != _PARTIAL_CONTENT:
            out.truncate(0)
            out.seek(0)
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise remote.refusal(f"{file.name} came from another byte than the one asked for")
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and out.tell() + int(length) != file.size:
            raise _wrong_size(remote, file, f"{out.tell() + int(length):,}")
        for chunk in _chunks(remote, response, file.name):
            if out.tell() + len(chunk) > file.size:
                raise _wrong_size(remote, file, "more")
            out.write(chunk)
            report(out.tell())


def _wrong_size(remote: RemoteRepository, file: RemoteFile, size: str) -> _WrongContent:
    problem = f"{file.name} is announced with {file.size:,} bytes, and has {size}"
    return _wrong_content(remote, problem)


def _wrong_content(remote: RemoteRepository, problem: str) -> _WrongContent:
    return _WrongContent(str(remote.refusal(problem)))


@contextmanager
def _response(remote: RemoteRepository, url: str, what: str, start: int = 0) -> Iterator[Any]:
    """A successful response whose body is not read yet. start: the first byte to request."""
    from huggingface_hub import constants, utils
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    # Uncompressed: a range of a compressed response is not a range of the file, and a small one
    # could unpack to any size.
    token = access().token if may_send_token(remote.endpoint) else False
    headers = {**build_hf_headers(token=token), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    timeout: float = constants.HF_HUB_DOWNLOAD_TIMEOUT
    if remote.silence_s is not None:
        timeout = min(timeout, remote.silence_s)
    session = utils.get_session()  # type: ignore[attr-defined]
    for _ in range(_REDIRECTS + 1):
        if not same_origin(url, remote.endpoint):
            # Content is served from other hosts, by signed addresses: they do not get the token.
            headers.pop("authorization", None)
        with session.stream(
            "GET", url, headers=headers, timeout=timeout, follow_redirects=False
        ) as response:
            _check_headers(remote, response, what)
            if not response.has_redirect_location:
                _raise_for_status(remote, response, what)
                yield response
                return
            url = _redirected(remote, url, response.headers["Location"], what)
    raise remote.refusal(f"{what} is redirected more than {_REDIRECTS} times")


def _redirected(remote: RemoteRepository, url: str, location: str, what: str) -> str:
    try:
        return redirect_target(url, location)
    except ValueError as error:
        raise remote.refusal(f"{what} is redirected to {shown(location)}, {error}") from error


def _check_headers(remote: RemoteRepository, response: Any, what: str) -> None:
    for header in _PATH_HEADERS:
        value = response.headers.get(header, "").removeprefix("W/").strip('"')
        if _PATH.search(value):
            raise remote.refusal(f"{what} comes with the {header} {shown(value)}, which is a path")


def _raise_for_status(remote: RemoteRepository, response: Any, what: str) -> None:
    """Raise the client's error for a status, without the body, which may be of any size."""
    from huggingface_hub import utils

    if response.status_code in (_OK, _PARTIAL_CONTENT):
        return
    named = ("X-Error-Code", "X-Error-Message")
    headers = {name: response.headers[name][:200] for name in named if name in response.headers}
    status, request = response.status_code, response.request
    utils.hf_raise_for_status(  # type: ignore[attr-defined]
        type(response)(status, headers=headers, content=b"", request=request)
    )
    raise remote.refusal(f"{what} was answered with status {status}")


def _chunks(remote: RemoteRepository, response: Any, what: str) -> Iterator[bytes]:
    """The body in chunks. Raises OSError if less than _PROGRESS_BYTES arrive in _STALL_S."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise remote.refusal(f"{what} is compressed ({shown(encoding)}), which was not asked for")
    since, received = time.monotonic(), 0
    for chunk in response.iter_raw():
        received += len(chunk)
        yield chunk
        now = time.monotonic()
        if now - since >= _STALL_S:
            if received < _PROGRESS_BYTES:
                raise OSError(
                    f"{what} arrives too slowly: {received:,} bytes in {now - since:.0f} s"
                )
            since, received = now, 0


def content_digest(path: Path, file: RemoteFile) -> str:
    """The hash of a stored file: SHA-256 or git's SHA-1, as `file.digest` is."""
    with path.open("rb") as content:
        if len(file.digest) == 64:
            return hashlib.file_digest(content, "sha256").hexdigest()
        size = os.fstat(content.fileno()).st_size
        sha1 = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        for block in iter(lambda: content.read(1 << 20), b""):
            sha1.update(block)
        return sha1.hexdigest()
