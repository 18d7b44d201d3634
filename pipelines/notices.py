"""Warnings as data: what a caller should know about a result, delivered to that caller alone.

`warnings.catch_warnings` changes the filters of the whole process, so two threads that use it
lose each other's warnings, or see them. `collect_notices` is bound to the context of one thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["Notice", "collect_notices", "ignore_warning", "notice"]


@dataclass(frozen=True)
class Notice:
    """A warning. category: what it is as a Python warning."""

    message: str
    category: type[Warning] = UserWarning


_collected: ContextVar[list[Notice] | None] = ContextVar("collected", default=None)


def notice(message: str, category: type[Warning] = UserWarning, stacklevel: int = 2) -> None:
    """Tell the innermost `collect_notices` of this context; without one, warn.

    Args:
        message: What the caller should know, with the name of the input.
        category: Of the Python warning.
        stacklevel: As for `warnings.warn`: 2 is the caller of the function that calls this one.
    """
    collected = _collected.get()
    if collected is None:
        warnings.warn(message, category, stacklevel=stacklevel + 1)
    else:
        collected.append(Notice(message, category))


@contextmanager
def collect_notices() -> Iterator[list[Notice]]:
    """Collect the notices of a block of code instead of warning.

    Yields:
        The list that they are added to. Other threads and outer blocks do not see them. Do not
        leave the block open across the `yield` of a generator: the code between its steps would
        be part of it.
    """
    collected: list[Notice] = []
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def ignore_warning(message: str, category: type[Warning]) -> None:
    """Ignore one warning of a dependency from now on, in the whole process.

    Unlike `catch_warnings` it restores nothing, so threads cannot undo each other's filters, and
    all other warnings stay as they are.

    Args:
        message: A regular expression that the start of the warning must match.
        category: Of the warning.
    """
    warnings.filterwarnings("ignore", message, category)
