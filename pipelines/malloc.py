"""The memory of the process: glibc's malloc settings, and unused pages of loaded libraries.

Each function does nothing where the system lacks what it needs (glibc, Linux).
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

__all__ = ["discard_library_pages", "keep_freed_memory", "trim_heap"]

# mallopt(3)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _LARGEST_BYTES = 128 << 20, 32 << 20
# madvise(2)
_MADV_DONTNEED = 4


def keep_freed_memory() -> None:
    """Let malloc keep freed tensors of up to 32 MiB, 128 MiB in all, for later ones.

    The logits of 32 rows of an OPUS-MT model are 7 MiB. If each step allocates them anew, the
    system has to map and clear their pages, at 0.5 to 2.5 µs each; translation of many lines is 1.2
    times as fast without that.
    """
    _call("mallopt", _M_TRIM_THRESHOLD, _KEPT_BYTES)
    _call("mallopt", _M_MMAP_THRESHOLD, _LARGEST_BYTES)


def trim_heap() -> None:
    """Return all freed memory to the system, such as the float32 copies of each layer after a
    model has been loaded."""
    _call("malloc_trim", 0)


def discard_library_pages(library: str) -> None:
    """Drop the code and constants of a loaded library from memory; they are read from its file
    again when they are used.

    Args:
        library: The beginning of the file's name.
    """
    if sys.platform != "linux":
        return
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        addresses, rights, offset, _, _, *path = line.split(maxsplit=5)
        # Read-only pages at other offsets hold relocations of the dynamic linker, which are not in
        # the file.
        unchanged = rights == "r-xp" or (rights == "r--p" and int(offset, 16) == 0)
        if unchanged and path and Path(path[0]).name.startswith(library):
            start, end = (int(part, 16) for part in addresses.split("-"))
            _call("madvise", ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _call(name: str, *arguments: int | ctypes.c_void_p | ctypes.c_size_t) -> None:
    """Call a function of the C library if it has it."""
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
