"""What malloc keeps for later, of what a program has freed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")

# Frees 64 blocks of 1 MiB and prints how many MiB the process still holds of them.
_PROGRAM = """
import ctypes
from edgeapp.process_memory import memory_in_use
from pipelines.malloc import keep_freed_memory
keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
before = memory_in_use()
blocks = [libc.malloc(1 << 20) for _ in range(64)]
for block in blocks:
    ctypes.memset(block, 1, 1 << 20)
for block in blocks:
    libc.free(block)
print((memory_in_use() - before) >> 20)
"""


@linux
@pytest.mark.parametrize(
    ("environment", "keeps"),
    [({}, True), ({"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}, False)],
)
def test_freed_memory_is_kept_unless_the_environment_says_otherwise(
    environment: dict[str, str], keeps: bool
) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=plain | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (int(done.stdout) > 32) == keeps
