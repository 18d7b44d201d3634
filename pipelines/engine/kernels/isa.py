"""What those who compile the kernels and those who load them must agree on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BARRIER", "ISA_LEVELS", "RUNTIME", "THREAD", "THREADS", "IsaLevel"]


@dataclass(frozen=True)
class IsaLevel:
    """The instructions that multiply bytes.

    lanes: sums in a register. rows: how many leave registers for the weights at once. largest: the
    byte that an activation becomes at most; 7 bits where pairs of products are added in 16. cpu:
    whose instructions the rest is made of; None for those of the machine.
    """

    lanes: int
    rows: int = 8
    largest: int = 255
    cpu: str | None = None


# vnni: four products of bytes at once, added in 32 bits; avx2: pairs, in 16 bits.
ISA_LEVELS = {
    "vnni512": IsaLevel(lanes=16),
    "vnni256": IsaLevel(lanes=8),
    "avx2": IsaLevel(lanes=8, rows=2, largest=127, cpu="haswell"),
}

# What the kernels ask of OpenMP, and what it is called there.
BARRIER, THREAD, THREADS = "edgeapp_barrier", "edgeapp_thread", "edgeapp_threads"
RUNTIME = {BARRIER: "GOMP_barrier", THREAD: "omp_get_thread_num", THREADS: "omp_get_num_threads"}
