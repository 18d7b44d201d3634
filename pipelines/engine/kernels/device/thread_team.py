"""The threads of a team: who does what, where, and waiting for each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from pipelines.engine.kernels import abi as at
from pipelines.engine.kernels.device.elementwise import jit
from pipelines.engine.kernels.isa import BARRIER, THREAD, THREADS

__all__ = ["barrier", "thread_scratch", "thread_range", "thread", "threads"]

barrier = types.ExternalFunction(BARRIER, types.void())
thread = types.ExternalFunction(THREAD, types.int32())
threads = types.ExternalFunction(THREADS, types.int32())


@jit
def thread_range(count: Any) -> Any:
    """(first, last + 1) of so many that this thread is to do."""
    own, all_of_us = np.int64(thread()), np.int64(threads())
    return count * own // all_of_us, count * (own + 1) // all_of_us


@jit
def thread_scratch(t: Any) -> Any:
    """This thread's own."""
    return t[at.SCRATCH] + np.int64(thread()) * t[at.SCRATCH_STRIDE]
