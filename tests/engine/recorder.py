"""A recorder for CPUs: torch's operations, noted once and done again on the same memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_iter, tree_map

from pipelines.engine.model.cuda_graphs import StaticPass

# What a CUDA graph cannot hold, for it waits for the GPU.
_FORBIDDEN = ("_local_scalar_dense", "item", "is_nonzero", "nonzero")


class EachOperation(TorchDispatchMode):
    """Every operation below autograd, as CUDA sees them, goes through `compute`."""

    def __init__(self, compute: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self._compute = compute

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._compute(func, args, kwargs or {})


class OperationRecorder:
    """Like a CUDA graph, what it plays knows nothing of Python: neither the numbers nor the
    branches of another pass than the one that was recorded."""

    def __call__(self, work: StaticPass) -> StaticPass:
        work()
        done: list[tuple[Any, Any, Any, Any]] = []

        def note(func: Any, args: Any, kwargs: Any) -> Any:
            name = func.overloadpacket.__name__
            assert name not in _FORBIDDEN, f"{name} cannot be recorded"
            result = func(*args, **kwargs)
            found = tree_iter((args, kwargs, result))
            places = {value.device for value in found if isinstance(value, Tensor)}
            assert len(places) == 1, f"{name} copies from one device to another"
            done.append((func, args, kwargs, result))
            return result

        with EachOperation(note):
            result = work()
        return _player(done, result)


def _player(done: Sequence[tuple[Any, Any, Any, Any]], result: Tensor) -> StaticPass:
    def play() -> Tensor:
        now: dict[int, Tensor] = {}

        def current(value: Any) -> Any:
            return now.get(id(value), value) if isinstance(value, Tensor) else value

        for func, args, kwargs, was in done:
            found = func(*tree_map(current, args), **tree_map(current, kwargs))
            pairs = zip(tree_flatten(was)[0], tree_flatten(found)[0], strict=True)
            now |= {id(old): new for old, new in pairs if isinstance(old, Tensor)}
        # A graph's result lies where it always lies.
        with torch.inference_mode():
            result.copy_(now[id(result)])
        return result

    return play
