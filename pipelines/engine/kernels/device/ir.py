"""The vocabulary of the kernels: typed views of memory, functions that emit LLVM instructions,
vectors as wide as the level's registers, loops.

Code that LLVM turns into vector code is written in Python, with `@jit`. The rest is emitted with
llvmlite's IR builder, by functions with `@emitted`, which the Python code calls.

Buffers are passed as addresses (int64), not as arrays: an array in Numba is a struct of seven
numbers, which are passed on the stack to functions that are not inlined. `f32(address)[i]` is
element i of a float32 buffer, `linear_layers(address)[i].outputs` a field of struct i.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from pipelines.engine.kernels import abi
from pipelines.engine.kernels.isa import ISA_LEVELS, IsaLevel

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32 = ir.FloatType()
CONTRACT = ("contract",)  # a product and a sum may be one instruction

_level = ISA_LEVELS["vnni512"]


def use_isa(name: str) -> None:
    """Choose the instruction set, a key of ISA_LEVELS, for all code compiled from now on."""
    global _level
    _level = ISA_LEVELS[name]


def level() -> IsaLevel:
    """The instruction set that was chosen."""
    return _level


def emitted(result: Any, *arguments: Any) -> Callable[[Any], Any]:
    """Make a function that emits instructions one that `@jit` functions call.

    The function is given a builder and the values of the arguments, of these types of Numba, and
    returns the value of the result; None for `types.void`.
    """

    def of(emit: Any) -> Any:
        @wraps(emit)  # Numba reads the names of the arguments
        def typed(typing: Any, *_: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
                found = emit(builder, *values)
                return context.get_dummy_value() if found is None else found

            return result(*arguments), generate

        return intrinsic(typed)

    return of


# Addresses as typed arrays and structs.


@emitted(types.voidptr, types.int64)
def _pointer(b: Any, address: Any) -> Any:
    return address_of(b, address)


# Lets LLVM reorder sums, so that loops become vector code, but keeps NaN and ∞: the sampler must
# see that a source is damaged.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
_UNBOUNDED = 1 << 40  # the declared length of arrays; bounds are not checked

jit = njit(fastmath=_FAST, error_model="numpy")


def _view(dtype: Any) -> Any:
    """A function that views an address as an array of this dtype."""

    @jit
    def at(address: Any) -> Any:
        return carray(_pointer(address), (_UNBOUNDED,), dtype)

    return at


f32, u8, u16 = _view(np.float32), _view(np.uint8), _view(np.uint16)
i32, i64 = _view(np.int32), _view(np.int64)
bf16 = u16  # the bits of bfloat16 numbers; see `bf16_to_f32`

linear_layers = _view(abi.dtype_of(abi.LinearLayer))
block_args = _view(abi.dtype_of(abi.BlockArgs))
source_groups = _view(abi.dtype_of(abi.SourceGroup))
key_values = _view(abi.dtype_of(abi.KeyValueAddresses))
teams = _view(abi.dtype_of(abi.Team))
argmax_records = _view(abi.dtype_of(abi.ArgmaxRecord))


# Single instructions.


@emitted(types.float32, types.int32)
def as_float(b: Any, bits: Any) -> Any:
    """The float32 of these bits."""
    return b.bitcast(bits, F32)


@intrinsic
def bf16_to_f32(typing: Any, number: Any) -> Any:
    """Convert the bits of a bfloat16 (uint16), the upper half of a float32; a float32 is returned
    as it is, so that one function reads both."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if number == types.float32:
            return args[0]
        return builder.bitcast(builder.shl(builder.zext(args[0], I32), ir.Constant(I32, 16)), F32)

    return types.float32(number), generate


@emitted(types.void, types.int64)
def prefetch(b: Any, address: Any) -> None:
    """Prefetch the cache line at an address into the second-level cache."""
    emit_prefetch(b, address)


@emitted(types.uint8, types.uint8)
def stored_byte(b: Any, number: Any) -> Any:
    """A quantized activation as it is stored: less 128 where bytes are signed."""
    return b.xor(number, ir.Constant(I8, 128)) if level().signed else number


@emitted(types.float32, types.float32, types.float32)
def stored_minimum(b: Any, minimum: Any, step: Any) -> Any:
    """The number that the stored byte 0 stands for: 128 steps above the minimum where bytes are
    signed."""
    if not level().signed:
        return minimum
    return b.fadd(minimum, b.fmul(step, ir.Constant(F32, 128.0)))


