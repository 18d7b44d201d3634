"""The WebSocket of programs for live recognition: /v1/live.

The address has the options; binary frames are 16-bit little-endian mono audio, and the server sends
the events of live captions in JSON. When a connection is lost, another one names the session and
the last event that arrived: no sound and no event is lost, because the server says how many samples
it has received.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from edgeapp.server.access.auth import chosen_subprotocol
from edgeapp.server.access.security import CLOSE_FORBIDDEN
from edgeapp.server.api.errors import ApiError, api_error_of
from edgeapp.server.api.openai_audio import DEFAULT_MODEL, installed_model
from edgeapp.server.api.service import ApiService
from edgeapp.server.client_json import read_json
from edgeapp.server.fairness import MessageRates
from edgeapp.server.page.picker_options import ModelChoice
from edgeapp.server.parking import Parking
from edgeapp.server.sessions import Message, Session, Sessions
from edgeapp.server.tasks.event_task import EventTask
from edgeapp.server.transport.outbox import Outbox
from edgeapp.server.transport.websockets import IDLE, TRY_AGAIN_LATER, close_when_full, serve_parts
from pipelines import EdgeError
from pipelines.languages import language_code

__all__ = ["LiveSocket"]

_TEXTS = ("prompt", "hotwords")
_OPTIONS = (
    "rate", "language", "languages", "model", "translate_to", *_TEXTS, "correct", "speakers",
    "session", "after",
)  # fmt: skip
_MAX_TEXT = 2_000  # characters: more than a prompt has room for
_DEFAULT_RATE = 16_000  # Hz
_MAX_AHEAD_S = 20.0  # of audio that waits for the model; then the client's bytes are not read
_PIECE_S = 5.0  # of audio that is passed on at a time
_ROOM_CHECKED_S = 0.02
_AUDIO_COST, _TEXT_COST = 1.0, 12.0  # see MessageRates
_LOGIN_CHECKED_S = 30.0
_IDLE_S = 15 * 60.0  # a client that sends nothing for so long gives its place away
# Close codes of WebSocket.
_DONE, _POLICY_VIOLATION = 1000, 1008


class LiveSocket:
    """The endpoint of all programs.

    Args:
        service: What it shares with the other interfaces.
        sessions: All sessions, those of the page too.
    """

    def __init__(self, service: ApiService, sessions: Sessions) -> None:
        self.service, self.sessions = service, sessions
        self.parking, self.rates = Parking(), MessageRates()
        self.connections: dict[str, _Connection] = {}  # by the token of their session

    @property
    def routes(self) -> list[BaseRoute]:
        """The route."""
        return [WebSocketRoute("/v1/live", self.serve)]

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one connection until it is closed."""
        await websocket.accept(chosen_subprotocol(websocket))
        connection = _Connection(self, websocket)
        try:
            await connection.begin()
        except (ApiError, EdgeError) as error:
            refusal = api_error_of(error)
            busy = refusal.status == 429
            with suppress(WebSocketDisconnect, RuntimeError):
                await websocket.send_json({"type": "error", "message": refusal.message})
                await websocket.close(TRY_AGAIN_LATER if busy else _POLICY_VIOLATION)
            return
        await connection.run()


