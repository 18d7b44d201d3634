"""OpenMP settings that must be made before torch is loaded."""

from __future__ import annotations

import os
import sys


def wait_passively() -> None:
    """Let computing threads sleep at barriers instead of spinning, unless the user chose otherwise.

    libgomp reads OMP_WAIT_POLICY and GOMP_SPINCOUNT once, when torch loads it: where torch is
    loaded already, this does nothing. By default its threads spin for milliseconds at each
    barrier. That is a little faster while every thread has a core of its own. Where another
    program takes one core, a spinning thread keeps the thread that it waits for from running. When
    the compiled kernels ran on libgomp, too, Whisper base on two cores took 40.8 s beside two busy
    processes when spinning, and 7.8 s when sleeping; 3.3 s and 4.2 s alone.
    """
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ)
    if not chosen and "torch" not in sys.modules:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
