"""Compile the kernels for ARM on another machine: `python -m tests.engine.kernels.cross_compile
LEVEL FILE`.

Numba compiles for the processor that it runs on. Here LLVM is told that this is an ARM one; the
code is written to FILE, and cannot be run on this machine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import llvmlite.binding as llvm
from llvmlite import ir

from pipelines.engine.kernels.isa import ISA_LEVELS

__all__ = ["cross_compile", "tile_assembly"]

_TRIPLE = "aarch64-unknown-linux-gnu"


def cross_compile(level: str) -> bytes:
    """The content of a file of the cache. Numba must not have been imported."""
    isa = ISA_LEVELS[level]
    assert isa.cpu is not None, f"{level} is not a level of ARM"
    os.environ |= {"NUMBA_CPU_NAME": isa.cpu, "NUMBA_CPU_FEATURES": isa.features}
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: _TRIPLE
    from pipelines.engine.kernels.build import build

    return build(level)


def tile_assembly(level: str, rows: int) -> list[str]:
    """The lines of assembly of a function that multiplies some rows with a panel of weights."""
    from pipelines.engine.kernels.device import dots
    from pipelines.engine.kernels.device import ir as device

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = _TRIPLE
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 6)
    function = ir.Function(module, kind, "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    before = device._level
    try:
        device.use_isa(level)
        _, generate = cast(Any, dots._dot_tile(rows))._defn(None, *[None] * 6)
        context = SimpleNamespace(get_dummy_value=lambda: None)
        generate(context, builder, None, function.args)
    finally:
        device._level = before
    builder.ret_void()
    isa = ISA_LEVELS[level]
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(
        cpu=isa.cpu, features=isa.features, opt=3
    )
    return machine.emit_assembly(llvm.parse_assembly(str(module))).splitlines()


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(cross_compile(sys.argv[1]))
