"""The WebSocket of the Realtime interface: /v1/realtime?intent=transcription."""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import threading
from contextlib import suppress
from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from edgeapp.memory_limit import MemoryLimitReached
from edgeapp.server.access.auth import chosen_subprotocol
from edgeapp.server.access.security import CLOSE_FORBIDDEN
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
from edgeapp.server.client_json import read_json
from edgeapp.server.fairness import MessageRates
from edgeapp.server.replies import error_content
from edgeapp.server.sessions import Sessions, TooManySessions
from edgeapp.server.transport.websockets import IDLE, TRY_AGAIN_LATER, serve_parts

__all__ = ["RealtimeSocket"]

_PATH = "/v1/realtime"
# Blocks of commands that wait for the model; then the client's bytes are not read. A command takes
# one, and one more for each 64 KB of audio: the longest message fits.
_MAX_AHEAD, _BLOCK_BYTES = 64, 1 << 16
_MAX_UNSENT = 256  # events that wait for the client; then its bytes are not read either
_MESSAGE_COST = 1.0  # see MessageRates
_LOGIN_CHECKED_S = 30.0
_IDLE_S = 15 * 60.0  # a client that sends nothing for so long gives its place away
_SENT_S = 1.0  # for the last event
_BETA_HEADER = ("openai-beta", "realtime=v1")
_POLICY_VIOLATION = 1008  # close code of WebSocket


class RealtimeSocket:
    """The endpoint of all transcription sessions.

    Args:
        service: What the interfaces share.
        sessions: All live sessions, those of the page too.
    """

    def __init__(self, service: ApiService, sessions: Sessions) -> None:
        self._service, self._sessions = service, sessions
        self._rates = MessageRates()

    @property
    def routes(self) -> list[BaseRoute]:
        """The route."""
        return [WebSocketRoute(_PATH, self.serve)]

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one session until it is closed."""
        await websocket.accept(chosen_subprotocol(websocket))
        if websocket.query_params.get("intent") != "transcription":
            refusal = ApiError(400, "only transcription sessions exist: ?intent=transcription")
            await self._refuse(websocket, refusal, _POLICY_VIOLATION)
            return
        try:
            if _model_of(websocket) == DEFAULT_MODEL:
                await self._service.check_recognizer(self._service.logins.person_of(websocket))
        except ApiError as refusal:
            await self._refuse(websocket, refusal, _POLICY_VIOLATION)
            return
        session = _Session(self._service, websocket, self._rates)
        try:
            self._sessions.acquire(session)
            with self._service.pool.memory_limit.live_session(_MAX_AHEAD * _BLOCK_BYTES):
                await session.run()
        except (MemoryLimitReached, TooManySessions) as error:
            await self._refuse(websocket, api_error_of(error), TRY_AGAIN_LATER)
        finally:
            self._sessions.release(session)

    async def _refuse(self, websocket: WebSocket, error: ApiError, code: int) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):
            await websocket.send_json({"event_id": event_id(), **_error_event(error)})
            await websocket.close(code)


class _Session:
    """One connection: a worker in a thread, and the events that go out.

    It has a place among all sessions (see `Holder`); it cannot be parked.
    """

    parked = claimed = evicted = False

    def __init__(self, service: ApiService, websocket: WebSocket, rates: MessageRates) -> None:
        self._websocket, self._service, self._rates = websocket, service, rates
        self.person = service.logins.person_of(websocket)
        self._loop = asyncio.get_running_loop()
        self._id = f"sess_{secrets.token_hex(10)}"
        header, value = _BETA_HEADER
        self._config = SessionConfig(
            model=_model_of(websocket),
            beta=websocket.headers.get(header) == value,
        )
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._room = asyncio.Semaphore(_MAX_AHEAD)
        self._worker = RealtimeWorker(
            service.pool,
            self._config,
            lambda event: self._call(self._outgoing.put_nowait, event),
            lambda command: self._call(self._taken, command),
        )

    async def run(self) -> None:
        """Serve the connection until one side closes it, or the login ends."""
        thread = threading.Thread(target=self._worker.run, name="edgeapp-realtime", daemon=True)
        thread.start()
        self._post_session("created")
        await serve_parts(self._websocket, (self._read, self._write), self.close)

    def close(self) -> None:
        """End the recognition. From any thread."""
        self._worker.cancel()

    async def _read(self) -> int:
        """Process messages until the connection is closed; returns a close code."""
        while True:
            try:
                # Not wait_for, which in Python 3.11 loses a cancellation as a message arrives.
                async with asyncio.timeout(_IDLE_S):
                    text = await self._websocket.receive_text()
            except TimeoutError:
                return await self._end_idle()
            except KeyError:
                return _POLICY_VIOLATION  # a binary message, which this interface has not
            await self._rates.take(self.person, _MESSAGE_COST)
            await self._receive(text)
            if self._outgoing.qsize() >= _MAX_UNSENT:  # a client that does not read is not read
                await self._outgoing.join()

    async def _end_idle(self) -> int:
        message = (
            f"nothing was received for {_IDLE_S / 60:g} minutes: the session ends. Open another "
            "one, or send audio of silence"
        )
        self._post(_error_event(ApiError(400, message, code="session_expired")))
        with suppress(TimeoutError):
            async with asyncio.timeout(_SENT_S):
                await self._outgoing.join()
        return IDLE

    async def _write(self) -> int:
        """Send events while the login is valid; returns a close code."""
        while True:
            event = None
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOGIN_CHECKED_S):
                    event = await self._outgoing.get()
            if self._service.logins.user_of(self._websocket) is None:
                return CLOSE_FORBIDDEN
            if event is not None:
                await self._websocket.send_json(event)
                self._outgoing.task_done()

    async def _receive(self, text: str) -> None:
        """Process a message of the client. An error is sent, and the session goes on."""
        message: Any = None
        try:
            message = read_json(text)
            if not isinstance(message, dict):
                raise ApiError(400, "a message must be a JSON object with a type")
            await self._process(message)
        except ValueError:
            self._post(_error_event(ApiError(400, "a message must be JSON")))
        except ApiError as error:
            self._post(_error_event(error, message))

    async def _process(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind in ("session.update", "transcription_session.update"):
            beta = kind != "session.update"
            updated = self._config.updated_by_beta if beta else self._config.updated
            config = updated(message.get("session"))
            await asyncio.to_thread(installed_model, config.model, "asr")
            self._config = config
            await self._put(Update(self._config))
            self._post_session("updated")
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

    def _post_session(self, what: str) -> None:
        """Send the configuration, which was created or updated."""
        kind = "transcription_session" if self._config.beta else "session"
        self._post({"type": f"{kind}.{what}", "session": self._config.as_session(self._id)})

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


def _model_of(websocket: WebSocket) -> str:
    """The model that the address of a session names, else the default one."""
    return websocket.query_params.get("model") or DEFAULT_MODEL
