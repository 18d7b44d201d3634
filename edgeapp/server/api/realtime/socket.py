"""The WebSocket of the Realtime interface: /v1/realtime?intent=transcription."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import secrets
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from edgeapp.memory_limit import MemoryLimitReached
from edgeapp.server.api.errors import ApiError, api_error_of
from edgeapp.server.api.openai_audio import DEFAULT_MODEL, installed_model
from edgeapp.server.api.realtime.config import SessionConfig
from edgeapp.server.api.realtime.worker import (
    Append,
    Clear,
    Command,
    Commit,
    RealtimeWorker,
    Update,
    event_id,
)
from edgeapp.server.api.service import ApiService
from edgeapp.server.replies import error_content

__all__ = ["RealtimeSocket"]

_PATH = "/v1/realtime"
# Blocks of commands that wait for the model; then the client's bytes are not read. A command takes
# one, and one more for each 64 KB of audio: the longest message fits.
_MAX_AHEAD, _BLOCK_BYTES = 64, 1 << 16
_MAX_UNSENT = 256  # events that wait for the client; then its bytes are not read either
_POLICY_VIOLATION, _TRY_AGAIN_LATER = 1008, 1013  # close codes of WebSocket


class RealtimeSocket:
    """The endpoint of all transcription sessions.

    Args:
        service: What the interfaces share.
    """

    def __init__(self, service: ApiService) -> None:
        self._service = service
        self._open: Counter[str] = Counter()  # sessions by person

    @property
    def routes(self) -> list[BaseRoute]:
        """The route."""
        return [WebSocketRoute(_PATH, self.serve)]

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one session until it is closed."""
        offered = websocket.scope.get("subprotocols", [])
        await websocket.accept("realtime" if "realtime" in offered else None)
        person, options = self._service.logins.person_of(websocket), self._service.options
        with suppress(WebSocketDisconnect, RuntimeError):
            if websocket.query_params.get("intent") != "transcription":
                await self._refuse(
                    websocket,
                    ApiError(400, "only transcription sessions exist: ?intent=transcription"),
                    _POLICY_VIOLATION,
                )
                return
            full = sum(self._open.values()) >= options.sessions
            if full or self._open[person] >= options.sessions_per_person:
                await self._refuse(
                    websocket,
                    ApiError(429, "this machine is busy with other sessions; try again later"),
                    _TRY_AGAIN_LATER,
                )
                return
        self._open[person] += 1
        try:
            with self._service.pool.memory_limit.live_session(_MAX_AHEAD * _BLOCK_BYTES):
                await _Session(self._service, websocket).run()
        except MemoryLimitReached as error:
            with suppress(WebSocketDisconnect, RuntimeError):
                await self._refuse(websocket, api_error_of(error), _TRY_AGAIN_LATER)
        finally:
            self._open[person] -= 1
            if not self._open[person]:
                del self._open[person]

    async def _refuse(self, websocket: WebSocket, error: ApiError, code: int) -> None:
        await websocket.send_json({"event_id": event_id(), **_error_event(error)})
        await websocket.close(code)


class _Session:
    """One connection: a worker in a thread, and the events that go out."""

    def __init__(self, service: ApiService, websocket: WebSocket) -> None:
        self._websocket, self._service = websocket, service
        self._loop = asyncio.get_running_loop()
        self._id = f"sess_{secrets.token_hex(10)}"
        # GA clients name the model in the session, some in the address.
        self._config = SessionConfig(model=websocket.query_params.get("model") or DEFAULT_MODEL)
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._room = asyncio.Semaphore(_MAX_AHEAD)
        self._worker = RealtimeWorker(
            service.pool,
            self._config,
            lambda event: self._call(self._outgoing.put_nowait, event),
            lambda command: self._call(self._taken, command),
        )

    async def run(self) -> None:
        """Serve the connection until one side closes it."""
        thread = threading.Thread(target=self._worker.run, name="edgeapp-realtime", daemon=True)
        thread.start()
        sending = asyncio.ensure_future(self._send())
        try:
            self._post({"type": "session.created", "session": self._config.as_session(self._id)})
            while True:
                await self._receive(await self._websocket.receive_text())
                await self._until_read(sending)
        except (WebSocketDisconnect, RuntimeError, KeyError):
            pass  # KeyError: a binary message, which this interface has not
        finally:
            self._worker.cancel()
            sending.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await sending

    async def _receive(self, text: str) -> None:
        """Process a message of the client. An error is sent, and the session goes on."""
        message: Any = None
        try:
            message = json.loads(text)
            if not isinstance(message, dict):
                raise ApiError(400, "a message must be a JSON object with a type")
            await self._process(message)
        except (ValueError, RecursionError):
            self._post(_error_event(ApiError(400, "a message must be JSON")))
        except ApiError as error:
            self._post(_error_event(error, message))

    async def _process(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "session.update":
            config = self._config.updated(message.get("session"))
            await asyncio.to_thread(installed_model, config.model, "asr")
            self._config = config
            await self._put(Update(self._config))
            session = self._config.as_session(self._id)
            self._post({"type": "session.updated", "session": session})
        elif kind == "input_audio_buffer.append":
            await self._put(Append(_audio_of(message)))
        elif kind == "input_audio_buffer.commit":
            await self._put(Commit())
        elif kind == "input_audio_buffer.clear":
            await self._put(Clear())
        else:
            raise ApiError(
                400,
                f"unknown event {str(kind)[:60]!r}: a transcription session takes session.update "
                "and input_audio_buffer.append, commit and clear",
                code="unknown_event",
                param="type",
            )

    async def _put(self, command: Command) -> None:
        for _ in range(_blocks(command)):
            await self._room.acquire()
        self._worker.put(command)

    def _taken(self, command: Command) -> None:
        """The worker has processed a command."""
        for _ in range(_blocks(command)):
            self._room.release()

    async def _until_read(self, sending: asyncio.Future[None]) -> None:
        """Wait for a client that does not read what it is sent."""
        if self._outgoing.qsize() < _MAX_UNSENT:
            return
        sent = asyncio.ensure_future(self._outgoing.join())
        try:
            await asyncio.wait((sent, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sent.cancel()

    async def _send(self) -> None:
        while True:
            await self._websocket.send_json(await self._outgoing.get())
            self._outgoing.task_done()

    def _post(self, event: dict[str, Any]) -> None:
        self._outgoing.put_nowait({"event_id": event_id(), **event})

    def _call(self, function: Any, *arguments: Any) -> None:
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(function, *arguments)


def _blocks(command: Command) -> int:
    return 1 + (len(command.audio) // _BLOCK_BYTES if isinstance(command, Append) else 0)


def _audio_of(message: dict[str, Any]) -> bytes:
    audio = message.get("audio")
    if not isinstance(audio, str):
        raise ApiError(400, "'audio' is missing: it is base64", param="audio")
    try:
        return base64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, "'audio' is not base64", param="audio") from None


def _error_event(error: ApiError, message: Any = None) -> dict[str, Any]:
    """An error event; it names the client's event, where that has an id."""
    refusal = api_error_of(error)
    content = error_content(
        _PATH, refusal.status, refusal.message, code=refusal.code, param=refusal.param
    )
    fields: Any = content["error"]
    if isinstance(message, dict) and isinstance(message.get("event_id"), str):
        fields["event_id"] = message["event_id"][:100]
    return {"type": "error", **content}
