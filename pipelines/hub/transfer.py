"""Download the files of a repository with huggingface_hub: eight at a time, resumable, checked.

`hf_hub_download` transfers files, by Xet where the hub offers it, and links them into the cache.
`snapshot_download` is not used: it lists the repository a second time, returns an incomplete folder
if that fails, and ends after Ctrl-C only once its running files are whole.

huggingface_hub deletes its temporary file if a download ends early. A second name keeps what came
by HTTP, and the next attempt continues there. Xet's parts do not arrive in order: a file that Xet
did not complete starts anew.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import ModelError
from pipelines.hub.cache import cache_folder
from pipelines.hub.client import Call, RemoteRepository, is_storage_error
from pipelines.hub.listing import RemoteFile

if TYPE_CHECKING:
    from pipelines.hub.snapshot import Snapshot

_WORKERS = 8
_RETRIES = 5  # consecutive ones with less than _PROGRESS_BYTES each
_PAUSE_S = 1.0  # before each retry
_PROGRESS_BYTES = 64 << 10
_SERVER_ERROR = 500
_POLL_S = 0.1
_END_S = 2.0  # until downloads that were told to end are left to the limits of their connections
_WEIGHTS = (".safetensors", ".bin")

Report = Callable[[str, int], None]
"""Called with a file that is being downloaded, and with the bytes of all files that are stored."""


class _Stopped(Exception):
    """Another file of the same download failed, or the user ended it."""


def fetch_files(
    remote: RemoteRepository,
    snapshot: Snapshot,
    files: Sequence[RemoteFile],
    report: Report,
) -> None:
    """Store files in the snapshot. Weights come last: a folder that has them is complete.

    Args:
        remote: The repository.
        snapshot: Where the files are stored; they are listed for its commit.
        files: With their announced sizes and hashes.
        report: Called in this thread. An exception from it ends the download and keeps what came.

    Raises:
        ModelError, OSError, HTTPError: As for `fetch_file`.
    """
    done = 0
    weights = [file for file in files if file.name.endswith(_WEIGHTS)]
    for group in ([file for file in files if file not in weights], weights):
        missing = [file for file in group if not snapshot.is_checked(file)]
        done += sum(file.size for file in group if file not in missing)
        if group:
            report(group[-1].name, done)
        if len(missing) == 1:  # in this thread, which Ctrl-C interrupts at once
            (file,) = missing
            before = done
            told: Callable[[int], None] = lambda n: report(file.name, before + n)  # noqa: B023, E731
            fetch_file(remote, snapshot, file, told)
        elif missing:
            _fetch_together(remote, snapshot, missing, lambda n, b: report(n, done + b))  # noqa: B023
        done += sum(file.size for file in missing)
        if missing:
            report(missing[-1].name, done)


def _fetch_together(
    remote: RemoteRepository,
    snapshot: Snapshot,
    files: Sequence[RemoteFile],
    report: Report,
) -> None:
    stopped = threading.Event()
    stored = dict.fromkeys((file.name for file in files), 0)

    def fetch(file: RemoteFile) -> RemoteFile:
        def tell(count: int) -> None:
            if stopped.is_set():
                raise _Stopped
            stored[file.name] = count

        tell(0)
        fetch_file(remote, snapshot, file, tell)
        stored[file.name] = file.size
        return file

    pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="pull")
    running = {pool.submit(copy_context().run, fetch, file) for file in files}
    counted, since = 0, time.monotonic()
    try:
        while running:
            done, running = wait(running, _POLL_S, FIRST_COMPLETED)
            failed = [error for each in done if (error := each.exception()) is not None]
            if failed:
                pool.shutdown(wait=False, cancel_futures=True)
                wait(running, _END_S)  # small files are whole by then
                raise failed[0]
            largest = max(files, key=lambda file: file.size - stored[file.name])
            count = sum(stored.values())
            report(largest.name, count)
            if count != counted:
                counted, since = count, time.monotonic()
            elif remote.silence_s is not None and time.monotonic() - since > remote.silence_s:
                # No limit of a connection's time covers the look-up of its address.
                raise OSError(f"it did not answer within {remote.silence_s:g} s")
    except BaseException:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        wait(running, _END_S)
        raise
    pool.shutdown()


def fetch_file(
    remote: RemoteRepository,
    snapshot: Snapshot,
    file: RemoteFile,
    report: Callable[[int], None],
) -> Path:
    """Store a file in the snapshot, continuing where an earlier attempt stopped.

    Args:
        remote: The repository.
        snapshot: As for `fetch_files`.
        file: The file with its announced size and hash.
        report: Called with the bytes of the file that are stored so far.

    Returns:
        The path of the file in the snapshot.

    Raises:
        ModelError: The content is not what the listing announced. It is deleted.
        OSError: It cannot be stored, or the connection failed. The partial file is kept.
        HTTPError: (of huggingface_hub.errors) As for `fetch_listing`.
    """
    failures, farthest = 0, snapshot.part_bytes(file)
    while not snapshot.is_checked(file):
        before = snapshot.part_bytes(file)
        try:
            _transfer(remote, snapshot, file, report)
        except ModelError:
            snapshot.discard(file)
            raise
        except Exception as error:
            have = snapshot.part_bytes(file)
            if not _may_pass(error) or (remote.silence_s is not None and have <= before):
                raise
            failures = 1 if have >= farthest + _PROGRESS_BYTES else failures + 1
            if failures > _RETRIES:
                raise
            if failures == 1:
                farthest = max(farthest, have)
            time.sleep(_PAUSE_S)
    return snapshot.folder / file.name


def content_digest(path: Path, file: RemoteFile) -> str:
    """Return the hash of a stored file: SHA-256 or git's SHA-1, as `file.digest` is."""
    with path.open("rb") as content:
        if len(file.digest) == 64:
            return hashlib.file_digest(content, "sha256").hexdigest()
        size = os.fstat(content.fileno()).st_size
        sha1 = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        for block in iter(lambda: content.read(1 << 20), b""):
            sha1.update(block)
        return sha1.hexdigest()


