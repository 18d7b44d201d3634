"""The recordings of the history, to be played by the page."""

from __future__ import annotations

import asyncio
import mimetypes
import re
from collections.abc import Callable
from pathlib import PurePath

from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, Response

from edgeapp.history import History
from pipelines import EdgeError

__all__ = ["Sounds", "media_suffix"]

_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}", re.ASCII)


class Sounds:
    """The route of the recordings.

    Args:
        history: Of all users.
        user_of: The user of a request.
    """

    def __init__(self, history: History, user_of: Callable[[HTTPConnection], str | None]) -> None:
        self._history, self._user_of = history, user_of

    async def get(self, request: Request) -> Response:
        """GET the recording of a record, or a range of its bytes."""
        history = self._history.of(self._user_of(request) or "")
        record = int(request.path_params["record"])
        try:
            path = await asyncio.to_thread(history.sound, record)
        except EdgeError as error:
            return JSONResponse({"error": str(error)}, 500)
        if path is None:
            return JSONResponse({"error": "the sound of this record was deleted"}, 404)
        return FileResponse(path, media_type=_media_type(path.name) or "application/octet-stream")


def media_suffix(name: str) -> str:
    """The suffix of a recording's file name, as ".flac"; "" if it is not that of sound or video."""
    suffix = PurePath(name).suffix.lower()
    return suffix if _SUFFIX.fullmatch(suffix) and _media_type(suffix) else ""


def _media_type(name: str) -> str | None:
    kind = mimetypes.guess_type(f"sound{PurePath(name).suffix or name}")[0] or ""
    return kind if kind.startswith(("audio/", "video/")) else None
