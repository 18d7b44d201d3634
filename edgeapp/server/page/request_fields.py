"""Fields of the page's requests, checked."""

from __future__ import annotations

from typing import Any

from edgeapp.server.sessions import Message
from pipelines import OptionError

__all__ = ["non_negative", "text_field"]


def text_field(message: Message, name: str, max_length: int) -> str:
    """A text; "" if it is missing.

    Raises:
        OptionError: It is no text, or longer than `max_length` characters.
    """
    value = message.get(name) or ""
    if not isinstance(value, str) or len(value) > max_length:
        raise OptionError(f"{name} must be a text of at most {max_length} characters")
    return value


def non_negative(value: Any) -> int:
    """A record's id or an offset, within the range of SQLite's integers.

    Raises:
        OptionError: It is something else.
    """
    if not isinstance(value, int) or not 0 <= value < 2**62:
        raise OptionError(f"{value!r} is not a valid record number")
    return value
