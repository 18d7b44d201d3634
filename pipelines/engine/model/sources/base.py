"""What every kind of source does, what an encoder offers it, and the kinds of wrapped modules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from pipelines.engine.model.layers import LayerBuilder
from pipelines.engine.model.threads import ComputeThreads
from pipelines.errors import RequestError
from pipelines.families.architecture import Architecture

# Where the states of a source are: index in the batch, first position, last position + 1.
SourceSpan = tuple[int, int, int]


class EncoderLayers(Protocol):
    """The layers of an encoder, as a stem calls them: with embedded sources, without positions.
    The results have the shape of `x`."""

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def can_run_flat(self) -> bool:
        """Whether `run_flat` is available: a compiled kernel runs all layers."""
        ...

    def run_padded(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Run sources padded to one length, [batch, longest, d_model]."""
        ...

    def run_flat(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Run sources that follow each other without padding, [sum of lengths, d_model]."""
        ...

    def run_each(
        self, states: Sequence[Tensor], threads: ComputeThreads
    ) -> tuple[Tensor, list[SourceSpan]]:
        """Run long sources [length, d_model]: on a CPU one by one, each by all threads, on a GPU in
        one pass. The result is as that of `Stem.encode`."""
        ...


class Stem(Protocol):
    """What sources enter an encoder through, with its weights: convolutions, an embedding."""

    def encode(
        self, layers: EncoderLayers, sources: Sequence[Any], threads: ComputeThreads
    ) -> tuple[Tensor, list[SourceSpan]]:
        """Encode checked sources in one pass.

        Returns:
            Hidden states [batch, longest, d_model], and where each source is in them.
        """
        ...


class Source(ABC):
    """A kind of source.

    Args:
        architecture: The model's, which has the limits of its sources.

    Attributes:
        is_sound: Sound, which is encoded in the precision of audio encoders, on a CPU one by one.
        is_long: So long that the decoder reads keys and values in place where it can.
        is_text: Token ids. A wrapped module gets sources of different lengths in one pass, padded
            and with a mask.
    """

    is_sound: ClassVar[bool] = False
    is_long: ClassVar[bool] = False
    is_text: ClassVar[bool] = False

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture

    @abstractmethod
    def check(self, sources: Sequence[Any], any_shapes: bool) -> list[Any]:
        """Return the sources as `Stem.encode` takes them.

        Args:
            sources: As LoadedModel.encode takes them.
            any_shapes: Whether sources of different shapes can be encoded together.

        Raises:
            RequestError: The model cannot encode such a source.
        """

    def batches(self, sources: Sequence[Any]) -> list[list[int]]:
        """Return the indices of the sources of each pass on a CPU; here one by one."""
        # On a CPU one window fills the caches: eight in one batch took longer than one by one,
        # and four at a time on a thread each an eighth less than one by one.
        return [[index] for index in range(len(sources))]

    def example(self, *, short: bool = False) -> Any:
        """Return a source of fixed noise, for comparing models.

        Args:
            short: As short as is enough to tell two encoders apart.
        """
        raise NotImplementedError(f"{self._architecture.family} models have no example")

    def stem(self, build: LayerBuilder) -> Stem:
        """Build what the sources enter the native encoder through.

        Args:
            build: Builds layers of the encoder.
        """
        raise NotImplementedError(f"{self._architecture.source} sources have no native encoder")


def check_finite(values: Tensor, what: str) -> None:
    """Raise RequestError if a source holds NaN or infinity."""
    if not torch.isfinite(values).all():
        raise RequestError(f"{what} NaN or infinity")


def check_vocabulary(ids: Sequence[int], vocab_size: int, what: str) -> None:
    """Raise RequestError if `what` holds an id outside the vocabulary."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise RequestError(
                f"{what} holds the id {token}, outside the vocabulary of {vocab_size}"
            )


class TensorSource(Source):
    """What a module's encoder takes, one tensor a source: pixels, features, samples."""

    def check(self, sources: Sequence[Any], any_shapes: bool) -> list[Any]:
        return [*sources]


class NoSource(Source):
    """Decoder-only models."""

    def check(self, sources: Sequence[Any], any_shapes: bool) -> list[Any]:
        raise RequestError("this model is decoder-only: it has nothing to encode")
