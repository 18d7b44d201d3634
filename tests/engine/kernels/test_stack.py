"""What the kernels do not know is not compiled. For layers see test_blocks.py of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from pipelines.engine.kernels.host import stack as host
from pipelines.engine.kernels.host.linear import CompiledLinear
from pipelines.engine.kernels.host.stack import AffineNorm, CompiledBlock, CompiledDecoder
from pipelines.engine.kernels.loader import load_kernels
from pipelines.families.architecture import (
    BlockSpec,
    CrossAttentionSpec,
    FeedForwardSpec,
    Norm,
    RelativePositions,
    RotaryPositions,
    SelfAttentionSpec,
    Stack,
)

_WIDTH = 32
_FEED_FORWARD = FeedForwardSpec(_WIDTH, "gelu")
_UNKNOWN: Any = "tanh"  # an activation that the kernels do not have
_STACK = Stack(
    layers=1, heads=2, head_dim=16, d_model=_WIDTH, max_positions=8,
    blocks=(SelfAttentionSpec(), CrossAttentionSpec(), _FEED_FORWARD), norm=Norm(first=True),
    positions="none", final_norm=True,
)  # fmt: skip


@dataclass(frozen=True)
class _Recurrent(BlockSpec):
    """A kind of block that does not exist."""


@dataclass(frozen=True)
class _HalfStep(FeedForwardSpec):
    """A known kind with one more field."""

    factor: float = 0.5


@dataclass(frozen=True)
class _LargerStack(Stack):
    """A stack with one more field."""

    window: int | None = None


def _compiled(stack: Stack) -> CompiledDecoder | None:
    library = load_kernels()
    if library is None:
        pytest.skip("no kernels are compiled on machines like this one")
    norm = AffineNorm(torch.ones(_WIDTH), torch.zeros(_WIDTH))

    def linear(outputs: int = _WIDTH) -> CompiledLinear:
        return CompiledLinear(torch.ones(outputs, _WIDTH), None, library)

    blocks = [CompiledBlock(data, (linear(3 * _WIDTH), linear()), norm) for data in stack.blocks]
    return CompiledDecoder.of(stack, blocks, norm)


def test_known_blocks_are_compiled_in_any_order() -> None:
    assert _compiled(_STACK) is not None
    blocks = (_FEED_FORWARD, CrossAttentionSpec(), SelfAttentionSpec())
    assert _compiled(replace(_STACK, blocks=blocks)) is not None
    unscaled = (SelfAttentionSpec(scaled=False), CrossAttentionSpec(scaled=False), _FEED_FORWARD)
    assert _compiled(replace(_STACK, blocks=unscaled)) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda s: replace(s, blocks=(*s.blocks, _Recurrent())),
        lambda s: replace(s, blocks=(*s.blocks, _HalfStep(_WIDTH, "gelu"))),
        lambda s: replace(s, blocks=(SelfAttentionSpec(), replace(_FEED_FORWARD, gated=True))),
        lambda s: replace(s, blocks=(SelfAttentionSpec(), replace(_FEED_FORWARD, gate_last=True))),
        lambda s: replace(s, blocks=(SelfAttentionSpec(), FeedForwardSpec(_WIDTH, _UNKNOWN))),
        lambda s: replace(s, blocks=(SelfAttentionSpec(RelativePositions(8, 20, False)),)),
        lambda s: replace(s, blocks=(SelfAttentionSpec(RotaryPositions(8, 1e4)),)),
        lambda s: replace(s, blocks=(SelfAttentionSpec(scaled=False), CrossAttentionSpec())),
        lambda s: replace(s, norm=Norm(first=True, rms=True)),
        lambda s: replace(s, norm=Norm(first=False)),  # with a norm after the last block
        lambda s: _LargerStack(**vars(s), window=4),
    ],
)
def test_what_the_kernels_do_not_know_is_not_compiled(change: Callable[[Stack], Stack]) -> None:
    assert _compiled(change(_STACK)) is None


def test_a_field_that_is_not_named_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is added to a known kind."""
    monkeypatch.setitem(host._KNOWN, FeedForwardSpec, ("width",))  # type: ignore[arg-type]
    assert _compiled(_STACK) is None
