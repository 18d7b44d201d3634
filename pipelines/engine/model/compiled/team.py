"""The threads of a team: who does what, where, and waiting for each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from pipelines.engine.model.compiled import layout as at
from pipelines.engine.model.compiled.arithmetic import quick
from pipelines.engine.model.compiled.levels import BARRIER, THREAD, THREADS

__all__ = ["barrier", "scratch_of", "share"]

barrier = types.ExternalFunction(BARRIER, types.void())
_thread = types.ExternalFunction(THREAD, types.int32())
_threads = types.ExternalFunction(THREADS, types.int32())


@quick
def share(count: Any) -> Any:
    """(first, last + 1) of so many that this thread is to do."""
    own, threads = np.int64(_thread()), np.int64(_threads())
    return count * own // threads, count * (own + 1) // threads


@quick
def scratch_of(t: Any) -> Any:
    """This thread's own."""
    return t[at.SCRATCH] + np.int64(_thread()) * t[at.SCRATCH_STRIDE]
