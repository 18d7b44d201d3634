"""The page's own line to the server: audio and wishes up, captions down, over one WebSocket.

Text frames are JSON objects with a "type"; binary frames are 16-bit audio. A message with an "id"
is a question, and its answer has that id. A closed connection is a closed tab: whatever it had
running ends.
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
from edgeapp.server.api import PageApi
from edgeapp.server.security import CLOSE_FORBIDDEN
from edgeapp.server.sessions import Message, Session, Sessions, Task, TooManySessions
from edgeapp.server.shared_models import ModelChoice, SharedModelPool
from edgeapp.server.tasks.file_task import FileTask
from edgeapp.server.tasks.live_task import LiveTask
from edgeapp.server.tasks.pull_task import PullTask
from edgeapp.server.tasks.text_task import LONGEST_TEXT, TextTask
from edgeapp.server.uploads import Uploads
from pipelines import EdgeError, InputError, OptionError

__all__ = ["PageSocket"]

_TOO_SLOW = 5_000  # messages that a browser has not fetched: it will not catch up
_KINDS = ("live", "file", "text", "pull")


class PageSocket:
    """Accepts the connections of pages. person: who a connection is from. history_of: that
    person's history."""

    def __init__(
        self,
        pool: SharedModelPool,
        sessions: Sessions,
        uploads: Uploads,
        desk: PageApi,
        history_of: Callable[[WebSocket], History],
        person: Callable[[WebSocket], str | None],
    ) -> None:
        self._pool, self._sessions, self._uploads = pool, sessions, uploads
        self._desk, self._history_of, self.person = desk, history_of, person
        self._recheck: set[Callable[[], None]] = set()

    def recheck(self) -> None:
        """Close the connections of users who have logged out. From any thread."""
        for recheck in list(self._recheck):
            recheck()

    async def open(self, socket: WebSocket) -> None:
        """One connection, from its beginning to its end."""
        await socket.accept()
        loop, outgoing = asyncio.get_running_loop(), asyncio.Queue[Message | None]()

        def send(message: Message | None) -> None:
            # A loop that is closed has nobody left to tell.
            if not loop.is_closed():
                loop.call_soon_threadsafe(outgoing.put_nowait, message)

        session = Session(self._sessions, send)

        def recheck() -> None:
            # The tasks end here: the writer may be waiting for a browser that reads slowly.
            if self.person(socket) is None:
                session.close()
                send(None)

        token = self._uploads.open()
        history = self._history_of(socket)
        limits = self._uploads.limits | {"characters": LONGEST_TEXT}
        hello = {"type": "hello", "session": token, "limits": limits}
        send(hello | {"history": history.on, "person": self.person(socket) or ""})
        line = _Connection(self, session, token, history, send)
        self._recheck.add(recheck)
        writer = asyncio.create_task(self._write(socket, session, outgoing))
        try:
            await line.read(socket)
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            self._recheck.discard(recheck)
            writer.cancel()
            session.close()
            self._uploads.close(token)

    async def _write(
        self, socket: WebSocket, session: Session, outgoing: asyncio.Queue[Message | None]
    ) -> None:
        """Send what is queued, as long as the user is logged in. None only checks for that."""
        while True:
            message = await outgoing.get()
            left = self.person(socket) is None
            if left or outgoing.qsize() > _TOO_SLOW:
                session.close()  # a browser that does not answer the close frame holds no task
                with suppress(WebSocketDisconnect, RuntimeError):
                    await socket.close(CLOSE_FORBIDDEN if left else 1000)
                return
            if message is None:
                continue
            try:
                await socket.send_text(json.dumps(message, ensure_ascii=False))
            except (WebSocketDisconnect, RuntimeError):
                return  # the reader is told, too, and clears up

    def task(self, message: Message, token: str, history: History) -> Task:
        """What a message wants to be begun. Raises EdgeError."""
        kind = message["type"]
        kept = history if message.get("keep", True) else History(None)
        if kind == "live":
            return LiveTask(self._pool, kept, ModelChoice.of(message), _number(message, "rate"))
        if kind == "text":
            text = str(message.get("text") or "")
            return TextTask(self._pool, ModelChoice.of(message), text, _number(message, "number"))
        if kind == "pull":
            self._desk.check_changing()
            return PullTask(str(message.get("name") or ""))
        path, minutes = self._uploads.take(token), self._uploads.minutes
        name = str(message.get("name") or "")[:200] or "the recording"
        return FileTask(self._pool, kept, ModelChoice.of(message), path, name, minutes)

    def answer(self, message: Message, history: History) -> Message:
        """What a question is answered with. Raises EdgeError."""
        if not self._desk.answers(message.get("type")):
            raise OptionError(f"nothing is known about {message.get('type')!r}")
        return self._desk.answer(message, history)


class _Connection:
    """One tab's connection."""

    def __init__(
        self,
        door: PageSocket,
        session: Session,
        token: str,
        history: History,
        send: Callable[[Message], None],
    ) -> None:
        self._door, self._session = door, session
        self._token, self._history, self._send = token, history, send
        self._asked: set[asyncio.Task[None]] = set()

    async def read(self, socket: WebSocket) -> None:
        """Everything that the tab says, until it is closed."""
        while True:
            frame = await socket.receive()
            if frame["type"] == "websocket.disconnect":
                return
            if self._door.person(socket) is None:  # logged out meanwhile, in another tab
                await socket.close(CLOSE_FORBIDDEN)
                return
            if frame.get("bytes") is not None:
                self._take(frame["bytes"])
                continue
            message: Message = {}
            try:
                message = _parse(frame.get("text") or "")
                self._obey(message)
            except EdgeError as error:
                told = {"kind": message.get("type"), "busy": isinstance(error, TooManySessions)}
                self._send({"type": "error", "message": str(error), **told})
            except Exception as error:  # said to this tab, which stays connected
                traceback.print_exception(error, file=sys.stderr)
                told = {"kind": message.get("type"), "busy": False}
                self._send({"type": "error", "message": unexpected(error), **told})

    def _take(self, audio: bytes) -> None:
        try:
            self._session.take(audio)
        except EdgeError as error:
            self._send({"type": "error", "kind": "live", "message": str(error)})

    def _obey(self, message: Message) -> None:
        kind = message.get("type")
        if kind in ("stop", "cancel"):
            end = self._session.stop if kind == "stop" else self._session.cancel
            end(str(message.get("kind")))
        elif kind in _KINDS:
            task = self._door.task(message, self._token, self._history)
            try:
                # What is typed on replaces what is being translated; a recording, the one before.
                self._session.start(task, instead=kind in ("text", "file"))
            except EdgeError:
                task.abandon()
                raise
        else:
            # In a thread: loading a model takes its time, and audio must not wait for it.
            asked = asyncio.create_task(asyncio.to_thread(self._answer, message))
            self._asked.add(asked)
            asked.add_done_callback(self._asked.discard)

    def _answer(self, message: Message) -> None:
        reply: Message = {"type": "answer", "id": message.get("id")}
        try:
            self._send(self._door.answer(message, self._history) | reply)
        except EdgeError as error:
            self._send(reply | {"error": str(error)})
        except Exception as error:  # without an answer the page would wait for it forever
            traceback.print_exception(error, file=sys.stderr)
            self._send(reply | {"error": unexpected(error)})


def _number(message: Message, name: str) -> int:
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} is missing: {value!r}")
    return value


def _parse(text: str) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise InputError("a message is a JSON object")
    return message
