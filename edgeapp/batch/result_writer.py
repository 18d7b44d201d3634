"""Writes results, never over a file that holds something else."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from edgeapp.batch.journal.decisions import Decision
from edgeapp.batch.journal.digests import FileDigests
from edgeapp.batch.journal.job_journal import JobJournal, Origin
from edgeapp.batch.outputs import reserved, write_atomically
from pipelines import OutputError

__all__ = ["ResultWriter"]

_MIN_FREE_BYTES = 8 << 20


class ResultWriter:
    """Writes the files of a run.

    Args:
        journal: Knows what was written by earlier runs; None: no existing file is known.
        overwrite: Replace files of any origin.
        origin: The input that the results are made from; None if that is not known.
        digests: Digests of files; None: those of the journal.

    Attributes:
        overwrite: As the argument.
        digests: Digests of files.
    """

    def __init__(
        self,
        journal: JobJournal | None = None,
        overwrite: bool = False,
        origin: Origin | None = None,
        digests: FileDigests | None = None,
    ) -> None:
        self._journal, self.overwrite, self._origin = journal, overwrite, origin
        self.digests = digests or (FileDigests() if journal is None else journal.digests)

    def of(self, origin: Origin) -> ResultWriter:
        """Return a writer of the results of an input."""
        return ResultWriter(self._journal, self.overwrite, origin, self.digests)

    def check(self, paths: Iterable[Path], *, done: bool = False) -> None:
        """Check that files can be replaced; before any work is done.

        An empty file can be: mktemp makes such.

        Args:
            paths: The files.
            done: The journal says that they hold the results of the input: only check that they
                were not edited.

        Raises:
            OutputError: One exists and was not written by an earlier run, was edited since, or
                holds the result of another input.
        """
        for path in paths:
            if self.overwrite or not path.is_file() or not path.stat().st_size:
                continue
            known = set() if self._journal is None else self._journal.digests_of(path)
            if not known:
                problem = "exists, and no run in the journal has written it"
            elif self.digests.of(path) not in known:
                problem = "was edited since it was written"
            elif not done and (other := self._other_origin(path)) is not None:
                problem = f"holds the result of {other}"
            else:
                continue
            raise OutputError(f"{path} {problem}: --overwrite replaces it, -o names another place")

    def is_done(self, path: Path) -> bool:
        """Return whether a file was made from the input as it is now, edited since or not.

        Raises:
            OutputError: As `check`.
        """
        if self.overwrite or not path.is_file():
            return False
        journal, origin = self._journal, self._origin
        if journal is not None and origin is not None and journal.is_made_from(path, origin):
            return True
        self.check([path])
        return False

    def _other_origin(self, path: Path) -> str | None:
        if self._journal is None or self._origin is None:
            return None
        return self._journal.other_origin(path, self._origin)

    @contextmanager
    def reserve(self, paths: Iterable[Path]) -> Iterator[None]:
        """Check that files can be replaced, and reserve them until the end of the context.

        Raises:
            OutputError: As `check`, or another run works on one of them.
        """
        files = list(paths)
        with reserved(files):
            self.check(files)
            yield

    def plan(self, source: str, decision: Decision, verb: str, paths: Iterable[Path]) -> str:
        """A line that says what a run would do with an input, or why it would refuse."""
        try:
            if decision is not Decision.SKIP_OTHERS:
                self.check(paths, done=decision is Decision.SKIP_DONE)
        except OutputError as error:
            return f"{source}: refused: {error}"
        return f"{source}: {verb if decision is Decision.BEGIN else decision.value}"

    def check_space(self, folders: Iterable[Path], needed_bytes: int) -> None:
        """Check that results fit, before any work is done.

        Args:
            folders: Where they will be written. The folder of the journal is checked as well.
            needed_bytes: What the results may need in each.

        Raises:
            OutputError: A disk is full.
        """
        journal = () if self._journal is None else (self._journal.folder,)
        for folder in {*folders, *journal}:
            with suppress(OSError):  # a folder that is gone fails when it is written to
                free = shutil.disk_usage(folder).free
                if free < max(needed_bytes, _MIN_FREE_BYTES):
                    raise OutputError(
                        f"{folder} has {free >> 20} MB left, and the results may need "
                        f"{max(needed_bytes, _MIN_FREE_BYTES) >> 20} MB: free some space, or "
                        "choose another folder with -o"
                    )

    def write(self, path: Path, content: str | bytes | Iterable[bytes]) -> None:
        """Write a file as a whole, by renaming.

        Raises:
            OutputError: It cannot be written, or holds something else by now.
        """
        self.check([path])
        journal = self._journal
        if journal is None:
            write_atomically(path, content)
            return
        # Noted before the file is there: a run that is killed in between knows its file again.
        write_atomically(path, content, partial(journal.note_file, path, origin=self._origin))
        journal.forget_earlier_files(path)

    def note(self, path: Path, written: Path) -> None:
        """Remember a file that is about to be renamed.

        Args:
            path: Its path afterwards.
            written: Its path now.
        """
        if self._journal is not None and (digest := self.digests.of(written)) is not None:
            self._journal.note_file(path, digest, self._origin)
