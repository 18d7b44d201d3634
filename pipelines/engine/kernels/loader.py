"""Find, compile, load and run the kernels.

README.md beside this file walks through a call.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from pipelines.engine.kernels.code_cache import (
    ObjectCode,
    can_write,
    folder_problem,
    pack,
    read_cached,
    read_private,
    remove_outdated,
    unpack,
    write_cached,
)
from pipelines.engine.kernels.host.self_check import wrong_kernels
from pipelines.engine.kernels.isa import ISA_LEVELS
from pipelines.engine.kernels.library import KernelLibrary
from pipelines.engine.kernels.system_calls import function_address, system_calls
from pipelines.engine.kernels.thread_teams import TeamFunctions, ThreadTeams
from pipelines.malloc import discard_library_pages

_PACKAGE = "pipelines.engine.kernels"  # not __package__, which goes away in Python 3.15

# The folder of compiled kernels (by default in the user's cache), or "torch": use no kernels.
_ENVIRONMENT_VARIABLE = "EDGEAPP_KERNELS"

# The levels of ARM, the best one first, and the flag of torch for its instructions.
_ARM_FLAGS = {"i8mm": "i8mm", "dotprod": "dot", "neon": "neon"}

# Linux's system call for x86-64, its request for a CPU feature, and the number of AMX's tiles.
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18

# The check in a process of its own, which imports torch, may take so long.
_CHECK_S = 120.0

# An import of this project: (package or module, imported names).
_IMPORT = re.compile(r"^ *from (pipelines[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class CompileProgress:
    """How far the compiler is.

    Attributes:
        done: Functions of the kernels that are compiled.
        total: All of them.
        elapsed_s: Seconds since the compiler was started.
    """

    done: int
    total: int
    elapsed_s: float


_listener: Callable[[CompileProgress], None] | None = None


def report_compiling_to(listener: Callable[[CompileProgress], None] | None) -> None:
    """Have `load_kernels` of this process report each compiled function; None ends that.

    The listener is called by the thread that waits for the compiler.
    """
    global _listener
    _listener = listener


@cache
def load_kernels() -> KernelLibrary | None:
    """The kernels of this machine, compiled first if the cache lacks them (20 s or more).

    Returns:
        None where there are none: EDGEAPP_KERNELS is "torch", the CPU has neither AVX2 nor NEON,
        it is not known how threads wait on this system, the compiler fails, or the kernel
        `linear` computes something else than torch. The last two warn. Other kernels that do are
        left out. Levels with a `fallback` give way to it instead.
    """
    level = expected_isa()
    while level is not None:
        path = _cache_path(level)
        kernels = read_cached(path) or _compile(level, path)
        if kernels is not None and _can_be_linked(kernels, level, path):
            library = _check(link(kernels, level), kernels, path)
            if library is not None:
                return library
        level = ISA_LEVELS[level].fallback
    return None


def expected_isa() -> str | None:
    """The level in ISA_LEVELS that `load_kernels` will use if nothing fails; None without kernels.
    Compiles and loads nothing, but asks the system for the matrix unit, as `cpu_isa` does."""
    return None if kernels_disabled() or system_calls() is None else cpu_isa()


def needs_compiling() -> bool:
    """Whether `load_kernels` has to compile: there can be kernels, and the cache lacks them."""
    level = expected_isa()
    return level is not None and read_cached(_cache_path(level)) is None


def cache_is_writable() -> bool:
    """Whether compiled kernels can be kept, so that the next process need not compile them."""
    return not kernels_disabled() and can_write(_cache_folder())


def kernels_disabled() -> bool:
    """Whether the environment chooses torch's operations (EDGEAPP_KERNELS=torch)."""
    return os.environ.get(_ENVIRONMENT_VARIABLE) == "torch"


def cpu_isa() -> str | None:
    """The best of ISA_LEVELS for this CPU, or None. Where the CPU has a matrix unit, the system is
    asked to let this process use it. On x86, ATEN_CPU_CAPABILITY, which limits
    torch's instructions, limits these as well."""
    flags, allowed = torch.cpu.get_capabilities(), torch.backends.cpu.get_cpu_capability()
    if flags.get("architecture") in ("arm64", "aarch64"):
        best = [level for level, flag in _ARM_FLAGS.items() if flags.get(flag)]
        return best[0] if best else None
    if flags.get("architecture") != "x86_64":
        return None
    if allowed.startswith("AVX512") and flags.get("avx512_vnni"):
        return "amx" if request_matrix_unit() else "vnni512"
    if not allowed.startswith(("AVX2", "AVX512")):
        return None
    return "vnni256" if flags.get("avx_vnni") else "avx2"


@cache
def request_matrix_unit() -> bool:
    """Have Linux let this process use AMX; whether the CPU has it for int8, and Linux does.

    Each thread of the process then needs 8 KB more where its registers are saved.
    """
    if not torch.cpu.get_capabilities().get("amx_int8") or sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA) == 0)


def _cache_folder() -> Path:
    from platformdirs import user_cache_path

    folder = os.environ.get(_ENVIRONMENT_VARIABLE)
    return Path(folder) if folder else user_cache_path("edgeapp") / "kernels"


def _cache_path(level: str) -> Path:
    return _cache_folder() / f"{level}-{_cache_key()}.kernels"


@cache
def _cache_key() -> str:
    """Changes with the sources of the kernels, the versions of the compiler, and the CPU."""
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    for source in _sources():
        digest.update(source.read_bytes())
    cpu = llvm.get_host_cpu_name() + llvm.get_host_cpu_features().flatten()
    digest.update(f"{version('numba')} {version('llvmlite')} {cpu}".encode())
    return digest.hexdigest()[:16]


