"""Uploaded recordings: private temporary files, one for each tab, deleted after use."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from edgeapp.server.page.exports import declared_length
from edgeapp.temporary_folders import make_temporary_folder
from pipelines import InputError

__all__ = ["Uploads"]

_MB = 1 << 20
# The page starts the transcription as soon as the upload has ended. A recording that waits for
# longer gives way to another one.
_WAITS_S = 20.0


@dataclass
class _Tab:
    """person: whose tab it is. megabytes: the largest upload. recording: what was uploaded and is
    not used yet."""

    person: str
    megabytes: int
    recording: Path | None = None
    received_at: float = 0.0  # time.monotonic
    uploading: int = 0

    @property
    def slots(self) -> int:
        return self.uploading + (self.recording is not None)


class Uploads:
    """Recordings that were uploaded and are not used yet.

    Args:
        megabytes: The largest recording that is accepted, in MiB.
        minutes: The longest recording that is accepted.
        max_files: The number of recordings that may arrive or wait at the same time; it bounds
            the disk space.
        per_person: How many of them may be one person's.
    """

    def __init__(self, megabytes: int, minutes: float, max_files: int, per_person: int) -> None:
        self.megabytes, self.minutes = megabytes, minutes
        self._max_files, self._max_per_person = max_files, per_person
        self._folder = make_temporary_folder("uploads")
        self._tabs: dict[str, _Tab] = {}  # by token

    @property
    def limits(self) -> dict[str, float]:
        """The limits, for the page."""
        return {"megabytes": self.megabytes, "minutes": self.minutes}

    def open(self, person: str, most_mb: int | None = None) -> str:
        """A secret token for a new tab of a person, with which it can upload.

        Args:
            person: Whose tab it is.
            most_mb: A lower limit than that of recordings, in MiB.
        """
        token = secrets.token_urlsafe(24)
        self._tabs[token] = _Tab(person, min(self.megabytes, most_mb or self.megabytes))
        return token

    def close(self, token: str) -> None:
        """Invalidate a token and delete its recording."""
        if (tab := self._tabs.pop(token, None)) is not None:
            _discard(tab)

    def take(self, token: str) -> Path:
        """Hand over a tab's recording; the caller deletes it.

        Raises:
            InputError: Nothing was uploaded.
        """
        tab = self._tabs.get(token)
        if tab is None or tab.recording is None:
            raise InputError("nothing was uploaded: choose a file first")
        path, tab.recording = tab.recording, None
        return path

    def remove_all(self) -> None:
        """Invalidate all tokens and delete all recordings."""
        self._tabs.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def receive(self, request: Request) -> JSONResponse:
        """PUT the bytes of a recording; the token is in the path."""
        token = request.path_params["token"]
        tab = self._tabs.get(token)
        if tab is None:
            return _error(404, "this tab is not connected any more: reload the page")
        length = declared_length(request) or 0
        if length < 0:
            return _error(400, "the length of the upload is not a number")
        if length > tab.megabytes * _MB:
            return _too_large(tab)
        _discard(tab)  # a new recording replaces the previous one
        if (reason := self._full_for(tab.person)) is not None:
            return _error(503, reason)
        path = self._folder / secrets.token_hex(16)
        tab.uploading += 1
        try:
            size = await _store(request, path, tab.megabytes * _MB)
            if size is None:
                return _too_large(tab)
            if token not in self._tabs:
                return _error(404, "the tab was closed")
            _discard(tab)
            tab.recording, tab.received_at = path, time.monotonic()
        except ClientDisconnect:
            return _error(400, "the upload broke off")
        except OSError as error:
            return _error(507, f"the recording cannot be stored here: {error.strerror}")
        finally:
            tab.uploading -= 1
            if tab.recording != path:
                path.unlink(missing_ok=True)
        return JSONResponse({"bytes": size})

    def _full_for(self, person: str) -> str | None:
        """Why this person cannot upload now; None if a slot is free or was made free."""
        while True:
            tabs = list(self._tabs.values())
            own = [tab for tab in tabs if tab.person == person]
            if sum(tab.slots for tab in own) >= self._max_per_person:
                candidates = own
                count = sum(tab.slots for tab in own)
            elif sum(tab.slots for tab in tabs) >= self._max_files:
                candidates = tabs
                count = self._max_files
            else:
                return None
            latest = time.monotonic() - _WAITS_S
            stale = [tab for tab in candidates if tab.recording and tab.received_at < latest]
            if not stale:
                recordings = "1 recording is" if count == 1 else f"{count} recordings are"
                return f"this machine is busy: {recordings} waiting. Try again in a minute."
            _discard(min(stale, key=lambda tab: tab.received_at))


async def _store(request: Request, path: Path, limit: int) -> int | None:
    """Write a request's body to a file; its size in bytes, None if that is over the limit."""
    size = 0
    with await asyncio.to_thread(path.open, "xb") as file:
        async for block in request.stream():
            size += len(block)
            if size > limit:
                return None
            if block:
                await asyncio.to_thread(file.write, block)
    return size


def _too_large(tab: _Tab) -> JSONResponse:
    return _error(413, f"the file is larger than the limit of {tab.megabytes} MB")


def _discard(tab: _Tab) -> None:
    """Delete the recording of a tab, if it has one."""
    if tab.recording is not None:
        tab.recording.unlink(missing_ok=True)
        tab.recording = None


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
