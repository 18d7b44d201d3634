"""CUDA graphs: the operations of a pass, recorded once and launched again by one call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from pipelines.engine.kernels.loader import kernels_disabled

__all__ = ["Recorder", "Work", "recorders_for"]

# Computes a result out of tensors that stay where they are, and of nothing else.
Work = Callable[[], Tensor]

# Does a piece of work, perhaps more than once, and returns what does it again.
Recorder = Callable[[Work], Work]


def recorders_for(device: torch.device) -> Callable[[], Recorder] | None:
    """What makes recorders of work on a device; None where it is done operation by operation: on
    CPUs, and where EDGEAPP_KERNELS is "torch"."""
    if device.type != "cuda" or kernels_disabled():
        return None
    return partial(_CudaRecorder, device)


class _CudaRecorder:
    """Its graphs share one pool of memory, so none may be played while another one runs. The
    allocator takes no pool back once all of its graphs are gone: then make another recorder."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, work: Work) -> Work:
        with torch.cuda.device(self._device):
            here = torch.cuda.current_stream()
            self._stream.wait_stream(here)
            with torch.cuda.stream(self._stream):
                work()  # whatever libraries set up for this stream must not be recorded
            graph = torch.cuda.CUDAGraph()
            # Other threads may use the GPU meanwhile.
            with torch.cuda.graph(
                graph, self._pool, self._stream, capture_error_mode="thread_local"
            ):
                result = work()
            here.wait_stream(self._stream)

        def play() -> Tensor:
            graph.replay()
            return result

        return play
