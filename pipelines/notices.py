"""Notices: warnings about a result, collected for the caller that computes it.

`warnings.catch_warnings` changes the filters of the whole process, so threads that use it at the
same time lose or receive each other's warnings. `collect_notices` is local to one context
(contextvars), and so to one thread.
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
    """A warning about a result.

    Attributes:
        message: Names the input.
        category: Class of the Python warning that is raised without `collect_notices`.
    """

    message: str
    category: type[Warning] = UserWarning


_collected: ContextVar[list[Notice] | None] = ContextVar("collected", default=None)


def notice(message: str, category: type[Warning] = UserWarning, stacklevel: int = 2) -> None:
    """Add a notice to the innermost `collect_notices` of this context; without one, warn.

    Args:
        message: The warning, with the name of the input.
        category: Class of the Python warning.
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
        The list that notices are added to. Other threads and outer blocks do not receive them.
        Do not keep the block open across a `yield` of a generator: the consumer's code would run
        inside it.
    """
    collected: list[Notice] = []
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def ignore_warning(message: str, category: type[Warning]) -> None:
    """Ignore one warning of a dependency from now on, in the whole process.

    Unlike `catch_warnings` it restores no filters, so threads do not undo each other's, and all
    other warnings are unaffected.

    Args:
        message: A regular expression that the start of the warning must match.
        category: Class of the warning.
    """
    warnings.filterwarnings("ignore", message, category)
