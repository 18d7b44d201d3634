"""What the C library does with memory that is freed: kept while steps come and go, and given back
when a model has been laid out."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["give_back_freed_memory", "keep_freed_memory"]

# mallopt(3)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT, _LARGEST = 128 << 20, 32 << 20


def keep_freed_memory() -> None:
    """Tell the C library not to hand tensors of up to 32 MiB back to the system one by one.

    The logits of 32 rows of an OPUS-MT model are 7 MiB. Taken anew for each step, their pages have
    to be mapped and cleared first, at 0.5 to 2.5 µs each: translation of many lines was 1.2 times
    as fast without that. Up to 128 MiB stay with the process so. Does nothing without glibc.
    """
    _call("mallopt", _TRIM_THRESHOLD, _KEPT)
    _call("mallopt", _MMAP_THRESHOLD, _LARGEST)


def give_back_freed_memory() -> None:
    """All that is free now: after loading, where float32 copies of every layer came and went."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
