"""Words of 32 bits that several threads read and write, and sleeping until one changes.

All operations are sequentially consistent. The functions that sleep are the operating system's
(see system_calls.py): futex on Linux, ulock on macOS, WaitOnAddress on Windows.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pipelines.engine.kernels.device.vectors import I32, I64, call_intrinsic

_ORDER = "seq_cst"
_POINTER = ir.IntType(8).as_pointer()

# Linux: the number of the system call, by the first part of the target's triple.
_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT_PRIVATE, _FUTEX_WAKE_PRIVATE = 128, 129
# macOS: compare 32 bits and wait; wake all.
_UL_COMPARE_AND_WAIT, _ULF_WAKE_ALL = 1, 0x100
_ALL = 0x7FFFFFFF
_FOREVER = 0xFFFFFFFF  # of Windows


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, I32.as_pointer())


@intrinsic
def load_word(typing: Any, address: Any) -> Any:
    """The word at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_word(builder, args[0]), _ORDER, 4)

    return types.int32(types.int64), generate


@intrinsic
def store_word(typing: Any, address: Any, value: Any) -> Any:
    """Replace the word at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _word(builder, args[0]), _ORDER, 4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), generate


@intrinsic
def add_to_word(typing: Any, address: Any, value: Any) -> Any:
    """Add to the word at an address; returns what it was before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _word(builder, args[0]), args[1], _ORDER)

    return types.int32(types.int64, types.int32), generate


@intrinsic
def pause(typing: Any) -> Any:
    """Tell the CPU that this thread waits in a loop."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name, operands = "llvm.x86.sse2.pause", []
        if not llvm.get_process_triple().startswith("x86_64"):
            # An ARM CPU takes its `yield` for nothing; this one empties the pipeline.
            name, operands = "llvm.aarch64.isb", [ir.Constant(I32, 15)]
        call_intrinsic(builder, name, ir.VoidType(), *operands)
        return context.get_dummy_value()

    return types.void(), generate


def _call(builder: Any, symbol: str, *args: Any, result: Any = I32, variadic: bool = False) -> None:
    """Call a function of the system."""
    kinds = [] if variadic else [arg.type for arg in args]
    kind = ir.FunctionType(result, kinds or [args[0].type], var_arg=variadic)
    functions = builder.module.globals
    function = functions.get(symbol) or ir.Function(builder.module, kind, symbol)
    builder.call(function, args)


def _emit_sleep(b: Any, address: Any, value: Any) -> None:
    machine, _, system = llvm.get_process_triple().partition("-")
    if "linux" in system:
        operation = ir.Constant(I64, _FUTEX_WAIT_PRIVATE)
        number, none = ir.Constant(I64, _FUTEX[machine]), ir.Constant(I64, 0)
        futex = (number, address, operation, b.sext(value, I64), none)
        _call(b, "edgeapp_syscall", *futex, result=I64, variadic=True)
    elif "apple" in system:
        operation, no_limit = ir.Constant(I32, _UL_COMPARE_AND_WAIT), ir.Constant(I32, 0)
        pointer = b.inttoptr(address, _POINTER)
        _call(b, "edgeapp_wait", operation, pointer, b.zext(value, I64), no_limit)
    else:
        compared = cgutils.alloca_once(b, I32)  # not again in each round of a loop
        b.store(value, compared)
        pointers = b.inttoptr(address, _POINTER), b.bitcast(compared, _POINTER)
        _call(b, "edgeapp_wait", *pointers, ir.Constant(I64, 4), ir.Constant(I32, _FOREVER))


def _emit_wake(b: Any, address: Any) -> None:
    machine, _, system = llvm.get_process_triple().partition("-")
    pointer = b.inttoptr(address, _POINTER)
    if "linux" in system:
        operation, number = ir.Constant(I64, _FUTEX_WAKE_PRIVATE), ir.Constant(I64, _FUTEX[machine])
        futex = (number, address, operation, ir.Constant(I64, _ALL))
        _call(b, "edgeapp_syscall", *futex, result=I64, variadic=True)
    elif "apple" in system:
        operation = ir.Constant(I32, _UL_COMPARE_AND_WAIT | _ULF_WAKE_ALL)
        _call(b, "edgeapp_wake", operation, pointer, ir.Constant(I64, 0))
    else:
        _call(b, "edgeapp_wake", pointer, result=ir.VoidType())


@intrinsic
def sleep_while(typing: Any, address: Any, value: Any) -> Any:
    """Sleep while the word at an address has this value, until `wake`, or shorter."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit_sleep(builder, *args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), generate


@intrinsic
def wake(typing: Any, address: Any) -> Any:
    """Wake all threads that sleep at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit_wake(builder, *args)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def call_kernel(typing: Any, kernel: Any, args: Any) -> Any:
    """Call the function at an address with one argument, an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_POINTER])
        function = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(function, [builder.inttoptr(args[1], _POINTER)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate
