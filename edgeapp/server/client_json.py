"""JSON from a client, bounded so that no later step can fail over it."""

from __future__ import annotations

import json
import math
import re
from typing import Any

__all__ = ["read_json"]

_MAX_DEPTH = 64
_MAX_INTEGER = 2**63  # SQLite's integers are below
_MAX_DIGITS = 20
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(text: str | bytes) -> Any:
    """Parse JSON. Lone surrogates, which no other text may contain, become question marks.

    Args:
        text: The JSON; bytes are UTF-8.

    Raises:
        ValueError: It is no JSON, it is nested too deeply, or a number is not finite or too large.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    try:
        value = json.loads(
            text, parse_constant=_refuse, parse_int=_integer, parse_float=_finite_number
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check_depth(value)
    if _SURROGATE_ESCAPE.search(text):
        encoded = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        value = json.loads(encoded)
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise ValueError("nested too deeply")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or abs(number := int(digits)) > _MAX_INTEGER:
        raise ValueError("a number is too large")
    return number


def _finite_number(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError("a number is too large")
    return number
