"""A process ends as its main thread does, and with its status, while daemon threads compute."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipelines import daemon_threads
from pipelines.engine.kernels.loader import load_kernels
from pipelines.engine.model.threads import ComputeThreads

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def _end_processes(kind: str, count: int) -> None:
    if kind == "teams" and load_kernels() is None:
        pytest.skip("this machine has no kernels")
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.process_exits", str(count), kind],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == (f"{kind}: 0 of {count} failed\n", 0), done.stderr


@needs_fork
@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", ["teams", "transcribe", "torch", "translate"])
def test_a_process_ends_while_daemon_threads_compute(kind: str) -> None:
    _end_processes(kind, 4)  # one of each ending


@needs_fork
@pytest.mark.campaign
@pytest.mark.usefixtures("kernels")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["teams", "transcribe", "torch", "translate"])
def test_two_hundred_processes_end(kind: str) -> None:
    _end_processes(kind, 200)


def test_a_daemon_thread_that_computes_is_stopped_and_others_are_not() -> None:
    """A daemon thread of the caller that does something else goes on."""
    stopped, other, computing = threading.Event(), threading.Event(), threading.Event()

    def loop() -> None:
        computing.set()
        while not other.is_set():
            time.sleep(0.001)

    def compute() -> None:
        try:
            ComputeThreads().run([loop])
        except SystemExit:
            stopped.set()

    threads = [threading.Thread(target=target, daemon=True) for target in (compute, other.wait)]
    for thread in threads:
        thread.start()
    computing.wait()
    daemon_threads._stop_daemon_threads()
    assert stopped.wait(60)
    assert threads[1].is_alive()
    other.set()
    for thread in threads:
        thread.join()


def test_jobs_run_on_the_calling_thread_when_no_threads_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that goes on after the main thread's end still gets its results."""
    threads = ComputeThreads(2)

    def refuse(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr("pipelines.engine.model.threads.ThreadPoolExecutor.submit", refuse)
    assert threads.run([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]
    assert threads.start(lambda: 1) is None
