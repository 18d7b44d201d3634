"""The threads that run a kernel together: barrier, division of work, scratch memory of each.

The host starts one OpenMP parallel region per kernel call (GOMP_parallel), so every thread of the
team executes the whole kernel on the same arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from pipelines.engine.kernels.device.views import jit
from pipelines.engine.kernels.isa import BARRIER, THREAD, THREADS

__all__ = ["barrier", "thread_range", "thread_scratch"]

barrier = types.ExternalFunction(BARRIER, types.void())  # waits for all threads of the team
thread_index = types.ExternalFunction(THREAD, types.int32())
thread_count = types.ExternalFunction(THREADS, types.int32())


@jit
def thread_range(count: Any) -> Any:
    """(first, end) of this thread's contiguous share of `count` tasks."""
    index, threads = np.int64(thread_index()), np.int64(thread_count())
    return count * index // threads, count * (index + 1) // threads


@jit
def thread_scratch(workspace: Any) -> Any:
    """The address of this thread's scratch buffer."""
    return workspace.scratch + np.int64(thread_index()) * workspace.scratch_bytes
