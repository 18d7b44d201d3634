"""Where a model runs and in which numbers: device, precision and threads, chosen once at load."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from pipelines.engine.weights.quantised import fbgemm_overflows
from pipelines.errors import OptionError

__all__ = [
    "COMPUTE_TYPES",
    "ComputePlan",
    "StackPrecision",
    "choose_device",
    "choose_threads",
    "compute_plan",
]

COMPUTE_TYPES = ("auto", "float32", "bfloat16", "float16", "int8")

# dense: torch's own linear. packed: weights laid out for oneDNN. half: fp16 weights, float32
# arithmetic. int8: int8 weights; activations quantised on the fly.
Kernel = Literal["dense", "packed", "half", "int8"]


@dataclass(frozen=True)
class StackPrecision:
    """How one side of the model computes.

    kernel, weights: what the linear layers are. activations: dtype of everything between them.
    """

    kernel: Kernel
    weights: torch.dtype
    activations: torch.dtype


@dataclass(frozen=True)
class ComputePlan:
    """What a precision means on a device.

    The sides differ because their work does: the encoder multiplies large matrices, where
    bfloat16 halves the time; a decoding step reads every weight for a few rows, where int8
    quarters the bytes. Attention in the decoder stays float32 on a CPU, because oneDNN builds
    a new bfloat16 kernel for every key length.
    """

    compute_type: str
    device: torch.device
    encoder: StackPrecision
    decoder: StackPrecision
    why: str

    @property
    def on_gpu(self) -> bool:
        return self.device.type != "cpu"

    def with_range(self) -> ComputePlan:
        """The same for T5, whose activations leave the range of float16 (transformers keeps part of
        it in float32 for that): there they are float32."""

        def wide(side: StackPrecision) -> StackPrecision:
            if side.activations != torch.float16:
                return side
            weights = side.weights if side.kernel == "int8" else torch.float32
            return StackPrecision(side.kernel, weights, torch.float32)

        return replace(self, encoder=wide(self.encoder), decoder=wide(self.decoder))

    def for_text(self) -> ComputePlan:
        """The same for a model that reads text: where the decoder's layers are int8, the encoder's
        are, too. A few hundred rows at once take 0.55 of the time of bfloat16, and half the memory;
        1,500 of them, of audio, gain less than their attention in float32 loses."""
        return replace(self, encoder=self.decoder) if self.decoder.kernel == "int8" else self


def choose_device(wanted: str) -> torch.device:
    """ "auto", "cpu", "cuda" or "cuda:N" → a device. Raises OptionError when it is not there."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise OptionError(f"device {wanted!r} is not one of auto, cpu, cuda, cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device {wanted!r}: no CUDA device is usable here; use cpu or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise OptionError(
            f"device {wanted!r}: only {torch.cuda.device_count()} CUDA device(s) here"
        )
    return device


def choose_threads(wanted: int | Literal["auto"]) -> int:
    """The number of CPU threads: torch's own choice (which heeds OMP_NUM_THREADS), but no more
    than the cores this process may use, less those that others keep busy just now. Raises
    OptionError for anything below 1."""
    if wanted == "auto":
        allowed = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
        cores = os.cpu_count() or 1
        ours = len(allowed(0)) if allowed else cores
        # A thread that waits for its core holds up all the others at each barrier: with two of
        # four cores taken, four threads were forty times slower than two.
        taken = max(0, _busy_threads_elsewhere() - (cores - ours))
        return max(1, min(torch.get_num_threads(), ours - taken))
    if not isinstance(wanted, int) or wanted < 1:
        raise OptionError(f"threads must be auto or at least 1, not {wanted!r}")
    return wanted


def _busy_threads_elsewhere() -> int:
    """How many threads besides this one want a core now, the least of five looks within 10 ms;
    0 where the system does not tell (it is /proc/loadavg that does)."""
    counts = []
    for _ in range(5):
        try:
            running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
        except OSError:
            return 0
        counts.append(int(running) - 1)
        time.sleep(0.002)
    return max(0, min(counts))


