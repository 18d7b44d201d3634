"""A test run that is killed leaves no programs behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

# Starts a process that holds the same stdout, says so, and waits.
_PARENT = """
import subprocess, sys, time
from tests.fixtures.orphans import end_with_parent
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], preexec_fn=end_with_parent)
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system call is Linux'")
def test_a_program_ends_with_the_process_that_was_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], cwd=REPOSITORY, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        parent.kill()
        # The end of the output comes when both have ended.
        assert parent.communicate(timeout=120)[0] == b""
