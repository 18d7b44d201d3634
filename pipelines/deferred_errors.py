"""Sources of work that may break off: what they gave before that is not to be lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["DeferErrors"]

T = TypeVar("T")


class DeferErrors(Generic[T]):
    """What a source gives; where it breaks off with an error, this ends instead.

    Whoever has done all that there was calls `check`, which raises that error.
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
        """Raise what the source broke off with, if it did."""
        if self._error is not None:
            raise self._error
