"""The instruction sets that kernels are compiled for, and the OpenMP functions that they call.

Shared by the compiler (`build`, device/) and the loader: it imports neither Numba nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BARRIER", "ISA_LEVELS", "OPENMP_FUNCTIONS", "THREAD", "THREADS", "IsaLevel"]


@dataclass(frozen=True)
class IsaLevel:
    """How int8 dot products are computed.

    Attributes:
        lanes: int32 sums in one vector register.
        tile_rows: Rows of activations that are multiplied at a time with a panel of weights; more
            would not leave enough registers for the weights.
        quant_max: The largest value of a quantized activation (uint8). 127, which is 7 bits, where
            the sum of two products has to fit in int16.
        cpu: LLVM's name of the CPU that the rest of the code is compiled for; None for the CPU of
            this machine.
    """

    lanes: int
    tile_rows: int = 8
    quant_max: int = 255
    cpu: str | None = None


# vnni: vpdpbusd adds four products of bytes in int32. avx2: vpmaddubsw adds two in int16.
ISA_LEVELS = {
    "vnni512": IsaLevel(lanes=16),
    "vnni256": IsaLevel(lanes=8),
    "avx2": IsaLevel(lanes=8, tile_rows=2, quant_max=127, cpu="haswell"),
}

# Functions of the OpenMP runtime: the symbol in the kernels → the symbol in libgomp.
BARRIER, THREAD, THREADS = "edgeapp_barrier", "edgeapp_thread", "edgeapp_threads"
OPENMP_FUNCTIONS = {
    BARRIER: "GOMP_barrier",
    THREAD: "omp_get_thread_num",
    THREADS: "omp_get_num_threads",
}
