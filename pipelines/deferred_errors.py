"""Iterators whose error is raised only after the items before it were processed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["DeferErrors"]

T = TypeVar("T")


class DeferErrors(Generic[T]):
    """Iterate over a source. If it raises an Exception, the iteration ends instead.

    The caller processes the items and then calls `check`, which raises that error.
    """

    def __init__(self, source: Iterable[T]) -> None:
        self._source = iter(source)
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._error is None:
            try:
                return next(self._source)
            except StopIteration:
                raise
            except Exception as error:
                self._error = error
        raise StopIteration

    def check(self) -> None:
        """Raise the error that ended the source, if there was one."""
        if self._error is not None:
            raise self._error
