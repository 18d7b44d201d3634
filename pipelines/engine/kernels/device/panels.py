"""Vector code for the outputs of whole panels: int32 sums become float32 outputs.

Emitted, not written in Python: LLVM does not see that the buffers are apart, and would have each
row check it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pipelines.engine.kernels.abi import PANEL_OUTPUTS
from pipelines.engine.kernels.device.intrinsics import level
from pipelines.engine.kernels.device.vectors import F32, I32, I64, splat, vector


def _vectors(b: Any, address: Any, kind: Any) -> list[Any]:
    """Pointers to the PANEL_OUTPUTS numbers at an address, a register at a time."""
    lanes = level().lanes
    type_ = vector(kind).as_pointer()
    offsets = range(0, 4 * PANEL_OUTPUTS, 4 * lanes)
    return [b.inttoptr(b.add(address, ir.Constant(I64, offset)), type_) for offset in offsets]


def _load(b: Any, address: Any, kind: Any) -> list[Any]:
    return [b.load(at, align=4) for at in _vectors(b, address, kind)]


def _broadcast(b: Any, address: Any, offset: int) -> Any:
    """The float32 so many bytes after an address, in all lanes."""
    at = b.inttoptr(b.add(address, ir.Constant(I64, offset)), F32.as_pointer())
    return splat(b, b.load(at))


def _panel(add: bool) -> Any:
    """The intrinsic that stores outputs, or adds them to what is stored."""

    @intrinsic
    def finish(
        typing: Any, sums: Any, rows: Any, quant_ranges: Any, scales: Any, weight_sums: Any,
        biases: Any, result: Any, stride: Any,
    ) -> Any:  # fmt: skip
        """The outputs of a panel (the formula of gemm.py) for one row or more.

        sums: int32 [rows, PANEL_OUTPUTS]. quant_ranges: float32 [rows, 2]. scales, weight_sums and
        biases: float32 [PANEL_OUTPUTS]. result: float32 [rows, PANEL_OUTPUTS], rows `stride` bytes
        apart; it may be `sums`.
        """

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit_panel(builder, add, *args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), generate

    return finish


def _emit_panel(
    b: Any, add: bool, sums: Any, rows: Any, quant_ranges: Any, scales: Any, weight_sums: Any,
    biases: Any, result: Any, stride: Any,
) -> None:  # fmt: skip
    columns = [_load(b, address, F32) for address in (scales, weight_sums, biases)]
    floats = vector(F32)
    before, loop, done = b.block, b.append_basic_block("rows"), b.append_basic_block("finished")
    b.branch(loop)
    b.position_at_end(loop)
    row = b.phi(I64)
    row.add_incoming(ir.Constant(I64, 0), before)
    of_row = b.add(sums, b.mul(row, ir.Constant(I64, 4 * PANEL_OUTPUTS)))
    quant_range = b.add(quant_ranges, b.mul(row, ir.Constant(I64, 8)))
    step, minimum = _broadcast(b, quant_range, 0), _broadcast(b, quant_range, 4)
    targets = _vectors(b, b.add(result, b.mul(row, stride)), F32)
    totals = _load(b, of_row, I32)
    contract = ("contract",)  # a product and a sum may be one instruction
    for total, scale, weight, bias, target in zip(totals, *columns, targets, strict=True):
        scaled = b.fmul(step, b.sitofp(total, floats), flags=contract)
        shifted = b.fadd(scaled, b.fmul(minimum, weight, flags=contract), flags=contract)
        value = b.fadd(b.fmul(scale, shifted, flags=contract), bias, flags=contract)
        if add:
            value = b.fadd(b.load(target, align=4), value)
        b.store(value, target, align=4)
    after = b.add(row, ir.Constant(I64, 1))
    row.add_incoming(after, loop)
    b.cbranch(b.icmp_signed("<", after, rows), loop, done)
    b.position_at_end(done)


store_panel, add_panel = _panel(add=False), _panel(add=True)


@intrinsic
def any_above(typing: Any, values: Any, limit: Any) -> Any:
    """Whether any of float32 [PANEL_OUTPUTS] at `values` is above a limit, or NaN, or the limit is
    NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        b, lanes, limits = builder, level().lanes, splat(builder, args[1])
        above = [b.fcmp_unordered(">", value, limits) for value in _load(b, args[0], F32)]
        found = above[0]
        for other in above[1:]:
            found = b.or_(found, other)
        bits = b.bitcast(found, ir.IntType(lanes))
        return b.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(lanes), 0))

    return types.boolean(types.int64, types.float32), generate
