"""What wrapped modules of transformers read besides token ids: tensors, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.engine.model.sources.base import Source
from pipelines.errors import RequestError


class TensorSource(Source):
    """What a module's encoder takes, one tensor a source: pixels, features, samples."""

    def check(self, sources: Sequence[Any], any_shapes: bool) -> list[Any]:
        return [*sources]


class NoSource(Source):
    """Decoder-only models."""

    def check(self, sources: Sequence[Any], any_shapes: bool) -> list[Any]:
        raise RequestError("this model is decoder-only: it has nothing to encode")
