"""The kernels in memory: call one by name."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipelines.engine.kernels.isa import ISA_LEVELS

__all__ = ["KernelLibrary"]


@dataclass(frozen=True, eq=False)
class KernelLibrary:
    """The kernels in memory.

    Attributes:
        level: The key in ISA_LEVELS of the instructions that they were compiled for.
        addresses: Of the functions, by kernel (`KERNELS` in device/entry_points.py).
    """

    level: str
    addresses: Mapping[str, int]
    _parallel: Any  # GOMP_parallel
    _engine: Any  # LLVM's execution engine, which owns the code's memory

    @property
    def quant_max(self) -> int:
        """The largest byte that an activation is quantized to: 255, or 127 where the sum of
        two products has to fit in int16."""
        return ISA_LEVELS[self.level].quant_max

    @property
    def group_inputs(self) -> int:
        """Consecutive inputs of an output that lie side by side in packed weights."""
        return ISA_LEVELS[self.level].group_inputs

    def has(self, kernel: str) -> bool:
        """Whether a kernel can be run."""
        return kernel in self.addresses

    def without(self, kernels: set[str]) -> KernelLibrary:
        """This library without some kernels."""
        kept = {name: at for name, at in self.addresses.items() if name not in kernels}
        return replace(self, addresses=kept)

    def run(self, kernel: str, args: ctypes.Structure, threads: int) -> None:
        """Run a kernel without Python's global lock; return when it is done.

        Args:
            kernel: A key of `addresses`.
            args: abi.LinearArgs, abi.StackArgs or abi.HeadArgs, whose buffers must exist until
                this returns.
            threads: Of torch's pool.
        """
        self._parallel(self.addresses[kernel], ctypes.addressof(args), threads, 0)
