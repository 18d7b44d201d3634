"""Uploaded recordings: private temporary files, one for each tab, deleted after use."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse

from edgeapp.temporary_folders import make_temporary_folder
from pipelines import InputError

__all__ = ["Uploads"]

_MB = 1 << 20


class Uploads:
    """Recordings that were uploaded and are not used yet.

    Args:
        megabytes: The largest recording that is accepted, in MiB.
        minutes: The longest recording that is accepted.
        max_files: The number of tabs that may upload or hold a recording at the same time; it
            bounds the disk space.
    """

    def __init__(self, megabytes: int, minutes: float, max_files: int) -> None:
        self.megabytes, self.minutes, self._max_files = megabytes, minutes, max_files
        self._uploading = 0
        self._folder = make_temporary_folder("uploads")
        self._files: dict[str, Path | None] = {}  # token → recording

    @property
    def limits(self) -> dict[str, float]:
        """The limits, for the page."""
        return {"megabytes": self.megabytes, "minutes": self.minutes}

    def open(self) -> str:
        """A secret token for a new tab, with which it can upload."""
        token = secrets.token_urlsafe(24)
        self._files[token] = None
        return token

    def close(self, token: str) -> None:
        """Invalidate a token and delete its recording."""
        if (path := self._files.pop(token, None)) is not None:
            path.unlink(missing_ok=True)

    def take(self, token: str) -> Path:
        """Hand over a tab's recording; the caller deletes it.

        Raises:
            InputError: Nothing was uploaded.
        """
        path = self._files.get(token)
        if path is None:
            raise InputError("no recording was uploaded: choose a file first")
        self._files[token] = None
        return path

    def remove_all(self) -> None:
        """Invalidate all tokens and delete all recordings."""
        self._files.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def receive(self, request: Request) -> JSONResponse:
        """PUT the bytes of a recording; the token is in the path."""
        token = request.path_params["token"]
        if token not in self._files:
            return _error(404, "this tab is not connected any more: reload the page")
        max_bytes = self.megabytes * _MB
        too_large = f"the file is larger than the limit of {self.megabytes} MB"
        if int(request.headers.get("content-length") or 0) > max_bytes:
            return _error(413, too_large)
        held = sum(path is not None for path in self._files.values())
        if self._uploading + held >= self._max_files:
            return _error(503, f"this machine is busy: {self._max_files} recordings are waiting")
        self._uploading += 1
        path = self._folder / secrets.token_hex(16)
        size = 0
        try:
            with path.open("xb") as file:
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > max_bytes:
                        return _error(413, too_large)
                    file.write(chunk)
            if token not in self._files:
                return _error(404, "the tab was closed")
            self.close(token)
            self._files[token] = path
        finally:
            self._uploading -= 1
            if path not in self._files.values():
                path.unlink(missing_ok=True)
        return JSONResponse({"bytes": size})


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
