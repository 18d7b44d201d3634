"""The structs that the kernels read: one layout for Python and compiled code."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from pipelines.engine.kernels import abi

STRUCTS = [
    value
    for value in vars(abi).values()
    if isinstance(value, type) and issubclass(value, ctypes.Structure)
]


@pytest.mark.parametrize("struct", STRUCTS)
def test_both_sides_have_the_same_layout(struct: type[ctypes.Structure]) -> None:
    dtype = abi.dtype_of(struct)
    assert dtype.itemsize == ctypes.sizeof(struct)
    assert dtype.fields is not None
    for name, _, *_ in struct._fields_:
        assert dtype.fields[name][1] == getattr(struct, name).offset, name
        assert dtype.fields[name][0].itemsize == getattr(struct, name).size, name


def test_fields_written_by_ctypes_are_read_by_name() -> None:
    args = abi.LinearArgs(rows=3, layer=abi.LinearLayer(outputs=7), exp_sums=True)
    args.workspace.scratch_bytes = 64
    read = np.frombuffer(args, dtype=abi.dtype_of(abi.LinearArgs))[0]
    assert (read["rows"], read["layer"]["outputs"], read["exp_sums"]) == (3, 7, 1)
    assert read["workspace"]["scratch_bytes"] == 64


@pytest.mark.parametrize("struct", STRUCTS)
def test_an_unknown_field_cannot_be_written(struct: type[ctypes.Structure]) -> None:
    with pytest.raises(AttributeError):
        struct().no_such_field = 1
