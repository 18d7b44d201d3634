"""Export of a transcript, as the page shows it, in a file format. Nothing is stored."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Iterator
from typing import BinaryIO

from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from edgeapp.server.fairness import FairThreads, Turns
from edgeapp.server.transcripts import render_message
from pipelines import EdgeError

__all__ = ["Exports", "declared_length"]

_MAX_BYTES = 64 << 20
_SMALL_BYTES = 256 << 10  # rendered in a thread; it takes some 10 ms
_MAX_PROCESSES = 2
_LONGEST_S = 180.0
_BLOCK = 1 << 16


class Exports:
    """The exports of all pages: one at a time for each person, large ones in a child process.

    Args:
        threads: For small transcripts.
        person_of: Whom a request's limits apply to.
    """

    def __init__(self, threads: FairThreads, person_of: Callable[[HTTPConnection], str]) -> None:
        self._threads, self._person_of = threads, person_of
        self._turns, self._processes = Turns(1), asyncio.Semaphore(_MAX_PROCESSES)

    async def export(self, request: Request) -> Response:
        """POST a transcript, as `render_message` takes it; the response is the file."""
        if (declared_length(request) or 0) > _MAX_BYTES:
            return _error(413, "this transcript is too large to export")
        person = self._person_of(request)
        async with self._turns.of(person):
            with await asyncio.to_thread(tempfile.TemporaryFile) as body:
                size = await _receive(request, body)
                if size is None:
                    return _error(413, "this transcript is too large to export")
                if size <= _SMALL_BYTES:
                    return await self._render(person, body.read())
                async with self._processes:
                    return await _render_in_process(request, body)

    async def _render(self, person: str, body: bytes) -> Response:
        try:
            content = await self._threads.run(person, lambda: render_message(body))
        except EdgeError as error:
            return _error(400, str(error))
        return Response(content, media_type="text/plain")


async def _receive(request: Request, body: BinaryIO) -> int | None:
    """Store a request's body; its size, or None if it is too large or breaks off."""
    size = 0
    try:
        async for block in request.stream():
            size += len(block)
            if size > _MAX_BYTES:
                return None
            await asyncio.to_thread(body.write, block)
    except ClientDisconnect:
        return None
    body.seek(0)
    return size


async def _render_in_process(request: Request, body: BinaryIO) -> Response:
    # The child finds the modules where this process does, and nowhere else.
    path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path if folder)  # noqa: PTH100
    rendered = await asyncio.to_thread(tempfile.TemporaryFile)  # the response closes it
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "edgeapp.server.transcripts",
            stdin=body, stdout=rendered, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        ended = asyncio.create_task(process.wait())
        left = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait((ended, left), timeout=_LONGEST_S, return_when=FIRST_COMPLETED)
        finally:
            left.cancel()
            if not ended.done():
                process.kill()
        code = await ended
        rendered.seek(0)
    except BaseException:
        rendered.close()
        raise
    if code == 0:
        return StreamingResponse(_blocks(rendered), media_type="text/plain")
    with rendered:
        reason = rendered.read(1000).decode("utf-8", "replace") if code == 1 else ""
    return _error(400, reason or "this transcript is too large to export")


async def _disconnected(request: Request) -> None:
    """Wait until the browser has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK):
            yield block


def declared_length(request: Request) -> int | None:
    """The Content-Length of a request. None: it is missing. -1: it is not a number."""
    text = request.headers.get("content-length")
    if text is None:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
