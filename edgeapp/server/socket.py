"""The WebSocket between a page and the server: audio and requests in, captions and replies out.

Text frames are JSON objects with a "type"; binary frames are 16-bit little-endian mono audio. A
message with a type of `_TASK_KINDS` starts a task; "stop" and "cancel" end one; any other type is
a request with an "id", and its reply carries the same id. A closed connection is a closed tab:
its tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from edgeapp.exit_codes import unexpected
from edgeapp.history import History
from edgeapp.model_pool import ModelPool
from edgeapp.server.api import PageApi
from edgeapp.server.picker_options import ModelChoice
from edgeapp.server.security import CLOSE_FORBIDDEN
from edgeapp.server.sessions import Message, Session, Sessions, Task, TooManySessions
from edgeapp.server.tasks.file_task import FileTask
from edgeapp.server.tasks.live_task import LiveTask
from edgeapp.server.tasks.pull_task import PullTask
from edgeapp.server.tasks.text_task import LONGEST_TEXT, TextTask
from edgeapp.server.uploads import Uploads
from pipelines import EdgeError, InputError, OptionError

__all__ = ["PageSocket"]

_MAX_QUEUED = 5_000  # messages; a browser that is further behind is disconnected
_TASK_KINDS = ("live", "file", "text", "pull")


class PageSocket:
    """The WebSocket endpoint of all pages.

    Args:
        pool: The shared models.
        sessions: All sessions.
        uploads: The uploaded recordings.
        api: Handlers of requests.
        history_of: The history of a connection's user.
        user_of: The user of a connection, None if a login is missing.
    """

    def __init__(
        self,
        pool: ModelPool,
        sessions: Sessions,
        uploads: Uploads,
        api: PageApi,
        history_of: Callable[[WebSocket], History],
        user_of: Callable[[WebSocket], str | None],
    ) -> None:
        self._pool, self._sessions, self._uploads = pool, sessions, uploads
        self._api, self._history_of, self.user_of = api, history_of, user_of
        self._login_checks: set[Callable[[], None]] = set()  # of the open connections

    def recheck_logins(self) -> None:
        """Close the connections of users who have logged out. From any thread."""
        for check in list(self._login_checks):
            check()

    async def serve(self, websocket: WebSocket) -> None:
        """Serve one connection until it is closed."""
        await websocket.accept()
        loop, outgoing = asyncio.get_running_loop(), asyncio.Queue[Message | None]()

        def send(message: Message | None) -> None:
            if not loop.is_closed():  # the server has ended, a task still runs
                loop.call_soon_threadsafe(outgoing.put_nowait, message)

        session = Session(self._sessions, send)

        def check_login() -> None:
            # Cancels the tasks at once: the writer may be waiting for a slow browser.
            if self.user_of(websocket) is None:
                session.close()
                send(None)

        token = self._uploads.open()
        history = self._history_of(websocket)
        limits = self._uploads.limits | {"characters": LONGEST_TEXT}
        hello = {"type": "hello", "session": token, "limits": limits}
        send(hello | {"history": history.on, "user": self.user_of(websocket) or ""})
        connection = _Connection(self, session, token, history, send)
        self._login_checks.add(check_login)
        writer = asyncio.create_task(self._write(websocket, session, outgoing))
        try:
            await connection.read(websocket)
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            self._login_checks.discard(check_login)
            writer.cancel()
            session.close()
            self._uploads.close(token)

    async def _write(
        self, websocket: WebSocket, session: Session, outgoing: asyncio.Queue[Message | None]
    ) -> None:
        """Send queued messages while the user is logged in. None: only check the login."""
        while True:
            message = await outgoing.get()
            logged_out = self.user_of(websocket) is None
            if logged_out or outgoing.qsize() > _MAX_QUEUED:
                session.close()  # not when the browser acknowledges the close frame: it may not
                with suppress(WebSocketDisconnect, RuntimeError):
                    await websocket.close(CLOSE_FORBIDDEN if logged_out else 1000)
                return
            if message is None:
                continue
            try:
                await websocket.send_text(json.dumps(message, ensure_ascii=False))
            except (WebSocketDisconnect, RuntimeError):
                return  # the reader gets the error too, and cleans up

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
            return LiveTask(self._pool, history, choice, rate)
        if kind == "text":
            text, choice = str(message.get("text") or ""), ModelChoice.from_message(message)
            return TextTask(self._pool, choice, text, _int_field(message, "number"))
        if kind == "pull":
            self._api.check_can_change_models()
            return PullTask(str(message.get("name") or ""))
        name = str(message.get("name") or "")[:200] or "the recording"
        choice = ModelChoice.from_message(message)
        # Last: from here on, the task deletes the file.
        path, minutes = self._uploads.take(token), self._uploads.minutes
        return FileTask(self._pool, history, choice, path, name, minutes)

    def reply(self, message: Message, history: History) -> Message:
        """The reply to a request.

        Raises:
            EdgeError: The request is unknown or invalid, or failed.
        """
        if not self._api.handles(message.get("type")):
            raise OptionError(f"unknown request type {message.get('type')!r}")
        return self._api.reply(message, history)


class _Connection:
    """One connection: reads its messages and dispatches them."""

    def __init__(
        self,
        endpoint: PageSocket,
        session: Session,
        token: str,
        history: History,
        send: Callable[[Message], None],
    ) -> None:
        self._endpoint, self._session = endpoint, session
        self._token, self._history, self._send = token, history, send
        self._requests: set[asyncio.Task[None]] = set()

    async def read(self, websocket: WebSocket) -> None:
        """Handle all messages until the connection is closed."""
        while True:
            frame = await websocket.receive()
            if frame["type"] == "websocket.disconnect":
                return
            if self._endpoint.user_of(websocket) is None:  # logged out in another tab
                await websocket.close(CLOSE_FORBIDDEN)
                return
            if frame.get("bytes") is not None:
                self._receive_audio(frame["bytes"])
                continue
            message: Message = {}
            try:
                message = _parse(frame.get("text") or "")
                self._dispatch(message)
            except EdgeError as error:
                self._send_error(message, str(error), isinstance(error, TooManySessions))
            except Exception as error:  # reported to this tab, which stays connected
                traceback.print_exception(error, file=sys.stderr)
                self._send_error(message, unexpected(error), False)

    def _send_error(self, message: Message, text: str, busy: bool) -> None:
        self._send({"type": "error", "message": text, "kind": message.get("type"), "busy": busy})

    def _receive_audio(self, audio: bytes) -> None:
        try:
            self._session.put_audio(audio)
        except EdgeError as error:
            self._send({"type": "error", "kind": "live", "message": str(error)})

    def _dispatch(self, message: Message) -> None:
        kind = message.get("type")
        if kind in ("stop", "cancel"):
            end = self._session.stop if kind == "stop" else self._session.cancel
            end(str(message.get("kind")))
        elif kind in _TASK_KINDS:
            task = self._endpoint.make_task(message, self._token, self._history)
            try:
                # A new text or recording replaces the previous one.
                self._session.start(task, replace=kind in ("text", "file"))
            except EdgeError:
                task.cancel()
                raise
        else:
            # In a thread: loading a model takes seconds, during which audio still arrives.
            request = asyncio.create_task(asyncio.to_thread(self._reply, message))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)

    def _reply(self, message: Message) -> None:
        reply: Message = {"type": "reply", "id": message.get("id")}
        try:
            self._send(self._endpoint.reply(message, self._history) | reply)
        except EdgeError as error:
            self._send(reply | {"error": str(error)})
        except Exception as error:  # without a reply the page would wait forever
            traceback.print_exception(error, file=sys.stderr)
            self._send(reply | {"error": unexpected(error)})


def _int_field(message: Message, name: str) -> int:
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} is missing: {value!r}")
    return value


def _parse(text: str) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):  # the latter: nested too deeply
        message = None
    if not isinstance(message, dict):
        raise InputError("a message is a JSON object")
    return message
