"""A second device with memory of its own, on any machine: what stands in for a GPU.

Its tensors are computed by the CPU, but whoever mixes them with the CPU's own, or reads them
without copying them back, fails as on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.engine.recorder import EachOperation

__all__ = ["OTHER", "other_device"]

_NAME = "other"

# What may have arguments on two devices.
_COPIES = ("copy_", "_to_copy", "to", "_copy_from")


class _OtherTensor(Tensor):
    """The shell of a tensor on the CPU."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> _OtherTensor:
        # A view must be of the kind of what it shows: none is made for inference only.
        with torch.inference_mode(False):
            shell: _OtherTensor = torch.Tensor._make_wrapper_subclass(
                cls,
                inside.shape,
                strides=inside.stride(),
                storage_offset=inside.storage_offset(),
                dtype=inside.dtype,
                device=OTHER,
            )
        shell.inside = inside
        return shell

    def __repr__(self, **_: Any) -> str:
        return f"other({self.inside!r})"

    def tolist(self) -> Any:
        return self.inside.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class _Generator(torch.Generator):
    """The CPU's: the other device has none of its own."""

    def __new__(cls, device: Any = None) -> _Generator:
        return super().__new__(cls)


def _compute(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    given = list(tree_iter((args, kwargs)))
    tensors = [value for value in given if isinstance(value, Tensor)]
    others = [value for value in tensors if isinstance(value, _OtherTensor)]
    name = func.overloadpacket.__name__
    if others and name not in _COPIES:
        strays = [each for each in tensors if not isinstance(each, _OtherTensor) and each.dim()]
        assert not strays, f"{name} of tensors on two devices"
    wanted = [value for value in given if isinstance(value, torch.device)]
    there = wanted[0].type == _NAME if wanted else bool(others)
    if name == "copy_":
        there = isinstance(args[0], _OtherTensor)
    shells = {id(shell.inside): shell for shell in others}

    def inner(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value.inside if isinstance(value, _OtherTensor) else value

    result = func(*tree_map(inner, args), **tree_map(inner, kwargs))

    def outer(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if there:
            if id(value) in shells:
                return shells[id(value)]
            # The other memory is another one, even where nothing had to be computed.
            moved = any(value is each for each in tensors)
            return _OtherTensor(value.clone() if moved else value)
        return value.clone() if id(value) in shells else value

    return tree_map(outer, result)


_setup_privateuseone_for_python_backend(_NAME)
OTHER = torch.device(_NAME, 0)


@contextmanager
def other_device() -> Iterator[torch.device]:
    """The device, which is there only within; for one thread."""
    before = torch._C._only_lift_cpu_tensors()
    # torch.tensor would make it there before the mode hears of it.
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with patch.object(torch, "Generator", _Generator), EachOperation(_compute):
            yield OTHER
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
