"""Compiling the kernels: `python -m pipelines.engine.kernels.build LEVEL FILE`.

FILE is a line of JSON (what the kernels are called in it, what the code names but never calls, and
its hash), then an object file.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

import llvmlite.binding as llvm

from pipelines.engine.kernels.device import intrinsics
from pipelines.engine.kernels.isa import ISA_LEVELS, RUNTIME

__all__ = ["build"]

# What Numba has for errors in Python, which no kernel raises.
_UNUSED_PREFIX = "edgeapp_never_"


def build(level: str) -> bytes:
    """The kernels for this machine; level: which instructions multiply bytes (vectors.use)."""
    intrinsics.use_isa(level)
    for name in RUNTIME:
        llvm.add_symbol(name, 1)  # Numba wants an address, though nothing is called here
    from pipelines.engine.kernels.device.entry_points import KERNELS

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly("")
    for kernel in KERNELS.values():
        # By names of our own, lest Numba, where somebody uses it beside this, loses its functions.
        text = re.sub(r"@(NRT|numba)_(\w+)", rf"@{_UNUSED_PREFIX}\1_\2", kernel.inspect_llvm())
        module.link_in(llvm.parse_assembly(text))
    module.verify()
    code: bytes = _target(level).emit_object(module)
    named = re.findall(r"^declare [^@]*@\"?([\w.]+)", str(module), re.MULTILINE)
    told = {
        "kernels": {name: kernel.native_name for name, kernel in KERNELS.items()},
        "never called": [name for name in named if name.startswith(_UNUSED_PREFIX)],
        "sha256": hashlib.sha256(code).hexdigest(),
    }
    return json.dumps(told).encode() + b"\n" + code


def _target(level: str) -> llvm.TargetMachine:
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    if (held_to := ISA_LEVELS[level].cpu) is not None:
        cpu, features = held_to, ""
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(build(sys.argv[1]))
