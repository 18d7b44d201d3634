"""Makes a failing input smaller, by leaving out and by blanking bytes (Zeller's ddmin)."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["shrink"]

_SMALLEST_STEPS = 64  # pieces of one byte are tried for inputs up to this many of them


def shrink(data: bytes, fails: Callable[[bytes], bool], go_on: Callable[[], bool]) -> bytes:
    """The smallest input found that still fails.

    Args:
        data: An input that fails.
        fails: Whether an input fails in the same way.
        go_on: Whether there is time for another attempt.

    Returns:
        An input no longer than `data`. Bytes that do not matter are zero.
    """
    size = len(data)
    while size := size // 2:
        if size < len(data) // 4096 or (size < 4 and len(data) > _SMALLEST_STEPS * 16):
            break
        for smaller in (_without, _blanked):
            start = len(data)
            while start > 0 and go_on():
                start -= size
                candidate = smaller(data, max(0, start), size)
                if candidate != data and fails(candidate):
                    data = candidate
    return data


def _without(data: bytes, start: int, size: int) -> bytes:
    return data[:start] + data[start + size :]


def _blanked(data: bytes, start: int, size: int) -> bytes:
    block = data[start : start + size]
    return data[:start] + bytes(len(block)) + data[start + size :]
