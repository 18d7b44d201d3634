"""The WebSocket between a page and the server: audio and requests in, captions and replies out.

Text frames are JSON objects with a "type"; binary frames are 16-bit little-endian mono audio. A
message with a type of `_TASK_KINDS` starts a task; "stop" and "cancel" end one; "pull" begins a
download, which is the server's (see downloads.py); any other type is a request with an "id", and
its reply carries the same id. When a connection is lost, tasks that the page has declared resumable
go on for a while: a new connection takes them over with "resume". All other tasks are cancelled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from edgeapp.console import print_traceback
from edgeapp.exit_codes import unexpected
from edgeapp.history import History
from edgeapp.model_pool import ModelPool
from edgeapp.server.access.auth import Logins
from edgeapp.server.access.security import CLOSE_FORBIDDEN
from edgeapp.server.client_json import read_json
from edgeapp.server.downloads import Downloads
from edgeapp.server.fairness import FairThreads, MessageRates
from edgeapp.server.page.page_api import PageApi
from edgeapp.server.page.picker_options import ModelChoice
from edgeapp.server.page.request_fields import text_field
from edgeapp.server.parking import Parking
from edgeapp.server.sessions import Message, Session, Sessions, Task, TooManySessions
from edgeapp.server.tasks.file_task import FileTask
from edgeapp.server.tasks.live_task import LiveTask
from edgeapp.server.tasks.picture_task import (
    LARGEST_PICTURE_MB,
    LONGEST_PROMPT,
    PictureTask,
)
from edgeapp.server.tasks.text_task import LONGEST_TEXT, TextTask
from edgeapp.server.transport.outbox import Outbox
from edgeapp.server.transport.websockets import TRY_AGAIN_LATER, close_when_full, serve_parts
from edgeapp.server.uploads import Uploads
from edgeapp.server.viewers.sharing import Sharing
from pipelines import EdgeError, InputError, OptionError

__all__ = ["PageSocket"]

_TASK_KINDS = ("live", "file", "text", "picture")
_MAX_TABS = 32  # of one person
_MAX_REQUESTS = 32  # of one tab that are not answered yet
_MESSAGE_COST, _AUDIO_COST = 12.0, 1.0  # see MessageRates: 20 messages or 250 blocks a second
_LOGIN_CHECKED_S = 30.0


class PageSocket:
    """The WebSocket endpoint of all pages.

    Args:
        pool: The shared models.
        sessions: All sessions.
        uploads: The uploaded recordings.
        api: Handlers of requests.
        history: Of all users.
        logins: The users who are logged in.
        threads: For requests.
        sharing: Handlers of requests about viewers and other devices.
        downloads: The download of a model, which all pages see.
    """

    def __init__(
        self,
        pool: ModelPool,
        sessions: Sessions,
        uploads: Uploads,
        api: PageApi,
        history: History,
        logins: Logins,
        threads: FairThreads,
        sharing: Sharing,
        downloads: Downloads,
    ) -> None:
        self.sharing, self.downloads = sharing, downloads
        self.pool, self.sessions, self.uploads, self.api = pool, sessions, uploads, api
        self.history, self.logins, self.threads = history, logins, threads
        self.resuming = FairThreads(threads=4)
        self.rates = MessageRates()
        self.parking = Parking()
        self.connections: dict[str, _Connection] = {}  # by each of their tokens
        self._tabs: Counter[str] = Counter()  # open connections by person
        self._login_checks: set[Callable[[], None]] = set()  # of the open connections

    def close(self) -> None:
        """Start no more work for any connection."""
        self.threads.close()
        self.resuming.close()

    def recheck_logins(self) -> None:
        """Close the connections of users who have logged out. From any thread."""
        for check in list(self._login_checks):
            check()

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one connection until it is closed."""
        await websocket.accept()
        person = self.logins.person_of(websocket)
        if self._tabs[person] >= _MAX_TABS:
            warning = f"{_MAX_TABS} tabs of yours are open already: close one, and reload this one"
            with suppress(WebSocketDisconnect, RuntimeError):
                await websocket.send_json({"type": "warning", "message": warning})
                await websocket.close(TRY_AGAIN_LATER)
            return
        self._tabs[person] += 1
        connection = _Connection(self, websocket, person)
        self._login_checks.add(connection.check_login)
        self.connections[connection.token] = connection
        try:
            await connection.run()
        finally:
            self._login_checks.discard(connection.check_login)
            self._tabs[person] -= 1
            if not self._tabs[person]:
                del self._tabs[person]

    def make_task(self, message: Message, token: str, history: History) -> Task:
        """The task that a message describes.

        Raises:
            EdgeError: The message is invalid.
        """
        kind = message["type"]
        if not message.get("keep", True):
            history = History(None)
        if kind == "live":
            choice, rate = ModelChoice.from_message(message), _int_field(message, "rate")
            resumable, speakers = bool(message.get("resumable")), _speakers(message)
            return LiveTask(
                self.pool, history, choice, rate, resumable=resumable, speakers=speakers
            )
        if kind == "text":
            text = str(message.get("text") or "")
            return TextTask(self.pool, ModelChoice.from_message(message), text)
        choice = ModelChoice.from_message(message)
        if kind == "picture":
            prompt = text_field(message, "prompt", LONGEST_PROMPT)
            name = str(message.get("name") or "")[:200] or "the picture"
            return PictureTask(self.pool, history, choice, self.uploads.take(token), name, prompt)
        name = str(message.get("name") or "")[:200] or "the recording"
        # Last: from here on, the task deletes the file.
        path, minutes = self.uploads.take(token), self.uploads.minutes
        return FileTask(self.pool, history, choice, path, name, minutes)

    def reply(self, message: Message, history: History) -> Message:
        """The reply to a request.

        Raises:
            EdgeError: The request is unknown or invalid, or failed.
        """
        if not self.api.handles(message.get("type")):
            raise OptionError(f"unknown request type {message.get('type')!r}"[:200])
        return self.api.reply(message, history)


