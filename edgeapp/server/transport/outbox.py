"""Messages that wait to be sent to a tab: encoded where they are made, and limited in number."""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from typing import Any

from edgeapp.console import print_traceback
from edgeapp.exit_codes import unexpected

__all__ = ["Outbox", "encode"]

_MAX_MESSAGES = 5_000
_MAX_CHARACTERS = 32 << 20  # but one message may be longer


class Outbox:
    """A queue of messages. `put` may be called from any thread, `get` in the event loop's.

    Attributes:
        full: Set once more waits than is allowed: the browser is too far behind.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[str] = deque()
        self._characters = 0
        self._changed, self.full = asyncio.Event(), asyncio.Event()

    def put(self, message: dict[str, Any]) -> None:
        """Queue a message. One that cannot be sent is replaced by an error, and printed."""
        try:
            text = encode(message)
        except Exception as error:  # a bug must not mute the tab
            print_traceback(error)
            text = encode(_replacement(message, error))
        self._call(self._append, text)

    @property
    def empty(self) -> bool:
        """Whether no message waits. In the event loop's thread."""
        return not self._waiting

    def wake(self) -> None:
        """Let `get` return now. From any thread."""
        self._call(self._changed.set)

    async def get(self, seconds: float) -> str | None:
        """The next message, as JSON. None after `wake`, and after some seconds without any."""
        if not self._waiting:
            try:
                # Not wait_for, which in Python 3.11 loses a cancellation as a message arrives.
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return None
        self._changed.clear()  # after the wait: a `wake` before it counts
        if not self._waiting:
            return None
        text = self._waiting.popleft()
        self._characters -= len(text)
        return text

    def _append(self, text: str) -> None:
        if self.full.is_set():
            return
        self._waiting.append(text)
        self._characters += len(text)
        self._changed.set()
        too_many = len(self._waiting) > _MAX_MESSAGES
        if too_many or (self._characters > _MAX_CHARACTERS and len(self._waiting) > 1):
            self._waiting.clear()
            self.full.set()

    def _call(self, function: Any, *arguments: Any) -> None:
        if not self._loop.is_closed():  # the server has ended, a task still runs
            self._loop.call_soon_threadsafe(function, *arguments)


def encode(message: dict[str, Any]) -> str:
    """A message as JSON that every browser can parse.

    Infinite numbers and NaN become null. Lone surrogates, as in a file name that is not UTF-8,
    are escaped.

    Raises:
        TypeError: A value has no JSON form.
    """
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False)
    except ValueError:
        message = _finite(message)
        text = json.dumps(message, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(message)
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _replacement(message: dict[str, Any], error: Exception) -> dict[str, Any]:
    kind, number = message.get("kind"), message.get("id")
    if message.get("type") == "reply":
        number = number if isinstance(number, (int, str)) else None
        return {"type": "reply", "id": number, "error": unexpected(error)}
    kind = kind if isinstance(kind, str) else None
    return {"type": "error", "kind": kind, "message": unexpected(error)}
