"""Computing beside other programs."""

from __future__ import annotations

import os
import sys

__all__ = ["share_cores"]


def share_cores() -> None:
    """Let threads that wait for each other sleep; to be called before torch is loaded.

    By default they spin, which saves microseconds as long as every thread has a core of its own.
    Where another program takes one away, each of the thousands of short waits of an update may
    last until the system takes turns: with one of two cores busy, updates of 40 ms took up to
    4 s. Live captions cannot afford that; they have time for the rest.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
