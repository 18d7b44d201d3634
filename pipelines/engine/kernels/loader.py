"""Finding, compiling and loading the kernels, and the threads that run them."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipelines.engine.kernels.isa import ISA_LEVELS, RUNTIME
from pipelines.engine.kernels.malloc import discard_library_pages

__all__ = ["KernelLibrary", "load_kernels", "kernels_disabled", "needs_compiling"]

# Where compiled kernels are kept (by default the user's cache), or "torch": use none.
_ENVIRONMENT_VARIABLE = "EDGEAPP_KERNELS"


@dataclass(frozen=True, eq=False)
class KernelLibrary:
    """The kernels in memory.

    level: which of LEVELS they were compiled for.
    """

    level: str
    _addresses: Mapping[str, int]
    _parallel: Any
    _code: Any  # what they are part of

    @property
    def largest(self) -> int:
        """The byte that an activation becomes at most."""
        return ISA_LEVELS[self.level].largest

    def run(self, kernel: str, table: NDArray[np.int64]) -> None:
        """Let torch's threads run a kernel on a table, without Python's lock."""
        self._parallel(self._addresses[kernel], table.ctypes.data, torch.get_num_threads(), 0)


@cache
def load_kernels() -> KernelLibrary | None:
    """The kernels, compiled for this machine if they were not yet, which takes some 15 seconds.

    None where they cannot be: without AVX2, where torch's threads are not those of GNU's OpenMP
    (they are on Linux), or where the compiler fails.
    """
    level, runtime = _isa_level(), _runtime()
    if level is None or runtime is None:
        return None
    kept = _cache_path(level)
    code = _read_cached(kept) or _compile(level, kept)
    return None if code is None else _link(*code, level, runtime)


def needs_compiling() -> bool:
    """Whether `library` would have to compile the kernels first."""
    level = _isa_level()
    return level is not None and _runtime() is not None and not _cache_path(level).exists()


def kernels_disabled() -> bool:
    """Whether the environment asks for torch's operations, one by one."""
    return os.environ.get(_ENVIRONMENT_VARIABLE) == "torch"


def _isa_level() -> str | None:
    """None where there are no instructions that do; torch, through ATEN_CPU_CAPABILITY, and this
    library may be held back."""
    flags, allowed = torch.cpu.get_capabilities(), torch.backends.cpu.get_cpu_capability()
    if kernels_disabled() or flags.get("architecture") != "x86_64":
        return None
    if allowed.startswith("AVX512") and flags.get("avx512_vnni"):
        return "vnni512"
    if not allowed.startswith(("AVX2", "AVX512")):
        return None
    return "vnni256" if flags.get("avx_vnni") else "avx2"


@cache
def _runtime() -> Any:
    """torch's own OpenMP: the threads that are waiting already."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        runtime = ctypes.CDLL(str(path))
        if all(hasattr(runtime, name) for name in ("GOMP_parallel", *RUNTIME.values())):
            return runtime
    return None


def _cache_path(level: str) -> Path:
    from platformdirs import user_cache_path

    folder = os.environ.get(_ENVIRONMENT_VARIABLE)
    return (
        Path(folder) if folder else user_cache_path("edgeapp")
    ) / f"{level}-{_cache_key()}.kernels"


@cache
def _cache_key() -> str:
    """Changes with the sources of the kernels, the compiler and the CPU."""
    import llvmlite.binding as llvm

    found = hashlib.sha256()
    for source in _sources():
        found.update(source.read_bytes())
    machine = llvm.get_host_cpu_name() + llvm.get_host_cpu_features().flatten()
    found.update(f"{version('numba')} {version('llvmlite')} {machine}".encode())
    return found.hexdigest()[:16]


def _sources() -> list[Path]:
    """The files that the compiled code depends on. All that `build` imports lies here."""
    folder = Path(__file__).parent
    common = [folder / f"{name}.py" for name in ("abi", "build", "isa")]
    return [*common, *sorted((folder / "device").glob("*.py"))]


_ObjectCode = tuple[dict[str, Any], bytes]


def _read_cached(kept: Path) -> _ObjectCode | None:
    """What build.py wrote; None when it is not there, or not whole."""
    try:
        first, _, code = kept.read_bytes().partition(b"\n")
        told = json.loads(first)
    except (OSError, ValueError):
        return None
    return (told, code) if told["sha256"] == hashlib.sha256(code).hexdigest() else None


def _compile(level: str, kept: Path) -> _ObjectCode | None:
    """In a process of its own: the compiler takes 150 MB, which nobody gives back."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / kept.name
        cpu = ISA_LEVELS[level].cpu
        limits = {} if cpu is None else {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
        done = subprocess.run(
            [sys.executable, "-m", f"{__package__}.build", level, str(made)],
            env=os.environ | limits,
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=False,
        )
        code = _read_cached(made) if done.returncode == 0 else None
        if code is None:
            why = done.stderr.strip().rpartition("\n")[2]
            warnings.warn(
                f"the kernels could not be compiled, torch's are used instead: {why}",
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            _write_cache(made.read_bytes(), kept)
    return code


def _write_cache(data: bytes, kept: Path) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(data)
        part.replace(kept)
    except OSError:
        pass  # compiled anew next time


def _link(told: dict[str, Any], code: bytes, level: str, runtime: Any) -> KernelLibrary:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name, own in RUNTIME.items():
        llvm.add_symbol(name, _function_address(getattr(runtime, own)))
    for name in told["never called"]:
        llvm.add_symbol(name, _function_address(ctypes.CDLL(None).abort))
    target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    found = {name: engine.get_function_address(of) for name, of in told["kernels"].items()}
    parallel = runtime.GOMP_parallel
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    discard_library_pages("libllvmlite")  # 45 MB, which were to read 100 KB
    return KernelLibrary(level, found, parallel, engine)


def _function_address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None, "the function is there"
    return address
