"""Recordings that pages send: each in a private folder, for one tab, and gone when it is done."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse

from pipelines import InputError

__all__ = ["Uploads"]

_MB = 1 << 20


class Uploads:
    """What tabs have sent and not used yet. megabytes, minutes: the longest recording taken.
    most: so many tabs may send at once, or the disk would be anybody's to fill."""

    def __init__(self, megabytes: int, minutes: float, most: int) -> None:
        self.megabytes, self.minutes, self._most = megabytes, minutes, most
        self._arriving = 0
        self._folder = Path(tempfile.mkdtemp(prefix="edgeapp-uploads-"))  # readable by us alone
        self._files: dict[str, Path | None] = {}

    @property
    def limits(self) -> dict[str, float]:
        return {"megabytes": self.megabytes, "minutes": self.minutes}

    def open(self) -> str:
        """A token for a new tab; whoever knows it may send that tab's recordings."""
        token = secrets.token_urlsafe(24)
        self._files[token] = None
        return token

    def close(self, token: str) -> None:
        """The tab is gone, and its recording with it."""
        if (path := self._files.pop(token, None)) is not None:
            path.unlink(missing_ok=True)

    def take(self, token: str) -> Path:
        """The tab's recording, which is now the taker's to delete. Raises InputError."""
        path = self._files.get(token)
        if path is None:
            raise InputError("no recording has been sent yet: choose a file first")
        self._files[token] = None
        return path

    def remove_all(self) -> None:
        """The server ends."""
        self._files.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def receive(self, request: Request) -> JSONResponse:
        """PUT: the bytes of a recording, for the tab whose token is in the path."""
        token = request.path_params["token"]
        if token not in self._files:
            return _refused(404, "this tab is not connected any more: reload the page")
        most = self.megabytes * _MB
        too_much = f"the file is larger than the {self.megabytes} MB that are taken here"
        if int(request.headers.get("content-length") or 0) > most:
            return _refused(413, too_much)
        waiting = sum(path is not None for path in self._files.values())
        if self._arriving + waiting >= self._most:
            return _refused(503, f"this machine is busy: {self._most} recordings wait already")
        self._arriving += 1
        path = self._folder / secrets.token_hex(16)
        size = 0
        try:
            with path.open("xb") as file:
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > most:
                        return _refused(413, too_much)
                    file.write(chunk)
            if token not in self._files:
                return _refused(404, "the tab was closed")
            self.close(token)
            self._files[token] = path
        finally:
            self._arriving -= 1
            if path not in self._files.values():
                path.unlink(missing_ok=True)
        return JSONResponse({"bytes": size})


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
