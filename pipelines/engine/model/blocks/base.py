"""A block of a layer: an operation with a residual connection and a norm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from torch import Tensor

from pipelines.engine.kernels.host.stack import CompiledBlock
from pipelines.engine.model.layers import LayerBuilder
from pipelines.engine.state.forward_batch import AttentionMetadata, ForwardBatch
from pipelines.engine.state.kv_cache import CrossCache, KVCache, StateSpec

Pass = TypeVar("Pass", contravariant=True)
TileStep = Callable[[slice], None]


@dataclass(frozen=True, eq=False)
class EncoderPass:
    """What the blocks of an encoder read besides the states, the same for all layers.

    Attributes:
        mask: [batch, 1, 1, length] or [batch, heads, length, length], added to attention scores,
            or None.
        rotation: Cosines and sines of the angles of all positions, for rotary positions, or None.
    """

    mask: Tensor | None
    rotation: tuple[Tensor, Tensor] | None
    _buffers: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    def buffer(self, name: str, x: Tensor, columns: int) -> Tensor:
        """Return a temporary [len(x), columns] that a kind of block uses in all layers."""
        key = name, columns
        if key not in self._buffers:
            self._buffers[key] = x.new_empty(len(x), columns)
        return self._buffers[key]


@dataclass(frozen=True, eq=False)
class DecoderPass:
    """What the blocks of a decoder read and write besides the states. Without a `cross` cache
    sources are read in place."""

    batch: ForwardBatch
    metadata: AttentionMetadata
    cache: KVCache
    cross: CrossCache | None


@dataclass(frozen=True, eq=False)
class TileSteps:
    """How a block computes a source tile by tile. A tile is a part of its positions, computed by
    one thread; `before` and `after` read and write their own tile only.

    Attributes:
        before: Runs for every tile before `jobs`.
        jobs: Read the results of all tiles. They run side by side.
        after: Runs for every tile, after all `jobs`.
    """

    before: TileStep | None = None
    jobs: Sequence[Callable[[], None]] = ()
    after: TileStep | None = None


class SourceProjection(Protocol):
    """What projects encoded sources to the keys and values that a block attends to."""

    def project_kv(self, hidden: Tensor) -> Tensor:
        """Return the keys and values of encoder states [batch, length, d_model]: [2 (keys, values),
        batch, heads, length, head_dim]."""
        ...

    @property
    def compiled_kv(self) -> CompiledBlock | None:
        """The weights of `project_kv` for the compiled kernels; None if unsupported."""
        ...


class Block(ABC, Generic[Pass]):
    """A block: what it computes is added to the states, with a norm before it, or after the sum.

    Args:
        build: Builds its parts.
        norm: The name of its norm in the checkpoint.

    Attributes:
        reads: The fields of its data that it computes with. Another one that has not its default
            is an error when a model is loaded.
        by_position: Each position is computed from itself alone, so that tiles of a source are,
            too.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    by_position: ClassVar[bool] = False

    def __init__(self, build: LayerBuilder, norm: str) -> None:
        self.norm, self._norm_first = build.norm(norm), build.stack.norm.first

    @abstractmethod
    def apply(self, x: Tensor, context: Pass) -> Tensor:
        """Compute what is added to the states.

        Args:
            x: The states, normalized if the norm comes first: [..., d_model] in an encoder,
                [sequences × tokens, d_model] in a decoder.
            context: What all blocks of the pass share.
        """

    @property
    def state(self) -> StateSpec | None:
        """What a decoder's block keeps of each token, in the tensor of its layer; None: nothing."""
        return None

    @property
    def source_projection(self) -> SourceProjection | None:
        """What projects encoded sources for a decoder's block; None if it reads none."""
        return None

    @property
    def compiled(self) -> CompiledBlock | None:
        """The weights for the compiled kernels; None if torch's operations compute the block."""
        return None

    def __call__(self, x: Tensor, context: Pass) -> Tensor:
        """States → states of the same shape."""
        return self.add(x, self.apply(self.norm(x) if self._norm_first else x, context))

    def add(self, x: Tensor, change: Tensor) -> Tensor:
        """Add to the states what `apply` has computed."""
        return x + change if self._norm_first else self.norm(x + change)

    def tile_steps(self, hidden: Tensor, context: Pass) -> TileSteps:
        """Return how an encoder's block computes a source tile by tile.

        Here one thread computes the whole source, unless the block is `by_position`.

        Args:
            hidden: The states [length, d_model], which the steps overwrite.
            context: What all blocks of the pass share.
        """

        def of_tile(tile: slice) -> None:
            hidden[tile] = self(hidden[tile], context)

        def of_source() -> None:
            hidden.copy_(self(hidden[None], context)[0])

        return TileSteps(after=of_tile) if self.by_position else TileSteps(jobs=[of_source])
