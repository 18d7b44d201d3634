"""How much memory this process has, and how it gives some back."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["release_memory", "memory_in_use"]


def memory_in_use() -> int:
    """Bytes that this process has now, on the GPU too; 0 where the system does not tell."""
    return _resident() + _on_gpu()


def release_memory() -> None:
    """What was freed goes back to the system at once, not when it is next asked for."""
    gc.collect()
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):  # a C library that has no such call
            ctypes.CDLL(None).malloc_trim(0)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _resident() -> int:
    if sys.platform != "linux":
        return 0
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _on_gpu() -> int:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.memory_allocated())