def _may_pass(error: Exception) -> bool:
    """Return whether another attempt may help."""
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        HfHubHTTPError,
        HTTPError,
        LocalEntryNotFoundError,  # huggingface_hub has tried again already
    )

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code >= _SERVER_ERROR
    if isinstance(error, LocalEntryNotFoundError) or is_storage_error(error):
        return False
    return isinstance(error, (OSError, HTTPError))


def _transfer(
    remote: RemoteRepository,
    snapshot: Snapshot,
    file: RemoteFile,
    report: Callable[[int], None],
) -> None:
    """Bring the rest of a file, or as much of it as one connection brings, and check the whole."""
    from huggingface_hub import hf_hub_download

    snapshot.discard_other_sizes(file)
    part = snapshot.part_bytes(file)
    if not (snapshot.holds(file) or snapshot.has_blob(file)):
        call = Call(remote, file.name, file.size, file, snapshot.commit, part, report=report)
        if not part:
            call.begun = lambda: snapshot.keep_part(file)
        try:
            with call.running():
                if part:
                    _continue(call, snapshot)
                else:
                    hf_hub_download(
                        remote.repository,
                        file.name,
                        revision=snapshot.commit,
                        cache_dir=cache_folder(),
                        endpoint=remote.endpoint,
                        token=remote.token,
                        tqdm_class=_bar(call),
                    )
        except (AttributeError, RuntimeError) as error:
            # huggingface_hub closes the client of all threads when one of them cannot connect.
            raise OSError("the connection was closed") from error
        except Exception as error:
            if call.ended is not None and not is_storage_error(error):
                raise call.ended from error
            raise
        if call.ended is not None and not isinstance(call.ended, OSError):
            raise call.ended  # it was whole, and there is more, or the user ended the download
    with snapshot.locked(file):
        if not snapshot.holds(file):
            snapshot.link(file)
    if content_digest(snapshot.folder / file.name, file) != file.digest:
        kind = "SHA-256" if len(file.digest) == 64 else "git SHA-1"
        raise remote.refusal(
            f"{file.name} arrived damaged and was deleted: its {kind} is not the published one"
        )
    snapshot.forget_part(file)


def _continue(call: Call, snapshot: Snapshot) -> None:
    """Append the missing bytes to the first part of a file, and make it a blob."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get  # without it, nothing continues a file
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    file, remote = call.file, call.remote
    assert file is not None
    with snapshot.locked(file):
        if snapshot.has_blob(file):  # another process has completed it
            return
        url = hf_hub_url(
            remote.repository, file.name, revision=call.commit, endpoint=remote.endpoint
        )
        with snapshot.partial(file).open("ab") as out:
            http_get(
                url,
                out,
                resume_size=out.tell(),
                headers=build_hf_headers(token=remote.token),
                expected_size=file.size,
                tqdm_class=_bar(call),
            )
        snapshot.complete_part(file)


def _bar(call: Call) -> Any:
    """Return a class of progress bars for a file that show nothing and tell the call.

    What comes by HTTP is counted as it arrives; this is for Xet.
    """
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]
            self._count = 0

        def update(self, n: float | None = 1) -> None:
            self._count += int(n or 0)
            if not call.by_http:
                call.report(self._count)

        def update_transfer(self, n: float | None = 1) -> None:
            """Bytes on the line, which Xet packs. With this method there is one bar for both."""

        def set_transfer_postfix_str(self, *_: Any, **__: Any) -> None:
            """The speed, which is not shown."""

    return Bar
