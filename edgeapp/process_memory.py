"""How much memory this process holds."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["memory_in_use"]


def memory_in_use() -> int:
    """Bytes of RAM (resident set, Linux only; 0 elsewhere) and of GPU memory in use."""
    return _resident_bytes() + _gpu_bytes()


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
