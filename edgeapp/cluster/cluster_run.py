"""Transcribes recordings on a cluster: the driver has the journal and writes the results."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from edgeapp.batch.find_inputs import FoundInput
from edgeapp.batch.recordings.transcription_runner import FileOutcome, TranscriptionRunner
from edgeapp.batch.run_progress import RunProgress
from edgeapp.cluster.remote_models import Cluster
from edgeapp.exit_codes import InputFailures

__all__ = ["run_on_cluster"]


def run_on_cluster(
    runner: TranscriptionRunner, cluster: Cluster, inputs: Sequence[FoundInput]
) -> int:
    """Transcribe recordings: one on each machine, or in pieces where there are more machines.

    Args:
        runner: With a cluster as its transcriber, and results in files.
        cluster: The machines; closed after Ctrl-C.
        inputs: The recordings.

    Returns:
        The exit code: 0, or the highest of the failed recordings.
    """
    failures = InputFailures(len(inputs), runner.debug)
    names = [found.shown for found in inputs]
    progress = RunProgress(names, "audio", runner.progress_output)
    with progress, ThreadPoolExecutor(cluster.size, thread_name_prefix="file") as threads:
        left = _Left(len(inputs))

        def work_on(found: FoundInput, name: str) -> FileOutcome:
            with left:
                in_pieces = runner.options.in_chunks and 2 * left.count <= cluster.size
                return replace(runner, in_pieces=in_pieces).run_one(found, name)

        work = {
            threads.submit(work_on, found, name): found.shown
            for found, name in zip(inputs, runner.output.names, strict=True)
        }
        waiting: set[Future[FileOutcome]] = set(work)
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    with failures.catch(work[future]), progress.file(work[future]):
                        _count(future.result(), progress)
        except BaseException:
            cluster.close()
            threads.shutdown(cancel_futures=True)
            raise
    return failures.exit_code(counted=progress.summarizes)


class _Left:
    """Counts recordings that are not done. A context manager for the work on one of them."""

    def __init__(self, count: int) -> None:
        self.count, self._lock = count, threading.Lock()

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self.count -= 1


def _count(outcome: FileOutcome, progress: RunProgress) -> None:
    """Add a finished recording to the progress."""
    for warning in outcome.warnings:
        progress.warned(warning)
    if outcome.skipped:
        progress.skip(outcome.skipped)
    elif outcome.duration_s is not None:
        progress.total(outcome.duration_s, outcome.resumed_s)
        progress.advance_to(outcome.duration_s)
    progress.wrote(outcome.outputs)
