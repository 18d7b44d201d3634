"""The instruction sets that kernels are compiled for.

Shared by the compiler (`build`, device/) and the loader: it imports neither Numba nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class IsaLevel:
    """How int8 dot products are computed.

    Attributes:
        name: Of the instructions, for users.
        instruction: Of the product of several rows: one of the classes of device/dots.py.
        lanes: Numbers of 32 bits in one vector register.
        tile_rows: Rows of activations that are multiplied at a time with a panel of weights; more
            would not leave enough registers for the weights.
        tile_sums: Vector registers that hold sums. A tile of many rows takes a part of a panel at
            a time, so that no more are needed; None if the whole panel always fits.
        group_inputs: Consecutive inputs of an output that lie side by side in a panel.
        quant_max: The largest value of a quantized activation (uint8). 127, which is 7 bits, where
            the sum of two products has to fit in int16.
        large_products: Whether products of hundreds of rows take less time than in float32.
        signed: Activations are stored less 128, as int8, because the dot product multiplies signed
            bytes only; the minimum of a row is raised by 128 steps in return.
        matrix_unit: Whether the CPU has a matrix unit (AMX), for tiles of 16 rows and more.
        pairs: Whether the CPU multiplies two int16 at a time, for attention of encoders, which is
            float32 otherwise.
        registers: Vector registers.
        fallback: The level for where this one cannot be compiled or computes something else.
        cpu: LLVM's name of the CPU that the rest of the code is compiled for; None for the CPU of
            this machine.
        features: LLVM's features beyond those of `cpu`.
    """

    name: str
    instruction: Literal["vpdpbusd", "vpmaddubsw", "usmmla", "sdot", "smull"]
    lanes: int
    tile_rows: int = 8
    tile_sums: int | None = None
    group_inputs: int = 4
    quant_max: int = 255
    large_products: bool = True
    signed: bool = False
    matrix_unit: bool = False
    pairs: bool = False
    registers: int = 32
    fallback: str | None = None
    cpu: str | None = None
    features: str = ""


# vnni: vpdpbusd adds four products of bytes in int32. avx2: vpmaddubsw adds two in int16.
# i8mm: usmmla multiplies 2 × 8 bytes by 8 × 2 in int32, for one row usdot adds four products.
# dotprod: sdot adds four products of signed bytes. neon: smull multiplies bytes in int16, addp and
# sadalp add four of them.
# amx: vnni512, and tdpbusd for many rows. Attention on x86: vpdpwssd or vpmaddwd, two products of
# int16 in int32.
_X86_LEVELS = {
    "amx": IsaLevel(
        "AVX512-VNNI and AMX",
        "vpdpbusd",
        lanes=16,
        matrix_unit=True,
        pairs=True,
        fallback="vnni512",
    ),
    "vnni512": IsaLevel("AVX512-VNNI", "vpdpbusd", lanes=16, pairs=True),
    "vnni256": IsaLevel("AVX-VNNI", "vpdpbusd", lanes=8, registers=16, pairs=True),
    "avx2": IsaLevel(
        "AVX2",
        "vpmaddubsw",
        lanes=8,
        tile_rows=2,
        quant_max=127,
        registers=16,
        pairs=True,
        cpu="haswell",
    ),
}
_ARM_LEVELS = {
    "i8mm": IsaLevel(
        "NEON with int8 matrix products",
        "usmmla",
        lanes=4,
        tile_sums=16,
        group_inputs=8,
        cpu="generic",
        features="+dotprod,+i8mm",
    ),
    "dotprod": IsaLevel(
        "NEON with dot products",
        "sdot",
        lanes=4,
        tile_rows=4,
        tile_sums=16,
        signed=True,
        cpu="generic",
        features="+dotprod",
    ),
    "neon": IsaLevel(
        "NEON",
        "smull",
        lanes=4,
        tile_rows=2,
        tile_sums=8,
        quant_max=127,
        large_products=False,
        cpu="generic",
    ),
}
ISA_LEVELS = _X86_LEVELS | _ARM_LEVELS
