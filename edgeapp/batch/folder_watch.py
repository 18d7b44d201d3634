"""Finds new files in a folder once they are wholly written.

It looks again and again instead of asking the system for events: network shares have none, and
whether a file still grows has to be looked at in any case.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from edgeapp.batch.find_inputs import FoundInput, find_inputs

__all__ = ["FolderWatch"]


@dataclass(frozen=True)
class _State:
    """What a file looks like, and since when."""

    size: int
    modified_ns: int
    since: float


@dataclass
class FolderWatch:
    """The new files of a folder.

    Attributes:
        folder: The folder; files at any depth count.
        suffixes: In lower case, with the dot.
        settle_s: A file is wholly written when its size and time have not changed for so long,
            and no process on this machine has it open for writing.
        is_input: Whether a file is to be looked at; others are results, for example.
        clock: Seconds that only increase.
    """

    folder: Path
    suffixes: frozenset[str]
    settle_s: float = 2.0
    is_input: Callable[[Path], bool] = lambda path: True
    clock: Callable[[], float] = time.monotonic
    _seen: dict[str, _State] = field(default_factory=dict)
    _given: dict[str, tuple[int, int]] = field(default_factory=dict)

    def ready(self) -> list[FoundInput]:
        """The files that have become ready since the last call: new ones, and changed ones."""
        found = [each for each in self._found() if self._is_ready(each.path)]
        for each in found:
            state = self._seen[each.path]
            self._given[each.path] = (state.size, state.modified_ns)
        return found

    @property
    def growing(self) -> Collection[str]:
        """Paths of files that were there at the last call, but not wholly written."""
        return [
            path
            for path, state in self._seen.items()
            if self._given.get(path) != (state.size, state.modified_ns)
        ]

    def _found(self) -> list[FoundInput]:
        inputs = find_inputs([str(self.folder)], self.suffixes)
        found = [each for each in inputs if each.problem is None and self.is_input(Path(each.path))]
        gone = self._seen.keys() - {each.path for each in found}
        for path in gone:
            del self._seen[path]
            self._given.pop(path, None)
        return found

    def _is_ready(self, path: str) -> bool:
        try:
            status = os.stat(path)  # noqa: PTH116  # a path of any bytes
        except OSError:  # it has just been moved away
            self._seen.pop(path, None)
            return False
        now, before = self.clock(), self._seen.get(path)
        if before is None or (before.size, before.modified_ns) != (
            status.st_size,
            status.st_mtime_ns,
        ):
            self._seen[path] = before = _State(status.st_size, status.st_mtime_ns, now)
        if self._given.get(path) == (before.size, before.modified_ns):
            return False
        return bool(before.size) and now - before.since >= self.settle_s and not _is_open(path)


def _is_open(path: str) -> bool:
    """Whether a process on this machine has a file open for writing, where the system tells."""
    try:
        import fcntl

        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (ImportError, OSError):
        return False
    try:
        # Linux grants a lease for reading only if the file is open for writing nowhere.
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError) as error:  # other systems and network shares grant none
        return isinstance(error, OSError) and error.errno == errno.EAGAIN
    finally:
        os.close(descriptor)
    return False
