"""Compile the kernels: `python -m pipelines.engine.kernels.build LEVEL FILE`.

LEVEL is a key of `ISA_LEVELS`; FILE is written in the format of `code_cache.pack`. The loader runs
this in a process of its own. For a level with a `cpu` it sets NUMBA_CPU_NAME and NUMBA_CPU_FEATURES
to that and its features before, so that Numba uses no newer instructions either.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import llvmlite.binding as llvm

from pipelines.engine.kernels.code_cache import ObjectCode, pack
from pipelines.engine.kernels.device.ir import use_isa
from pipelines.engine.kernels.isa import ISA_LEVELS
from pipelines.engine.kernels.system_calls import system_calls

# Numba's runtime functions for Python's errors and reference counts: declared in its output, never
# called by a kernel.
_STUB_PREFIX = "edgeapp_never_"


def build(level: str) -> bytes:
    """Compile all kernels for this machine.

    Args:
        level: A key of ISA_LEVELS: the instructions for int8 dot products.

    Returns:
        The content of a file of the cache.
    """
    use_isa(level)
    calls = system_calls()
    assert calls is not None, "the loader has looked"
    for name in calls.functions:
        llvm.add_symbol(name, 1)  # Numba requires an address, though the code does not run here
    # Imported now: the functions are compiled, for the chosen level, when this module is imported.
    from pipelines.engine.kernels.device.entry_points import KERNELS, TEAM_FUNCTIONS

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module, functions = llvm.parse_assembly(""), KERNELS | TEAM_FUNCTIONS
    for function in functions.values():
        # LLVM's symbols belong to the whole process: under their own names, these would replace
        # the functions of a Numba that is used beside this.
        text = re.sub(r"@(NRT|numba)_(\w+)", rf"@{_STUB_PREFIX}\1_\2", function.inspect_llvm())
        module.link_in(llvm.parse_assembly(text))
    module.verify()
    code: bytes = _target(level).emit_object(module)
    declared = re.findall(r"^declare [^@]*@\"?([\w.]+)", str(module), re.MULTILINE)
    symbols = {name: function.native_name for name, function in functions.items()}
    stubs = [name for name in declared if name.startswith(_STUB_PREFIX)]
    return pack(ObjectCode(symbols, stubs, code))


def _target(level: str) -> llvm.TargetMachine:
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    if (limit := ISA_LEVELS[level].cpu) is not None:
        cpu, features = limit, ISA_LEVELS[level].features
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(10)  # what others decode meanwhile goes first
    Path(sys.argv[2]).write_bytes(build(sys.argv[1]))
