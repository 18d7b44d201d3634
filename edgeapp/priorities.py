"""The order in which work that shares an engine is done."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Priority"]


class Priority(IntEnum):
    """A priority of an engine's requests; lower values go first."""

    LIVE_RECOGNITION = 0
    LIVE_TRANSLATION = 1
    INTERACTIVE = 2
    BATCH = 3
