"""Memory that nobody needs any more, or will need again soon: what the C library does with what is
freed (kept while steps come and go, given back when a model has been laid out), and code."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

__all__ = ["discard_library_pages", "trim_heap", "keep_freed_memory"]

# mallopt(3)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT, _LARGEST = 128 << 20, 32 << 20
# madvise(2)
_MADV_DONTNEED = 4


def keep_freed_memory() -> None:
    """Tell the C library not to hand tensors of up to 32 MiB back to the system one by one.

    The logits of 32 rows of an OPUS-MT model are 7 MiB. Taken anew for each step, their pages have
    to be mapped and cleared first, at 0.5 to 2.5 µs each: translation of many lines was 1.2 times
    as fast without that. Up to 128 MiB stay with the process so. Does nothing without glibc.
    """
    _call("mallopt", _TRIM_THRESHOLD, _KEPT)
    _call("mallopt", _MMAP_THRESHOLD, _LARGEST)


def trim_heap() -> None:
    """All that is free now: after loading, where float32 copies of every layer came and went."""
    _call("malloc_trim", 0)


def discard_library_pages(library: str) -> None:
    """The code and the constants of a loaded library, for as long as nobody asks for them: they are
    in its file. library: what the file's name begins with. Does nothing but on Linux."""
    if sys.platform != "linux":
        return
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        span, rights, offset, _, _, *path = line.split(maxsplit=5)
        # Behind the code lies what the loader has changed, which is in no file.
        unchanged = rights == "r-xp" or (rights == "r--p" and int(offset, 16) == 0)
        if unchanged and path and Path(path[0]).name.startswith(library):
            start, end = (int(part, 16) for part in span.split("-"))
            _call("madvise", ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _call(name: str, *arguments: int | ctypes.c_void_p | ctypes.c_size_t) -> None:
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