def _sources() -> list[Path]:
    """The files that the compiled code depends on: all that `build` imports of this project, found
    by following the imports in the sources."""
    root, found = Path(__file__).parents[3], list[Path]()
    unread = [Path(__file__).with_name("build.py")]
    while unread:
        path = unread.pop()
        found.append(path)
        for package, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
            folder = root.joinpath(*package.split("."))
            modules = [folder, *(folder / name for name in re.findall(r"\w+", names))]
            files = [module.with_suffix(".py") for module in modules]
            unread += {file for file in files if file.is_file()} - {*found, *unread}
    return sorted(found)


def _compile(level: str, path: Path) -> ObjectCode | None:
    """Compile the kernels and store them at `path` if that can be done; None if it fails.

    The compiler runs in a process of its own: it takes 150 MB that would not be freed.
    """
    content, reason, isa = b"", "", ISA_LEVELS[level]
    try:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / path.name
            limits = (
                {}
                if isa.cpu is None
                else {"NUMBA_CPU_NAME": isa.cpu, "NUMBA_CPU_FEATURES": isa.features}
            )
            errors = Path(folder) / "errors"
            status = _run_compiler(level, output, errors, limits)
            reason = errors.read_text(errors="replace").strip().rpartition("\n")[2]
            content = output.read_bytes() if status == 0 else b""
    except OSError as error:  # no folder for temporary files, or no process
        reason = str(error)
    kernels = unpack(content)
    if kernels is None:
        _warn(
            f"the kernels for {isa.name} could not be compiled, {_instead(level)} are used "
            f"instead: {reason}"
        )
    elif write_cached(path, content):
        remove_outdated(path)
    elif (problem := folder_problem(path.parent)) is not None:
        _warn(f"compiled kernels are not kept in {path.parent}: {problem}")
    return kernels


def _check(library: KernelLibrary, kernels: ObjectCode, path: Path) -> KernelLibrary | None:
    """The library without the kernels that compute something else than torch, with one warning.

    A check that all kernels have passed is noted beside them, and not repeated.
    """
    if _were_checked(kernels, path):
        return library
    wrong = wrong_kernels(library)
    if not wrong:
        write_cached(_note(path), kernels.checksum.encode())
        return library
    _warn(
        f"the kernels {', '.join(wrong)} do not compute what torch does on this machine: "
        f"{_instead(library.level)} are used instead"
    )
    whole = "linear" in wrong or ISA_LEVELS[library.level].fallback is not None
    return None if whole else library.without(set(wrong))


def _note(path: Path) -> Path:
    """The file that says which kernels have passed the check."""
    return path.with_suffix(".checked")


def _were_checked(kernels: ObjectCode, path: Path) -> bool:
    return read_private(_note(path)) == kernels.checksum.encode()


def _can_be_linked(kernels: ObjectCode, level: str, path: Path) -> bool:
    """Whether the kernels may be loaded into this process; warns where they may not.

    On systems where they were never tested, another process has to survive that first.
    """
    if sys.platform == "linux" or _were_checked(kernels, path) or survives(kernels, level):
        return True
    _warn(
        f"the kernels for {ISA_LEVELS[level].name} crashed or hung in a trial on this system: "
        f"{_instead(level)} are used instead"
    )
    return False


def survives(kernels: ObjectCode, level: str) -> bool:
    """Whether the check ends, whatever it finds, in a process of its own."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernels"
            file.write_bytes(pack(kernels))
            done = subprocess.run(
                [sys.executable, "-m", f"{_PACKAGE}.isolated_check", level, str(file)],
                cwd=Path(__file__).parents[3],
                capture_output=True,
                check=False,
                timeout=_CHECK_S,
            )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _run_compiler(level: str, output: Path, errors: Path, environment: Mapping[str, str]) -> int:
    """Run the compiler, which writes `output`, in a process of its own, and pass its progress on;
    its stderr goes to a file, the environment limits its instructions. Returns its exit status."""
    start = time.monotonic()
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", f"{_PACKAGE}.compiler", level, str(output)],
            env=os.environ | environment,
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                done, _, total = line.partition(" ")
                if _listener is not None and done.isdecimal() and total.strip().isdecimal():
                    elapsed_s = time.monotonic() - start
                    _listener(CompileProgress(int(done), int(total), elapsed_s))
        except BaseException:  # such as Ctrl-C: it would be waited for
            child.kill()
            raise
    return child.returncode


def _instead(level: str) -> str:
    """What is used where the kernels of a level are not."""
    fallback = ISA_LEVELS[level].fallback
    return "torch's operations" if fallback is None else f"those for {ISA_LEVELS[fallback].name}"


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def link(kernels: ObjectCode, level: str) -> KernelLibrary:
    """Load object code, compiled for a level of ISA_LEVELS, into this process, unchecked."""
    import llvmlite.binding as llvm

    if ISA_LEVELS[level].matrix_unit:
        assert request_matrix_unit(), "the CPU and the system were asked before"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    calls = system_calls()
    assert calls is not None, "a level was chosen"
    for symbol, address in calls.addresses().items():
        llvm.add_symbol(symbol, address)
    for symbol in kernels.stubs:
        llvm.add_symbol(symbol, function_address(ctypes.pythonapi.Py_FatalError))
    target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(kernels.code))
    engine.finalize_object()
    addresses = {
        name: engine.get_function_address(symbol) for name, symbol in kernels.symbols.items()
    }
    names = [field.name for field in fields(TeamFunctions)]
    of_teams = TeamFunctions(**{name: addresses.pop(name) for name in names})
    # Loading these 100 KB of code reads 45 MB of libllvmlite, which are not needed any more.
    discard_library_pages("libllvmlite")
    return KernelLibrary(level, addresses, ThreadTeams(of_teams, engine))
