"""Checks that load native libraries; each runs in a process of its own, which may crash or hang.

`python -m edgeapp.doctor.probes NAME` prints the findings of one probe as JSON on the last line.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from edgeapp.console import counted
from edgeapp.doctor.findings import Finding, State
from pipelines import EdgeError

__all__ = ["PROBES", "main"]

_INSTRUCTIONS = (
    "avx2",
    "avx_vnni",
    "avx512_f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_bf16",
    "amx_int8",
    "neon",
    "dot",
    "i8mm",
)
_TEST_S = 1.0  # of the microphone
_SILENT_DB = -80.0  # below it a microphone is switched off or muted


def _computing() -> Iterator[Finding]:
    """The CPU, the kernels, the GPU."""
    import torch

    from edgeapp.settings import load_settings
    from pipelines.engine import Engine

    flags = torch.cpu.get_capabilities()
    known = [name for name in _INSTRUCTIONS if flags.get(name)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("CPU", State.OK, f"{_cpu_name()}, {cores} cores for this process")
    fast = flags.get("architecture") != "x86_64" or flags.get("avx2")
    yield Finding(
        "CPU",
        State.OK if fast else State.MISSING,
        f"instructions: {', '.join(known) or 'none of ' + ', '.join(_INSTRUCTIONS)}",
        None if fast else "a CPU with AVX2 computes int8, which is several times faster",
    )
    yield _gpu()
    settings = load_settings()
    engine = Engine(settings.device, settings.compute_type, settings.threads)
    where = f"{engine.device}, {counted(engine.threads, 'thread')}"
    isa = engine.instructions
    if engine.needs_compiling:
        time = "20 seconds, minutes beside other work"
        text = f"{where}; kernels for {isa} are compiled at the first use: {time}"
        yield Finding("Engine", State.OK, text)
    else:
        kernels = "torch's operations compute" if isa is None else f"kernels for {isa} are ready"
        yield Finding("Engine", State.OK, f"{where}; {kernels}")
    if engine.device == "cpu" and not engine.kernel_cache_is_writable:
        advice = "set EDGEAPP_KERNELS to a folder that only you can write to"
        yield Finding("Engine", State.MISSING, "compiled kernels cannot be kept", advice)


def _gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
        names = ", ".join(f"{gpu.name} ({gpu.total_memory / 1e9:.0f} GB)" for gpu in gpus)
        return Finding("GPU", State.OK, names)
    present = Path("/dev/nvidia0").exists() or shutil.which("nvidia-smi") is not None
    if not present:
        return Finding("GPU", State.OK, "none; the CPU computes")
    if torch.version.cuda is None:
        advice = "install torch with CUDA: pip install --force-reinstall torch"
        return Finding("GPU", State.MISSING, "a GPU is here, torch is built for the CPU", advice)
    advice = "install a driver for CUDA " + str(torch.version.cuda)
    return Finding("GPU", State.MISSING, "a GPU is here, and CUDA does not start", advice)


def _cpu_name() -> str:
    from edgeapp.bench.machine import cpu_name

    return cpu_name()


def _microphones() -> Iterator[Finding]:
    """The microphones, and the level of the default one for a second."""
    import numpy as np

    from edgeapp.live.microphone import Microphone, find_device, list_devices

    try:
        devices = list_devices()
        default = find_device()
    except EdgeError as error:
        yield Finding("Microphone", State.MISSING, str(error), None)
        return
    names = ", ".join(f"{device.index} {device.name}" for device in devices)
    yield Finding("Microphone", State.OK, names)
    heard, seconds = [], 0.0
    try:
        with Microphone(default) as microphone:
            while seconds < _TEST_S:
                block = microphone.try_read(_TEST_S)
                if block is None and microphone.ended:
                    break
                if block is not None:
                    heard.append(block.samples)
                    seconds += block.seconds
    except EdgeError as error:
        yield Finding("Microphone", State.MISSING, str(error))
        return
    samples = np.concatenate([np.zeros(1, np.float32), *heard])
    level = 20 * np.log10(max(float(np.sqrt(np.mean(np.square(samples)))), 1e-6))
    silent = level < _SILENT_DB
    advice = "switch it on, unmute it, or choose another with edgeapp live --input-device"
    yield Finding(
        "Microphone",
        State.MISSING if silent else State.OK,
        f"{default.name}: {level:.0f} dB in {seconds:.0f} s" + (", silence" if silent else ""),
        advice if silent else None,
    )


PROBES: dict[str, Callable[[], Iterator[Finding]]] = {
    "computing": _computing,
    "microphones": _microphones,
}


def main(name: str) -> None:
    """Run a probe and print its findings; an error is its last finding."""
    findings = []
    try:
        for finding in PROBES[name]():
            findings.append(finding)
    except Exception as error:
        message = str(error) if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}"
        findings.append(Finding(name.capitalize(), State.BROKEN, message))
    sys.stdout.write("\n" + json.dumps([asdict(finding) for finding in findings]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
