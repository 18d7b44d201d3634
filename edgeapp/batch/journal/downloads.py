"""Inputs at addresses: a download that fails stands in the journal, for `--retry-failed`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from edgeapp.batch.find_inputs import FoundInput
from edgeapp.batch.journal.decisions import Decision, JobPolicy
from edgeapp.batch.journal.pieces import LinesPiece
from edgeapp.batch.remote_file import RemoteFile
from edgeapp.console import print_note
from pipelines import EdgeError

__all__ = ["download_plan", "present"]


@contextmanager
def present(found: FoundInput, verb: str, policy: JobPolicy) -> Iterator[Decision | None]:
    """A context in which the file of an input is there, downloaded if need be.

    Yields:
        Why it is left out, and not downloaded; else None.

    Raises:
        EdgeError: It cannot be downloaded.
    """
    remote, journal = found.remote, policy.journal
    if remote is None:
        yield None
        return
    if (skipped := _skipped(found, policy)) is not None:
        yield skipped
        return
    print_note(f"downloading {found.shown}")
    key = _key(remote, verb)
    with ExitStack() as stack:
        try:
            stack.enter_context(remote.downloaded())
        except EdgeError as error:
            if journal is not None:
                with journal.job(key, verb, found.shown, "", LinesPiece) as entry:
                    if entry is not None:
                        entry.running()
                        entry.stopped(None, error)
            raise
        try:
            yield None
        finally:  # what follows has a job of its own, by the content
            if journal is not None:
                journal.delete(key)


def download_plan(found: FoundInput, verb: str, policy: JobPolicy) -> str:
    """What a run would do with an input at an address, in a line."""
    skipped = _skipped(found, policy)
    what = f"download, then {verb}" if skipped is None else skipped.value
    return f"{found.shown}: {what}"


def _skipped(found: FoundInput, policy: JobPolicy) -> Decision | None:
    if policy.retry_failed and not policy.has_failed(found.shown):
        return Decision.SKIP_OTHERS
    return None


def _key(remote: RemoteFile, verb: str) -> str:
    """The key of a download, which failed before its content was known."""
    return hashlib.sha256(f"download {verb} {remote.url}".encode("utf-8", "replace")).hexdigest()
