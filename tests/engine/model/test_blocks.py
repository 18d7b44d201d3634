"""The blocks of layers: what is not known is not loaded, and tiles equal the whole source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipelines.engine.model import blocks
from pipelines.engine.model.blocks.base import Block, EncoderPass, TileSteps
from pipelines.engine.model.blocks.feed_forward import FeedForward
from pipelines.engine.model.decoder import Decoder
from pipelines.engine.model.encoder import Encoder
from pipelines.engine.model.layers import LayerBuilder
from pipelines.engine.model.precision import ComputePlan, StackPrecision
from pipelines.engine.model.sources import source_of
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.weights.checkpoint import Weights
from pipelines.errors import CheckpointError
from pipelines.families import architecture
from pipelines.families.architecture import (
    Architecture,
    CrossAttentionSpec,
    FeedForwardSpec,
    Norm,
    RelativePositions,
    RotaryPositions,
    SelfAttentionSpec,
    Stack,
)

_FEED_FORWARD = FeedForwardSpec(64, "relu")
_STACK = Stack(
    layers=2, heads=2, head_dim=16, d_model=32, max_positions=400,
    blocks=(SelfAttentionSpec(), CrossAttentionSpec(), _FEED_FORWARD), norm=Norm(first=True),
    positions="none",
)  # fmt: skip
_SIDE = StackPrecision("dense", torch.float32, torch.float32)
_PLAN = ComputePlan("float32", torch.device("cpu"), _SIDE, _SIDE, "")


@dataclass(frozen=True)
class _Convolution(architecture.BlockSpec):
    """A kind of block that reads its neighbors."""


@dataclass(frozen=True)
class _Windowed(FeedForwardSpec):
    """A known kind with one more field."""

    window: int = 0


@dataclass(frozen=True)
class _OtherAttention(SelfAttentionSpec):
    """A kind of self-attention with tensors of its own."""


@dataclass(frozen=True)
class _Slope:
    """Attention positions that no layer computes."""


class _Shift(Block[EncoderPass]):
    """The computation of _Convolution: every position gets the one before it."""

    def __init__(self, build: LayerBuilder, data: _Convolution, name: str, layer: int) -> None:
        super().__init__(build, f"{name}.shift_norm")

    def apply(self, x: Tensor, context: EncoderPass) -> Tensor:
        return x.roll(1, -2)


class _ShiftByJobs(_Shift):
    """The same, by a job that needs nothing before it."""

    def tile_steps(self, hidden: Tensor, context: EncoderPass) -> TileSteps:
        change = torch.empty_like(hidden)

        def job() -> None:
            change.copy_(self.apply(self.norm(hidden), context))

        def after(tile: slice) -> None:
            hidden[tile] = self.add(hidden[tile], change[tile])

        return TileSteps(jobs=[job], after=after)


class _RandomWeights(Weights):
    """Random tensors of any name and shape."""

    def __init__(self) -> None:
        super().__init__(Path("some-folder"), {})
        self._generator = torch.Generator().manual_seed(0)

    def __contains__(self, name: str) -> bool:
        return True

    def take(self, name: str, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator) * 0.3


def _architecture(encoder: Stack = _STACK, decoder: Stack = _STACK) -> Architecture:
    return Architecture(
        family="x", source="audio", encoder=encoder, decoder=decoder, vocab_size=10,
        source_vocab_size=0, num_mel_bins=8, start_id=0, eos_ids=(1,), pad_id=0,
        separate_embeddings=False, tied_head=None,
    )  # fmt: skip


def _encoder_of(stack: Stack) -> Encoder:
    model = _architecture(encoder=stack)
    return Encoder(_RandomWeights(), model, source_of(model), _PLAN)


def _encoder(*data: architecture.BlockSpec) -> Encoder:
    return _encoder_of(replace(_STACK, blocks=data))


@pytest.fixture(params=[_Shift, _ShiftByJobs])
def shift(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(blocks.ENCODER_BLOCKS, _Convolution, request.param)  # type: ignore[arg-type]


def _assert_tiles_equal_the_whole(encoder: Encoder) -> None:
    source = torch.randn(100, 32, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        whole = encoder.run_padded(source[None].clone(), [100])
        for threads in (1, 2):
            tiles, _ = encoder.run_each([source.clone()], ComputeThreads(threads))
            torch.testing.assert_close(tiles, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("shift")
def test_a_block_that_reads_other_positions_gets_the_whole_source() -> None:
    _assert_tiles_equal_the_whole(_encoder(_Convolution(), SelfAttentionSpec(), _FEED_FORWARD))


@pytest.mark.parametrize(
    "positions", [None, RelativePositions(8, 20, True), RotaryPositions(8, 1e4)]
)
def test_tiles_know_the_positions(positions: Any) -> None:
    _assert_tiles_equal_the_whole(_encoder(SelfAttentionSpec(positions), _FEED_FORWARD))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((_Convolution(),), "kind _Convolution"),
        ((CrossAttentionSpec(),), "kind CrossAttentionSpec"),
        ((_Windowed(64, "relu", window=3),), "'window' of _Windowed"),
        ((FeedForwardSpec(64, "tanh"),), "activation 'tanh'"),  # type: ignore[arg-type]
        ((SelfAttentionSpec(_Slope()),), "kind _Slope"),  # type: ignore[arg-type]
        (
            (_FEED_FORWARD, SelfAttentionSpec(), _FEED_FORWARD),
            "two blocks .* one block of each kind",
        ),
    ],
)
def test_what_an_encoder_does_not_compute_is_refused_at_loading(
    data: tuple[architecture.BlockSpec, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(blocks.ENCODER_BLOCKS, _Windowed, FeedForward)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=f"^some-folder: .*{reason}"):
        _encoder(*data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ((_Convolution(),), "kind _Convolution"),
        ((CrossAttentionSpec(), _FEED_FORWARD), "0 blocks .* keeps a state"),
        ((SelfAttentionSpec(), _FEED_FORWARD), "0 blocks .* attends to the source"),
        (
            (SelfAttentionSpec(), CrossAttentionSpec(), CrossAttentionSpec()),
            "two blocks of a layer",
        ),
        ((SelfAttentionSpec(), SelfAttentionSpec(), CrossAttentionSpec()), "two blocks of a layer"),
        ((SelfAttentionSpec(), _OtherAttention(RotaryPositions(8, 1e4))), "different positions"),
    ],
)
def test_what_a_decoder_does_not_compute_is_refused_at_loading(
    data: tuple[architecture.BlockSpec, ...], reason: str
) -> None:
    model = _architecture(decoder=replace(_STACK, blocks=data))
    with pytest.raises(CheckpointError, match=reason):
        Decoder(_RandomWeights(), model, source_of(model), _PLAN)


@pytest.mark.parametrize("positions", ["alibi", ""])
def test_unknown_positions_are_refused_at_loading(positions: Any) -> None:
    stack = replace(_STACK, blocks=(SelfAttentionSpec(), _FEED_FORWARD), positions=positions)
    with pytest.raises(CheckpointError, match="^some-folder: positions of the kind"):
        _encoder_of(stack)
