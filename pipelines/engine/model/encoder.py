"""The native encoder: one for every family, whose differences are data (`Architecture`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pipelines.engine.kernels.host.stack import CompiledEncoder
from pipelines.engine.model.blocks import encoder_blocks
from pipelines.engine.model.blocks.base import EncoderPass, TileStep
from pipelines.engine.model.layers import LayerBuilder, Norm, StackInput, affine_of
from pipelines.engine.model.precision import ComputePlan
from pipelines.engine.model.sources import Source, SourceSpan
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.state.forward_batch import padding_mask
from pipelines.engine.weights.checkpoint import Weights
from pipelines.families.architecture import Architecture

# Positions of a source that one job computes: a quarter of the source, within these limits. They
# are enough to read the weights for, and few enough that a thread which other programs hold up
# leaves the rest of the work to the others. The number of threads must not matter.
_MIN_TILE, _MAX_TILE = 64, 256


class Encoder:
    """Sources → hidden states. Its stem embeds the sources of the model's kind."""

    def __init__(
        self, weights: Weights, architecture: Architecture, source: Source, plan: ComputePlan
    ) -> None:
        stack = architecture.encoder
        build = LayerBuilder(weights, stack, plan.encoder, plan.device)
        self.dtype, self.device = plan.encoder.activation_dtype, plan.device
        self._stem = source.stem(build)
        self._input = StackInput(build, "encoder")
        self._blocks = encoder_blocks(build)
        self._final_norm = build.norm("model.encoder.layer_norm") if stack.final_norm else None
        self._compiled = CompiledEncoder.of(
            stack, [block.compiled for block in self._blocks], affine_of(self._final_norm)
        )

    def encode(
        self, sources: Sequence[Any], threads: ComputeThreads
    ) -> tuple[Tensor, list[SourceSpan]]:
        """Encode checked sources in one pass.

        On a CPU the result does not depend on the number of threads, to the last bit: each part of
        the work is computed by one of them. torch's own operations divide a product of matrices by
        the number of threads, and with it the order of its sums.

        Args:
            sources: As the model's kind of source takes them.
            threads: Compute what is independent side by side.

        Returns:
            Hidden states [batch, longest, d_model], and where each source is in them.
        """
        return self._stem.encode(self, sources, threads)

    @property
    def can_run_flat(self) -> bool:
        """As EncoderLayers.can_run_flat."""
        return self._compiled is not None

    def run_flat(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """As EncoderLayers.run_flat."""
        assert self._compiled is not None, "the caller checks can_run_flat"
        index = [*chain.from_iterable(map(range, lengths))]
        return self._compiled(self._input(x, index), lengths)

    def run_each(
        self, states: Sequence[Tensor], threads: ComputeThreads
    ) -> tuple[Tensor, list[SourceSpan]]:
        """As EncoderLayers.run_each."""
        lengths = [len(state) for state in states]
        if self.device.type == "cpu":
            states = [self._run_tiles(state, threads) for state in states]
        x = pad_sequence([*states], batch_first=True)
        if self.device.type != "cpu":
            x = self.run_padded(x, lengths)
        return x, [(index, 0, length) for index, length in enumerate(lengths)]

    def run_padded(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """As EncoderLayers.run_padded."""
        index = slice(x.shape[1])
        mask = padding_mask(lengths, x.shape[1], self.device, self.dtype)
        mask = self._input.mask(index, x.shape[1], mask)
        context = EncoderPass(mask, self._input.rotation(index))
        x = self._input(x, index)
        for block in self._blocks:
            x = block(x, context)
        return x if self._final_norm is None else self._final_norm(x)

    def _run_tiles(self, x: Tensor, threads: ComputeThreads) -> Tensor:
        """A source [length, d_model] → hidden states of the same shape, tile by tile."""
        length = len(x)
        size = min(max(_MIN_TILE, -(-length // 4)), _MAX_TILE)
        tiles = [slice(at, min(at + size, length)) for at in range(0, length, size)]
        index = slice(length)
        hidden = self._input(x, index).contiguous()
        mask = self._input.mask(index, length, None)
        context = EncoderPass(mask, self._input.rotation(index))
        pending: list[TileStep] = []  # of each tile, one after the other while it is in the caches

        def run_pending() -> None:
            steps = pending.copy()
            threads.run([partial(_run_steps, steps, tile) for tile in tiles])
            pending.clear()

        for block in self._blocks:
            steps = block.tile_steps(hidden, context)
            if steps.before is not None:
                pending.append(steps.before)
            if steps.jobs:
                run_pending()
                threads.run(steps.jobs)
            if steps.after is not None:
                pending.append(steps.after)
        if self._final_norm is not None:
            pending.append(partial(_normalize, self._final_norm, hidden))
        run_pending()
        return hidden


def _run_steps(steps: Sequence[TileStep], tile: slice) -> None:
    for step in steps:
        step(tile)


def _normalize(norm: Norm, hidden: Tensor, tile: slice) -> None:
    hidden[tile] = norm(hidden[tile])