# What emitting functions share.


def number(value: int) -> Any:
    """An int64 constant."""
    return ir.Constant(I64, value)


def address_of(b: Any, address: Any, offset: int = 0, kind: Any = I8) -> Any:
    """The pointer to a value of this type, so many bytes after an address (int64)."""
    return b.inttoptr(b.add(address, number(offset)) if offset else address, kind.as_pointer())


def load(b: Any, address: Any, kind: Any, offset: int = 0, align: int = 4) -> Any:
    """Load a value of this type from so many bytes after an address."""
    return b.load(address_of(b, address, offset, kind), align=align)


def store(b: Any, value: Any, address: Any, offset: int = 0, align: int = 4) -> None:
    """Store a value so many bytes after an address."""
    b.store(value, address_of(b, address, offset, value.type), align=align)


def call_intrinsic(b: Any, name: str, result: Any, *args: Any, suffix: tuple[Any, ...] = ()) -> Any:
    """Call one of LLVM's intrinsics, which returns this type. suffix: types in its name."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return b.call(b.module.declare_intrinsic(name, suffix, kind), args)


def emit_prefetch(b: Any, address: Any, offset: int = 0) -> None:
    """Prefetch the cache line of an address into the second-level cache."""
    at = address_of(b, address, offset)
    read, level_2, data = (ir.Constant(I32, value) for value in (0, 2, 1))
    call_intrinsic(b, "llvm.prefetch", ir.VoidType(), at, read, level_2, data, suffix=(at.type,))


def vector(kind: Any) -> Any:
    """The type of a register of numbers of 32 bits."""
    return ir.VectorType(kind, level().lanes)


def constant(value: float) -> Any:
    """A float32 in all lanes."""
    return ir.Constant(vector(F32), [value] * level().lanes)


def splat(b: Any, value: Any) -> Any:
    """A number in all lanes."""
    undefined = ir.Constant(vector(value.type), ir.Undefined)
    one = b.insert_element(undefined, value, ir.Constant(I32, 0))
    return b.shuffle_vector(one, undefined, ir.Constant(vector(I32), [0] * level().lanes))


def shuffled(b: Any, left: Any, right: Any, *lanes: int) -> Any:
    """Some lanes of two vectors, those of the second counted on."""
    return b.shuffle_vector(left, right, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def multiply_add(b: Any, left: Any, right: Any, added: Any) -> Any:
    """left · right + added, perhaps by one instruction."""
    return b.fadd(b.fmul(left, right, flags=CONTRACT), added, flags=CONTRACT)


def larger(b: Any, left: Any, right: Any) -> Any:
    """The larger numbers of two vectors, those of `right` where `left` is NaN."""
    return b.select(b.fcmp_ordered(">", left, right), left, right)


def reduced(b: Any, vectors: Sequence[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """One number of all lanes of 1, 2, 4 … vectors."""
    while len(vectors) > 1:
        vectors = [combine(*pair) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
    one, lanes = vectors[0], level().lanes
    while lanes > 1:
        lanes //= 2
        low = shuffled(b, one, one, *range(lanes))
        one = combine(low, shuffled(b, one, one, *range(lanes, 2 * lanes)))
    return b.extract_element(one, ir.Constant(I32, 0))


class Loop:
    """A loop over the numbers 0, step, 2 · step … below `end`, at least 0, that carries values.

    What is emitted between its creation and `finish` is its body.

    Attributes:
        index: The number of this round, int64.
        values: The carried values at its beginning.
    """

    def __init__(self, b: Any, end: Any, start: Sequence[Any] = (), step: int = 1) -> None:
        self._b, self._end, self._step = b, end, step
        before, self._body = b.block, b.append_basic_block("loop")
        self._done = b.append_basic_block("done")
        b.branch(self._body)
        b.position_at_end(self._body)
        self.index = b.phi(I64)
        self.index.add_incoming(number(0), before)
        self.values = [b.phi(value.type) for value in start]
        for phi, value in zip(self.values, start, strict=True):
            phi.add_incoming(value, before)

    def finish(self, values: Sequence[Any] = ()) -> None:
        """End the body with the values of the next round; go on behind the loop."""
        b = self._b
        after = b.add(self.index, number(self._step))
        self.index.add_incoming(after, b.block)
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed("<", after, self._end), self._body, self._done)
        b.position_at_end(self._done)
