"""The feed-forward block, of encoders and decoders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from pipelines.engine.kernels.host.stack import CompiledBlock
from pipelines.engine.model.blocks.base import Block
from pipelines.engine.model.layers import LayerBuilder
from pipelines.families import architecture
from pipelines.families.architecture import Activation

# Up to so many numbers GELU beside int8 weights is approximated.
_APPROXIMATE_GELU_NUMEL = 8_192

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


def _gelu_beside_int8(x: Tensor) -> Tensor:
    """GELU beside int8 weights: for a few rows its tanh form, which differs by at most 5e-4.

    The exact form goes through oneDNN, which takes 10 to 40 µs to call, a tenth of a small model's
    step.
    """
    few = x.is_cpu and x.numel() <= _APPROXIMATE_GELU_NUMEL
    return F.gelu(x, approximate="tanh" if few else "none")


class FeedForward(Block[object]):
    """Two linear layers with an activation, or a gated one, between them."""

    reads = ("width", "activation", "gated", "gate_last")
    by_position = True

    def __init__(
        self, build: LayerBuilder, data: architecture.FeedForwardSpec, name: str, layer: int
    ) -> None:
        if data.activation not in _ACTIVATIONS:
            raise build.error(
                f"the activation {data.activation!r} is not one of {sorted(_ACTIVATIONS)}"
            )
        d_model, width = build.stack.d_model, data.width
        self._data = data
        if data.gate_last:
            self._up = build.linear([f"{name}.fc1"], 2 * width, d_model)
        else:
            # Gated: the activated half first.
            halves = [f"{name}.gate", f"{name}.value"] if data.gated else [f"{name}.fc1"]
            self._up = build.linear(halves, width, d_model)
        self._down = build.linear([f"{name}.fc2"], d_model, width)
        self._activation = _ACTIVATIONS[data.activation]
        if data.activation == "gelu" and build.side.kernel == "int8":
            self._activation = _gelu_beside_int8
        super().__init__(build, f"{name}.final_layer_norm")

    def apply(self, x: Tensor, context: object) -> Tensor:
        if self._data.gated:
            gate, value = self._up(x).chunk(2, dim=-1)
            if self._data.gate_last:
                gate, value = value, gate
            return self._down(self._activation(gate) * value)
        return self._down(self._activation(self._up(x)))

    @property
    def compiled(self) -> CompiledBlock | None:
        return CompiledBlock.of(self._data, (self._up, self._down), self.norm.affine)