def compute_plan(compute_type: str, device: torch.device) -> ComputePlan:
    """What `compute_type` means on `device`. Raises OptionError for an unknown precision."""
    if compute_type not in COMPUTE_TYPES:
        raise OptionError(f"precision {compute_type!r} is not one of {', '.join(COMPUTE_TYPES)}")
    return (
        _cpu_plan(compute_type, device)
        if device.type == "cpu"
        else _cuda_plan(compute_type, device)
    )


def _cuda_plan(compute_type: str, device: torch.device) -> ComputePlan:
    why = "as asked"
    if compute_type == "auto":
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        compute_type = "bfloat16" if bf16 else "float16"
        why = "the GPU computes bfloat16" if bf16 else "the GPU has no bfloat16"
    if compute_type == "int8":
        side = StackPrecision("int8", torch.int8, torch.float16)
    else:
        dtype: torch.dtype = getattr(torch, compute_type)
        side = StackPrecision("dense", dtype, dtype)
    return ComputePlan(compute_type, device, side, side, why)


def _cpu_plan(compute_type: str, device: torch.device) -> ComputePlan:
    can = _cpu_capabilities()
    why = "as asked"
    if compute_type == "auto":
        compute_type, why = "float32", "the CPU has no fast int8"
        if can.int8:
            vnni = "7 bits at a time, for it has no VNNI" if fbgemm_overflows() else "VNNI"
            compute_type, why = "int8", f"the CPU multiplies int8 ({vnni})"
    f32 = torch.float32
    exact = StackPrecision("packed" if can.packed else "dense", f32, f32)
    fast_encoder = (
        StackPrecision("packed", torch.bfloat16, torch.bfloat16) if can.bfloat16 else exact
    )
    if compute_type == "float32":
        return ComputePlan(compute_type, device, exact, exact, why)
    if compute_type == "float16":
        half = StackPrecision("half", torch.float16, f32)
        return ComputePlan(compute_type, device, half, half, why)
    if compute_type == "bfloat16":
        kernel: Kernel = "packed" if can.bfloat16 else "dense"
        side = StackPrecision(kernel, torch.bfloat16, torch.bfloat16)
        decoder = StackPrecision(
            kernel, torch.bfloat16, f32 if kernel == "packed" else torch.bfloat16
        )
        return ComputePlan(compute_type, device, side, decoder, why)
    return ComputePlan(
        compute_type, device, fast_encoder, StackPrecision("int8", torch.int8, f32), why
    )


@dataclass(frozen=True)
class _Capabilities:
    packed: bool
    bfloat16: bool
    int8: bool


def _cpu_capabilities() -> _Capabilities:
    """What this CPU computes natively, as torch and oneDNN see it.

    Both libraries can be held below the hardware through ATEN_CPU_CAPABILITY and
    ONEDNN_MAX_CPU_ISA; a kernel counts only when neither forbids it.
    """
    flags = torch.cpu.get_capabilities()
    x86 = flags.get("architecture") == "x86_64"
    onednn = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper()
    vectors = torch.backends.cpu.get_cpu_capability()
    allowed = vectors.startswith("AVX512") and (
        onednn in ("ALL", "DEFAULT") or onednn.startswith(("AVX512_CORE_", "AVX10_"))
    )
    mkldnn = bool(torch._C._has_mkldnn)
    return _Capabilities(
        packed=x86 and mkldnn,
        bfloat16=x86 and mkldnn and allowed and bool(flags.get("avx512_bf16")),
        # Without VNNI, too, int8 takes half of float32's time: a step reads a quarter of the bytes.
        int8=x86
        and "fbgemm" in torch.backends.quantized.supported_engines
        and vectors.startswith(("AVX2", "AVX512")),
    )
