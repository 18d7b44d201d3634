"""The memory of this process: how much it holds, and giving freed memory back to the system."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["memory_in_use", "release_memory"]


def memory_in_use() -> int:
    """Bytes of RAM (resident set, Linux only; 0 elsewhere) and of GPU memory in use."""
    return _resident_bytes() + _gpu_bytes()


def release_memory() -> None:
    """Return freed memory to the system now instead of at the next allocation."""
    gc.collect()
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):  # a C library without malloc_trim
            ctypes.CDLL(None).malloc_trim(0)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _resident_bytes() -> int:
    if sys.platform != "linux":
        return 0
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _gpu_bytes() -> int:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.memory_allocated())
