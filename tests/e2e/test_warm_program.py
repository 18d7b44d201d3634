"""The forks that stand for `python -m edgeapp` in these tests."""

from __future__ import annotations

import os
import signal
import socket
import sys

import pytest

from tests.e2e.conftest import Edgeapp
from tests.fixtures.warm_command import pass_on


@pytest.mark.skipif(sys.platform != "linux", reason="programs are forks on Linux only")
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_of_the_environment(
    threads: int, edgeapp: Edgeapp, environment: dict[str, str]
) -> None:
    """On several, kernels choose how many run."""
    if len(os.sched_getaffinity(0)) < threads:
        pytest.skip(f"fewer than {threads} cores")
    environment["OMP_NUM_THREADS"] = str(threads)
    done = edgeapp("bench", "speed", "demo-en-de")
    assert done.returncode == 0, done.stderr
    assert f"on {threads} CPU threads" in " ".join((done.stdout + done.stderr).split())


def test_a_signal_that_comes_after_the_end_is_not_an_error() -> None:
    command, server = socket.socketpair()
    with command:
        pass_on(command, signal.SIGINT)
        assert server.recv(1) == bytes([signal.SIGINT])
        server.close()
        pass_on(command, signal.SIGINT)
