"""The kernels in memory: call one by name."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.isa import ISA_LEVELS
from pipelines.engine.kernels.thread_teams import ThreadTeams

_Kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True, eq=False)
class KernelLibrary:
    """The kernels in memory: the addresses of their functions, and the key in ISA_LEVELS of the
    instructions that they were compiled for."""

    level: str
    addresses: Mapping[str, int]
    _teams: ThreadTeams

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

    def run(self, kernel: str, args: abi.LinearArgs | abi.StackArgs, threads: int) -> None:
        """Run a kernel without Python's global lock; return when it is done.

        The buffers of its argument must exist until then. Fewer threads run it, this one among
        them, where the system has no more.
        """
        if threads > 1:
            self._teams.run(self.addresses[kernel], args, threads)
            return
        args.workspace.thread, args.workspace.threads = 0, 1
        self.run_alone(kernel, args)

    def run_alone(self, kernel: str, args: ctypes.Structure) -> None:
        """Run a kernel that has no part in a team, as `run`."""
        _Kernel(self.addresses[kernel])(ctypes.addressof(args))