class _Connection:
    """One connection: audio in, the events of its session out."""

    def __init__(self, endpoint: LiveSocket, websocket: WebSocket) -> None:
        self._endpoint, self._websocket = endpoint, websocket
        self._logins = endpoint.service.logins
        self.user = self._logins.user_of(websocket) or ""
        self._person = self._logins.person_of(websocket)
        self._outbox = Outbox()
        self._token, self._after = "", 0
        self._session: Session | None = None  # None: another connection has taken it
        self._loop = asyncio.get_running_loop()
        self._ended = False  # the session has ended; what waits is still sent
        self._close_code = _DONE
        self._stopped = False  # the client has sent all its audio
        self._resuming = False  # a session that was taken up has not said `resumed` yet

    async def begin(self) -> None:
        """Begin a session, or take one up.

        Raises:
            ApiError, EdgeError: The options are invalid, or there is no room.
        """
        options = _options(self._websocket)
        if "session" in options:
            await self._take_up(options["session"], _number(options, "after", 0))
            return
        if "after" in options:
            raise ApiError(400, "'after' goes with 'session'")
        if (options.get("model") or DEFAULT_MODEL) == DEFAULT_MODEL:
            await self._endpoint.service.check_recognizer(self._person)
        choice = await asyncio.to_thread(_choice, options)
        rate = _number(options, "rate", _DEFAULT_RATE)
        names = options.get("speakers")
        speakers = names.split(",") if names else ()
        task = EventTask(self._endpoint.service.pool, choice, rate, speakers)
        self._token = secrets.token_urlsafe(24)
        self._session = Session(self._endpoint.sessions, self._put, self._person)
        self._put({"type": "started", "session": self._token, "rate": rate, "received": 0})
        self._session.start(task)
        self._endpoint.connections[self._token] = self

    async def run(self) -> None:
        """Serve until the session has ended, or one side closes the connection."""
        parts = (self._read, self._write, partial(close_when_full, self._outbox))
        await serve_parts(self._websocket, parts, self._leave)

    def give_up(self) -> None:
        """Park the session and close the connection: its client has opened another one.

        The connection may still be taking the session up.
        """
        self._leave()
        self._outbox.full.set()

    def _leave(self) -> None:
        """Park the session, or close it."""
        session, self._session = self._session, None
        if self._endpoint.connections.get(self._token) is self:
            del self._endpoint.connections[self._token]
        if session is None:
            return
        logged_in = self._logins.user_of(self._websocket) is not None
        parked = logged_in and self._endpoint.parking.park([self._token], session, self.user)
        if not parked:
            session.close()

    async def _take_up(self, token: str, after: int) -> None:
        endpoint = self._endpoint
        previous = endpoint.connections.get(token)
        # The server may not have noticed yet that it was lost.
        if previous is not None and previous.user == self.user:
            previous.give_up()
        session = endpoint.parking.take(token, self.user)
        if session is None:
            raise _gone()
        self._token, self._after, self._session = token, after, session
        self._resuming = True
        endpoint.connections[token] = self
        try:
            # In a thread: it waits until an event that is being sent is kept.
            attached = await asyncio.to_thread(session.attach, self._put, session.parkings)
        except BaseException:
            self._leave()
            raise
        if not attached and self._session is session:
            self._leave()
            raise _gone()

    def _put(self, message: Message) -> None:
        """Queue a message for the client. From any thread."""
        self._resuming = self._resuming and message["type"] != "resumed"
        if self._resuming and "id" in message:
            return  # an event of this moment: it comes again behind `resumed`
        if message["type"] == "idle":
            with suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(self._end)
        elif message.get("id", self._after + 1) > self._after:
            self._outbox.put({key: value for key, value in message.items() if key != "kind"})

    def _end(self) -> None:
        self._ended = True
        self._outbox.wake()

    async def _write(self) -> int:
        """Send messages; returns a close code."""
        while True:
            if self._ended and self._outbox.empty:
                return self._close_code
            text = await self._outbox.get(_LOGIN_CHECKED_S)
            if self._logins.user_of(self._websocket) is None:
                return CLOSE_FORBIDDEN
            if text is not None:
                await self._websocket.send_text(text)

    async def _read(self) -> int:
        """Receive audio until the connection is closed; returns a close code."""
        while True:
            try:
                # Not wait_for, which in Python 3.11 loses a cancellation as a message arrives.
                async with asyncio.timeout(None if self._stopped else _IDLE_S):
                    frame = await self._websocket.receive()
            except TimeoutError:
                self._end_idle()
                continue
            if frame["type"] == "websocket.disconnect":
                return 0
            audio = frame.get("bytes")
            await self._endpoint.rates.take(
                self._person, _TEXT_COST if audio is None else _AUDIO_COST
            )
            if audio is None:
                if _type_of(frame.get("text") or "") == "stop":
                    self._stopped = True
                    if self._session is not None:
                        self._session.stop("live")
                    continue
                self._outbox.put({"type": "error", "message": 'the only text is {"type": "stop"}'})
            elif not await self._receive_audio(audio):
                return _POLICY_VIOLATION

    def _end_idle(self) -> None:
        """End the session of a client that sends nothing; the writer closes the connection."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        message = f"nothing was received for {_IDLE_S / 60:g} minutes: the session ends"
        self._outbox.put({"type": "error", "message": message})
        self._stopped, self._close_code = True, IDLE
        self._loop.call_soon(self._end)  # after the message is queued

    async def _receive_audio(self, audio: bytes) -> bool:
        """Pass audio on as the model takes it; False: it is not valid."""
        task = None if self._session is None else self._session.task("live")
        if not isinstance(task, EventTask):
            return True  # the session has ended
        size = 2 * int(_PIECE_S * task.source.samples_per_s)
        for start in range(0, len(audio), size):
            while task.source.waiting_s > _MAX_AHEAD_S:
                await asyncio.sleep(_ROOM_CHECKED_S)
            if self._session is None:
                return True  # the rest comes again, over the other connection
            try:
                task.put_audio(audio[start : start + size])
            except EdgeError as error:
                self._outbox.put({"type": "error", "message": str(error)})
                await asyncio.sleep(0)
                return False
        return True


def _gone() -> ApiError:
    return ApiError(404, "this session is not here any more: begin another one")


def _options(websocket: WebSocket) -> dict[str, str]:
    options = dict(websocket.query_params)
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise ApiError(400, f"unknown option {unknown[0][:40]!r}; there are {', '.join(_OPTIONS)}")
    return options


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or len(text) > 9:
        raise ApiError(400, f"{name!r} must be a number, not {text[:20]!r}")
    return int(text)


def _choice(options: dict[str, str]) -> ModelChoice:
    """The models and languages that a client names, checked."""
    codes = {}
    for name in ("language", "translate_to"):
        codes[name] = language_code(options[name]) if options.get(name) else None
    named = options.get("languages")
    languages = tuple(map(language_code, named.split(","))) if named else ()
    if languages and codes["language"]:
        raise ApiError(400, "'language' and 'languages' exclude each other")
    texts = {name: options.get(name) or None for name in _TEXTS}
    for name, text in texts.items():
        if text is not None and len(text) > _MAX_TEXT:
            raise ApiError(400, f"{name!r} has {len(text)} characters; {_MAX_TEXT:,} may be sent")
    correct = options.get("correct", "false")
    if correct not in ("true", "false"):
        raise ApiError(400, f"'correct' must be true or false, not {correct[:20]!r}")
    model = installed_model(options.get("model") or DEFAULT_MODEL, "asr")
    return ModelChoice(
        None if model is None else model.name,
        codes["language"],
        codes["translate_to"],
        languages=languages,
        correct=correct == "true",
        **texts,
    )


def _type_of(text: str) -> Any:
    try:
        message = read_json(text)
    except ValueError:
        return None
    return message.get("type") if isinstance(message, dict) else None
