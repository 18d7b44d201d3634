"""What sound libraries print does not come between the captions; all else does."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, os, subprocess, sys, time
from edgeapp.live.library_messages import hide_library_messages

libc = ctypes.CDLL(None)
file = lambda: ctypes.c_void_p.in_dll(libc, "stderr")
hide_library_messages()
libc.fprintf(file(), b"Expression 'poll( %s )' failed in 'pa_linux_alsa.c', line: 3665\\n\\n", b"x")
libc.fprintf(file(), b"ALSA lib ")
libc.fprintf(file(), b"pcm.c:8570: underrun occurred\\n")
for line in (
    b"Cannot connect to server socket err = No such file or directory",
    b"Cannot connect to server request channel",
    b"jack server is not running or cannot be started",
    b"JackShmReadWritePtr::~JackShmReadWritePtr - Init not done for -1, skipping unlock",
    b"Cannot use real-time scheduling (RR/5)(1: Operation not permitted)",
    b"Cannot lock down 82280346 byte memory area (Cannot allocate memory)",
):
    libc.fprintf(file(), b"%s\\n", line)
libc.fprintf(file(), b"another library: out of luck\\n")
libc.fprintf(file(), b"Cannot connect to the server\\n")
time.sleep(0.5)
print("a note of Python", file=sys.stderr, flush=True)
os.write(2, b"a line to the descriptor\\n")
subprocess.run(["sh", "-c", "echo ALSA lib of another program >&2"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="stderr of GNU's C library")
def test_known_messages_of_c_libraries_are_hidden() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "another library: out of luck",
        "Cannot connect to the server",
        "a note of Python",
        "a line to the descriptor",
        "ALSA lib of another program",
    ]
