"""The page and its scripts travel compressed; texts of users do not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgeapp.server.transport.compression import CompressedPage


@pytest.mark.parametrize(
    ("path", "compressed"),
    [
        ("/", True),
        ("/edgeapp/static/live.js", True),
        ("/edgeapp/export", False),
        ("/v1/models", False),
    ],
)
def test_only_what_everybody_gets_is_compressed(path: str, compressed: bool) -> None:
    body = b"the same words again. " * 500

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    headers = [(b"accept-encoding", b"gzip")]
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers}
    asyncio.run(CompressedPage(app)(scope, receive, send))
    size = sum(len(message.get("body", b"")) for message in sent[1:])
    assert (size < len(body) / 10) == compressed
    assert ((b"content-encoding", b"gzip") in sent[0]["headers"]) == compressed
