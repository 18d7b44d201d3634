"""Device, compute type and CPU threads of a model, chosen once at load."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from pipelines.engine.kernels.host.attention import CompiledAttention
from pipelines.engine.kernels.isa import ISA_LEVELS
from pipelines.engine.kernels.loader import (
    cpu_isa,
    expected_isa,
    kernels_disabled,
    load_kernels,
)
from pipelines.engine.weights.quantized import fbgemm_overflows
from pipelines.errors import OptionError

COMPUTE_TYPES = ("auto", "float32", "bfloat16", "float16", "int8")

# Implementations of linear layers. dense: torch's own linear. packed: weights in oneDNN's layout.
# half: fp16 weights, float32 arithmetic. int8: int8 weights; activations quantized on the fly.
Kernel = Literal["dense", "packed", "half", "int8"]


@dataclass(frozen=True)
class StackPrecision:
    """How one side of the model, encoder or decoder, computes.

    Attributes:
        kernel: implementation of the linear layers.
        weight_dtype: of the linear layers.
        activation_dtype: of everything between the linear layers.
    """

    kernel: Kernel
    weight_dtype: torch.dtype
    activation_dtype: torch.dtype


@dataclass(frozen=True)
class ComputePlan:
    """What a compute type means on a device.

    The sides differ because their work does: the encoder multiplies large matrices, where
    bfloat16 halves the time, and compiled int8 kernels take less still; a decoding step reads
    every weight for a few rows, where int8 quarters the bytes. Attention in the decoder stays
    float32 on a CPU, because oneDNN builds a new bfloat16 kernel for every key length.

    Attributes:
        compute_type: one of COMPUTE_TYPES, "auto" resolved; for a wrapped module its dtype.
        reason: why this compute type, for the user.
    """

    compute_type: str
    device: torch.device
    encoder: StackPrecision
    decoder: StackPrecision
    reason: str

    @property
    def on_gpu(self) -> bool:
        return self.device.type != "cpu"

    def without_float16_activations(self) -> ComputePlan:
        """The plan for T5: float32 instead of float16.

        T5's activations leave the range of float16; transformers keeps part of it in float32 for
        the same reason.
        """

        def widen(side: StackPrecision) -> StackPrecision:
            if side.activation_dtype != torch.float16:
                return side
            weight_dtype = side.weight_dtype if side.kernel == "int8" else torch.float32
            return StackPrecision(side.kernel, weight_dtype, torch.float32)

        return replace(self, encoder=widen(self.encoder), decoder=widen(self.decoder))

    def for_text_source(self) -> ComputePlan:
        """The plan for a text encoder: int8 if the decoder is int8.

        For a few hundred rows int8 takes 0.55 of the time of bfloat16, and half the memory.
        """
        return replace(self, encoder=self.decoder) if self.decoder.kernel == "int8" else self

    def for_audio_source(self, head_dim: int) -> ComputePlan:
        """The plan for an audio encoder with heads of this size: int8 beside an int8 decoder.

        Only with the compiled kernels: fbgemm quantizes the windows of a batch with one scale, so
        that a window's text would depend on the others. ARM without dot products multiplies as many
        int8 as float32 per instruction. In place of bfloat16 only where attention is compiled, too:
        torch's takes longer in float32 than int8 saves. A matrix unit (AMX) multiplies bfloat16 as
        well; there this was not compared.
        """
        int8, exact = self.decoder.kernel == "int8", self.encoder.weight_dtype == torch.float32
        kernels = load_kernels() if int8 and not self.on_gpu else None
        if kernels is None:
            return self
        level = ISA_LEVELS[kernels.level]
        if not exact:
            compiled = CompiledAttention.of(kernels, head_dim, 1.0) is not None
            if not compiled or level.matrix_unit:
                return self
        return replace(self, encoder=self.decoder) if level.large_products else self


def choose_device(name: str) -> torch.device:
    """The device for "auto", "cpu", "cuda" or "cuda:N".

    Raises:
        OptionError: the name is unknown or the device not available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise OptionError(f"device {name!r} is not one of auto, cpu, cuda, cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device {name!r}: no CUDA device is usable here; use cpu or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise OptionError(f"device {name!r}: only {torch.cuda.device_count()} CUDA device(s) here")
    return device


def choose_threads(threads: int | Literal["auto"], *, adapts: bool = False) -> int:
    """The number of CPU threads.

    "auto" is torch's own choice (which heeds OMP_NUM_THREADS), limited to the cores that this
    process may use, less those that other processes keep busy now.

    Args:
        adapts: Whether these are the threads of kernels, which go on with one while that is faster
            (kernels/host/team_size.py): cores that are busy now count, too.

    Raises:
        OptionError: the number is below 1.
    """
    if threads == "auto":
        affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
        cores = os.cpu_count() or 1
        allowed = len(affinity(0)) if affinity else cores
        # A thread that waits for its core holds up all the others at each barrier: with two of
        # four cores taken, four threads were forty times slower than two.
        taken = 0 if adapts else max(0, _busy_threads_elsewhere() - (cores - allowed))
        return max(1, min(torch.get_num_threads(), allowed - taken))
    if not isinstance(threads, int) or threads < 1:
        raise OptionError(f"threads must be auto or at least 1, not {threads!r}")
    return threads


def _busy_threads_elsewhere() -> int:
    """Runnable threads besides this one: the minimum of five samples within 10 ms.

    Read from /proc/loadavg; 0 on systems without it.
    """
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
    """What `compute_type` means on `device`.

    Raises:
        OptionError: the compute type is unknown.
    """
    if compute_type not in COMPUTE_TYPES:
        raise OptionError(f"compute_type {compute_type!r} is not one of {', '.join(COMPUTE_TYPES)}")
    return (
        _cpu_plan(compute_type, device)
        if device.type == "cpu"
        else _cuda_plan(compute_type, device)
    )


def loading_plan(compute_type: str, device: torch.device) -> ComputePlan:
    """`compute_plan` for a model that is loaded now, for which kernels are compiled if need be.

    Where int8 was chosen for the kernels, as on ARM, and they cannot be used, it is float32.
    """
    plan = compute_plan(compute_type, device)
    chosen = compute_type == "auto" and plan.decoder.kernel == "int8" and device.type == "cpu"
    if chosen and not _cpu_capabilities().int8_by_torch and load_kernels() is None:
        return replace(compute_plan("float32", device), reason="the int8 kernels cannot be used")
    return plan


def _cuda_plan(compute_type: str, device: torch.device) -> ComputePlan:
    reason = "as asked"
    if compute_type == "auto":
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        compute_type = "bfloat16" if bf16 else "float16"
        reason = "the GPU computes bfloat16" if bf16 else "the GPU has no bfloat16"
    if compute_type == "int8":
        side = StackPrecision("int8", torch.int8, torch.float16)
    else:
        dtype: torch.dtype = getattr(torch, compute_type)
        side = StackPrecision("dense", dtype, dtype)
    return ComputePlan(compute_type, device, side, side, reason)


def _cpu_plan(compute_type: str, device: torch.device) -> ComputePlan:
    cpu = _cpu_capabilities()
    reason = "as asked"
    if compute_type == "auto":
        compute_type, reason = "float32", "the CPU has no fast int8"
        if cpu.int8_by_torch:
            vnni = "7 bits at a time, for it has no VNNI" if fbgemm_overflows() else "VNNI"
            compute_type, reason = "int8", f"the CPU multiplies int8 ({vnni})"
        elif (isa := expected_isa()) is not None:
            compute_type, reason = "int8", f"the CPU multiplies int8 ({ISA_LEVELS[isa].name})"
        elif kernels_disabled() and cpu_isa() is not None:
            reason = "the int8 kernels are disabled"
        elif cpu_isa() is not None:
            reason = "the int8 kernels do not know this system"
    f32 = torch.float32
    exact = StackPrecision("packed" if cpu.packed else "dense", f32, f32)
    fast_encoder = (
        StackPrecision("packed", torch.bfloat16, torch.bfloat16) if cpu.bfloat16 else exact
    )
    if compute_type == "float32":
        return ComputePlan(compute_type, device, exact, exact, reason)
    if compute_type == "float16":
        half = StackPrecision("half", torch.float16, f32)
        return ComputePlan(compute_type, device, half, half, reason)
    if compute_type == "bfloat16":
        kernel: Kernel = "packed" if cpu.bfloat16 else "dense"
        side = StackPrecision(kernel, torch.bfloat16, torch.bfloat16)
        decoder = StackPrecision(
            kernel, torch.bfloat16, f32 if kernel == "packed" else torch.bfloat16
        )
        return ComputePlan(compute_type, device, side, decoder, reason)
    return ComputePlan(
        compute_type, device, fast_encoder, StackPrecision("int8", torch.int8, f32), reason
    )


@dataclass(frozen=True)
class _Capabilities:
    """Which of torch's operations are fast: oneDNN's packed layout, bfloat16 and int8 products."""

    packed: bool
    bfloat16: bool
    int8_by_torch: bool


def _cpu_capabilities() -> _Capabilities:
    """What this CPU computes natively, as torch and oneDNN see it.

    The variables ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA can restrict the libraries to less
    than the hardware offers; such a restriction counts.
    """
    flags = torch.cpu.get_capabilities()
    x86 = flags.get("architecture") == "x86_64"
    onednn = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT").upper()
    isa = torch.backends.cpu.get_cpu_capability()
    allowed = isa.startswith("AVX512") and (
        onednn in ("ALL", "DEFAULT") or onednn.startswith(("AVX512_CORE_", "AVX10_"))
    )
    mkldnn = bool(torch._C._has_mkldnn)
    return _Capabilities(
        packed=x86 and mkldnn,
        bfloat16=x86 and mkldnn and allowed and bool(flags.get("avx512_bf16")),
        # Even without VNNI int8 takes half of float32's time: a step reads a quarter of the bytes.
        int8_by_torch=x86
        and "fbgemm" in torch.backends.quantized.supported_engines
        and isa.startswith(("AVX2", "AVX512")),
    )