class _Connection:
    """One connection: reads messages, dispatches them, and sends what the outbox holds."""

    def __init__(self, endpoint: PageSocket, websocket: WebSocket, person: str) -> None:
        self._endpoint, self._websocket, self._person = endpoint, websocket, person
        self._logins = endpoint.logins
        self._user = self._logins.user_of(websocket) or ""
        self._history = endpoint.history.of(self._user)
        self._outbox = Outbox()
        self._session = Session(endpoint.sessions, self._outbox.put, person)
        self.token = endpoint.uploads.open(person)
        # A recording and a picture may arrive at the same time.
        self._picture_token = endpoint.uploads.open(person, LARGEST_PICTURE_MB)
        # Its own one, and that of the connection whose tasks it continues: the page names that one
        # until it knows that they are continued here. None: it has left.
        self._tokens = [self.token]
        self._requests: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the browser leaves, the login ends, or the browser is too far behind."""
        limits = self._endpoint.uploads.limits | {"characters": LONGEST_TEXT}
        limits["picture_megabytes"] = min(self._endpoint.uploads.megabytes, LARGEST_PICTURE_MB)
        hello: Message = {"type": "hello", "session": self.token, "limits": limits}
        hello["pictures"] = self._picture_token
        hello |= {"history": self._history.on, "user": self._user}
        self._endpoint.downloads.join(self._outbox.put, hello)
        parts = (self._read, self._write, partial(close_when_full, self._outbox))
        await serve_parts(self._websocket, parts, self._end)

    def _end(self) -> None:
        self._endpoint.downloads.leave(self._outbox.put)
        self._leave()
        self._endpoint.uploads.close(self.token)
        self._endpoint.uploads.close(self._picture_token)

    def check_login(self) -> None:
        """Close the connection if the user is not logged in any more. From any thread."""
        if self._logins.user_of(self._websocket) is None:
            self._session.close()  # the writer may be waiting for a slow browser
            self._outbox.wake()

    def _leave(self) -> None:
        """Park the session, or close it."""
        logged_in = self._logins.user_of(self._websocket) is not None
        parking, session, tokens = self._endpoint.parking, self._session, self._tokens
        self._forget()
        if not (logged_in and tokens and parking.park(tokens, session, self._user)):
            session.close()

    def give_up_session(self) -> None:
        """Park the session and close the connection: its page has opened another one."""
        self._leave()
        self._session = Session(self._endpoint.sessions, self._outbox.put, self._person)
        self._outbox.full.set()

    def _forget(self) -> None:
        """Be found by no token any more."""
        for token in self._tokens:
            del self._endpoint.connections[token]
        self._tokens = []

    async def _resume(self, token: str) -> None:
        """Continue with the tasks of a connection of this tab that was lost."""
        endpoint = self._endpoint
        previous = endpoint.connections.get(token)
        # The server may not have noticed yet that it was lost.
        if previous is not None and previous is not self and previous._user == self._user:
            previous.give_up_session()
        session = None if self._session.busy else endpoint.parking.take(token, self._user)
        if session is None:
            self._outbox.put({"type": "not_resumed"})
            return
        self._forget()
        self._session, self._tokens = session, sorted({self.token, token})
        endpoint.connections.update(dict.fromkeys(self._tokens, self))
        parking = session.parkings
        # In a thread, because it waits until a running task has stored what it is about to send;
        # not in those of requests, which may all be loading models.
        attached = await endpoint.resuming.run(
            self._person, lambda: session.attach(self._outbox.put, parking)
        )
        if not attached and self._session is session:
            self._outbox.put({"type": "not_resumed"})

    async def _write(self) -> int:
        """Send messages while the user is logged in; returns a close code."""
        while True:
            text = await self._outbox.get(_LOGIN_CHECKED_S)
            if self._logins.user_of(self._websocket) is None:
                return CLOSE_FORBIDDEN
            if text is not None:
                await self._websocket.send_text(text)

    async def _read(self) -> int:
        """Handle all messages until the connection is closed; returns a close code."""
        while True:
            frame = await self._websocket.receive()
            if frame["type"] == "websocket.disconnect":
                return 0
            if self._logins.use(self._websocket) is None:  # logged out in another tab
                return CLOSE_FORBIDDEN
            audio = frame.get("bytes")
            await self._endpoint.rates.take(
                self._person, _MESSAGE_COST if audio is None else _AUDIO_COST
            )
            if audio is not None:
                self._receive_audio(audio)
                continue
            message: Message = {}
            try:
                message = _parse(frame.get("text") or "")
                await self._dispatch(message)
            except EdgeError as error:
                self._send_error(message, str(error), isinstance(error, TooManySessions))
            except Exception as error:  # reported to this tab, which stays connected
                print_traceback(error)
                self._send_error(message, unexpected(error), False)

    def _send_error(self, message: Message, text: str, busy: bool) -> None:
        number = {"number": message["number"]} if "number" in message else {}
        kind = message.get("type")
        self._outbox.put({"type": "error", "message": text, "kind": kind, "busy": busy} | number)

    def _receive_audio(self, audio: bytes) -> None:
        try:
            self._session.put_audio(audio)
        except EdgeError as error:
            self._outbox.put({"type": "error", "kind": "live", "message": str(error)})

    async def _dispatch(self, message: Message) -> None:
        kind = message.get("type")
        if kind == "pull" or (kind == "cancel" and message.get("kind") == "pull"):
            self._endpoint.api.check_can_change_models()
            downloads = self._endpoint.downloads
            if kind == "cancel":
                downloads.cancel()
            else:
                downloads.begin(str(message.get("name") or ""))
        elif kind in ("stop", "cancel"):
            end = self._session.stop if kind == "stop" else self._session.cancel
            end(str(message.get("kind")))
        elif kind == "resume":
            await self._resume(str(message.get("session")))
        elif kind == "ping":
            # Here, not in a thread: a page whose ping is late takes its connection for lost.
            self._outbox.put(self._endpoint.reply(message, self._history) | _reply_to(message))
        elif kind in _TASK_KINDS:
            number = _int_field(message, "number") if "number" in message else None
            token = self._picture_token if kind == "picture" else self.token
            task = self._endpoint.make_task(message, token, self._history)
            if isinstance(task, LiveTask):
                self._endpoint.sharing.attach(task, message, self._user)
            try:
                # A new text, recording or picture replaces the previous one.
                replace = kind in ("text", "file", "picture")
                self._session.start(task, replace=replace, number=number)
            except EdgeError:
                task.cancel()
                raise
        else:
            if len(self._requests) >= _MAX_REQUESTS:
                await asyncio.wait(self._requests, return_when=asyncio.FIRST_COMPLETED)
            # In a thread: loading a model takes seconds, during which audio still arrives.
            request = asyncio.create_task(self._request(message))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)

    async def _request(self, message: Message) -> None:
        try:
            answer = await self._endpoint.threads.run(self._person, lambda: self._answer(message))
        except EdgeError as error:
            answer = {"error": str(error)}
        except Exception as error:  # without a reply the page would wait forever
            print_traceback(error)
            answer = {"error": unexpected(error)}
        self._outbox.put(answer | _reply_to(message))

    def _answer(self, message: Message) -> Message:
        sharing = self._endpoint.sharing
        if sharing.handles(message.get("type")):
            return sharing.reply(message, self._user, self._websocket, self._session)
        return self._endpoint.reply(message, self._history)


def _reply_to(request: Message) -> Message:
    return {"type": "reply", "id": request.get("id")}


def _speakers(message: Message) -> list[str]:
    names = message.get("speakers") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError("speakers are a list of names")
    return names


def _int_field(message: Message, name: str) -> int:
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} is missing: {value!r}"[:200])
    return value


def _parse(text: str) -> dict[str, Any]:
    try:
        message = read_json(text)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise InputError("a message is a JSON object")
    return message
