"""The memory of the process: glibc's malloc settings, and unused pages of loaded libraries.

Each function does nothing where the system lacks what it needs (glibc, Linux).
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

# mallopt(3)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES, _LARGEST_BYTES = 128 << 20, 32 << 20
# madvise(2)
_MADV_DONTNEED = 4


def keep_freed_memory() -> None:
    """Let malloc keep freed tensors of up to 32 MiB, 128 MiB in all, for later ones.

    The logits of 32 rows of an OPUS-MT model are 7 MiB. If each step allocates them anew, the
    system has to map and clear their pages, at 0.5 to 2.5 µs each; translation of many lines is 1.2
    times as fast without that. Settings of the environment hold: MALLOC_TRIM_THRESHOLD_ and
    MALLOC_MMAP_THRESHOLD_, as malloc knows them.
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        _call("mallopt", _M_TRIM_THRESHOLD, _KEPT_BYTES)
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
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
        addresses, rights, _, _, _, *path = line.split(maxsplit=5)
        if not path or not Path(path[0]).name.startswith(library):
            continue
        start, end = (int(part, 16) for part in addresses.split("-"))
        if rights == "r-xp" or (rights == "r--p" and not _was_written_to(start, end)):
            _call("madvise", ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _was_written_to(start: int, end: int) -> bool:
    """Return whether a part of a mapped file differs from the file, as one that the dynamic linker
    has relocated does. True if the system does not tell.

    Args:
        start: The first address.
        end: The address after the last.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        with Path("/proc/self/pagemap").open("rb", buffering=0) as table:
            table.seek(start // page * 8)
            entries = memoryview(table.read((end - start) // page * 8)).cast("Q")
    except OSError:
        return True
    # proc_pid_pagemap(5): bits 63 and 62 say that there is a page, in memory or on the swap device;
    # bit 61, that it is a page of the file.
    return any(entry >> 62 and not entry >> 61 & 1 for entry in entries)


def _call(name: str, *arguments: int | ctypes.c_void_p | ctypes.c_size_t) -> None:
    """Call a function of the C library if it has it."""
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
