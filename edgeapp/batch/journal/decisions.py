"""What a run does with an input: begin, go on, write again, or leave it as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from edgeapp.batch.journal.job_journal import JobJournal, JobRecord, State

__all__ = ["Decision", "JobPolicy"]

_DIGEST_OF_NOTHING = hashlib.sha256().hexdigest()


class Decision(Enum):
    """What a run does with an input."""

    BEGIN = "begin"
    RESUME = "go on where an earlier run stopped"
    RETRY = "try again, it has failed"
    WRITE = "decoded already, write the files"
    SKIP_DONE = "done already"
    SKIP_OTHERS = "has not failed"

    @property
    def skips(self) -> bool:
        """Whether there is nothing to do."""
        return self in (Decision.SKIP_DONE, Decision.SKIP_OTHERS)


@dataclass(frozen=True)
class JobPolicy:
    """How a run treats earlier runs.

    Attributes:
        journal: Where finished work is kept; None: nowhere.
        overwrite: Do again what is done, and replace files of other origin.
        retry_failed: Do only what has failed.
        name_skipped: Print a note for each input that is done already.
        name_done: Print a note for each input when it is done.
    """

    journal: JobJournal | None = None
    overwrite: bool = False
    retry_failed: bool = False
    name_skipped: bool = True
    name_done: bool = False

    def decide(self, record: JobRecord | None, source: str, wanted: Mapping[Path, str]) -> Decision:
        """Return what to do with an input at a path, of which the journal has a record, or None;
        its results are wanted in files, each with how it is rendered."""
        failed = record is not None and record.state is State.FAILED
        if self.retry_failed and not (failed or self.has_failed(source)):
            return Decision.SKIP_OTHERS
        if record is None or self.overwrite:
            return Decision.BEGIN
        if record.state is State.DONE:
            files = {str(path.absolute()): how for path, how in wanted.items()}
            if files.items() <= record.outputs.items() and all(map(self._is_there, wanted)):
                return Decision.SKIP_DONE
            return Decision.WRITE
        return Decision.RETRY if record.state is State.FAILED else Decision.RESUME

    def _is_there(self, path: Path) -> bool:
        """Return whether a result still exists. A file that was emptied counts as deleted."""
        if not path.exists():
            return False
        assert self.journal is not None, "the job is recorded in it"
        return path.stat().st_size > 0 or _DIGEST_OF_NOTHING in self.journal.digests_of(path)

    def has_failed(self, source: str) -> bool:
        """Whether an input with a name has failed; its content may be another now."""
        assert self.journal is not None, "--retry-failed needs it"
        return self.journal.has_failed(source)
