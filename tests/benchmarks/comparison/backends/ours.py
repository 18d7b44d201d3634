"""EdgeApp's own engine, as the pipelines use it."""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.engine import (
    EncodedSource,
    Engine,
    GenerationOptions,
    LoadedModel,
    ProcessPool,
    Request,
    Stream,
)
from tests.benchmarks.comparison.backends.base import Configuration, PeerBackend, Runner
from tests.benchmarks.comparison.shapes import Shape
from tests.benchmarks.comparison.work import Line, features, lines, sentence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Ours", "OursInEveryPrecision"]

_ENCODED_AT_ONCE = 32
_PART = 500  # lines of a part, where processes share them
_LATECOMERS_S = 1.0
_AHEAD = 192  # lines that are there to join the batch when others leave it


class Ours(PeerBackend):
    """As it is by default, and token for token what transformers gives."""

    def dtypes(self) -> Sequence[str]:
        return ["auto", "float32"]

    def cuts(self, best: Configuration, cores: int) -> Sequence[Configuration]:
        batches = [replace(best, batch=size) for size in (32, 128)]
        able = cores > 1 and self.device == "cpu"
        return [*batches, *[replace(best, threads=1, workers=cores)] * able]

    def load(self, configuration: Configuration) -> Runner:
        if configuration.workers > 1:
            return _Workers(self.shape, self.folder, configuration)
        return _open(self.shape, self.folder, self.device, configuration)


def _open(shape: Shape, folder: Path, device: str, configuration: Configuration) -> _Engine:
    engine = Engine(
        device=device,
        compute_type=configuration.dtype,
        threads=configuration.threads,
        **({"max_batch": configuration.batch} if configuration.batch else {}),
    )
    return _Engine(engine, engine.load(folder), shape)


class OursInEveryPrecision(Ours):
    """As above, and in those that only few ask for."""

    def dtypes(self) -> Sequence[str]:
        return ["auto", "float32", "bfloat16", "int8"]


class _Engine(Runner):
    def __init__(self, engine: Engine, model: LoadedModel, shape: Shape) -> None:
        self._engine, self._model, self._shape = engine, model, shape

    def encode(self, count: int) -> list[EncodedSource]:
        if self._shape.kind == "marian":
            return self._model.encode([sentence(self._shape)] * count)
        return self._model.encode(list(features(self._shape, count)))

    def widen(self, encoded: list[EncodedSource], batch: int) -> list[EncodedSource]:
        (encoding,) = encoded
        owner = {id(encoding.owner): encoding.owner}  # whom a copy must still belong to
        return [encoding, *(copy.deepcopy(encoding, dict(owner)) for _ in range(batch - 1))]

    def decode(
        self, encoded: list[EncodedSource], tokens: int, ticks: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        options = GenerationOptions(max_new_tokens=tokens)
        requests = [Request(encoding, self._shape.prompt, options) for encoding in encoded]
        if ticks is None:
            return [result.tokens for result in self._engine.generate(requests)]
        streams = [self._engine.stream(request) for request in requests]
        ticks.extend(time.perf_counter() for event in streams[-1] if event.tokens)
        return [stream.result().tokens for stream in streams]

    def transcribe(self, samples: NDArray[np.float32], tokens: int) -> Sequence[int]:
        from pipelines.asr.audio.features import FileFeatures

        mels = self._model.architecture.num_mel_bins
        heard, _ = FileFeatures(samples, mels, self._shape.frames).window(0)
        return self.decode(self._model.encode([heard]), tokens)[0]

    def step_bytes(self, encoded: list[EncodedSource]) -> tuple[float, float]:
        plan = self._model.backend.plan
        encoding = encoded[0]
        numbers = sum(each.numel() for each in (*encoding.keys, *encoding.values))
        return plan.decoder.weight_dtype.itemsize, encoding.bytes / numbers

    def explain(self) -> str:
        network = self._model.backend
        plan, kernels = network.plan, getattr(network, "kernels", "")
        sides = (
            f"{name} {side.kernel} {str(side.weight_dtype).removeprefix('torch.')}"
            for name, side in (("encoder", plan.encoder), ("decoder", plan.decoder))
        )
        return f"{plan.compute_type}: {', '.join(sides)} ({kernels}); {plan.reason}"

    def translate(self, lines: Sequence[Line]) -> int:
        # The longest first: those that end last are short then, and leave the batch soon.
        ordered = sorted(lines, key=lambda line: -len(line.ids))
        tokens, pending = 0, deque[Stream]()
        while ordered or pending:
            while ordered and len(pending) < _AHEAD:
                part, ordered = ordered[:_ENCODED_AT_ONCE], ordered[_ENCODED_AT_ONCE:]
                encodings = self._model.encode([line.ids for line in part])
                for line, encoding in zip(part, encodings, strict=True):
                    options = GenerationOptions(max_new_tokens=line.tokens)
                    request = Request(encoding, self._shape.prompt, options)
                    pending.append(self._engine.stream(request))
            tokens += len(pending.popleft().result().tokens)
        return tokens


class _Workers(_Engine):
    """Lines in parts by several processes, as `edgeapp translate --workers` has them translated."""

    def __init__(self, shape: Shape, folder: Path, configuration: Configuration) -> None:
        alone = replace(configuration, workers=1)
        one = _open(shape, folder, "cpu", alone)
        super().__init__(one._engine, one._model, shape)
        make = partial(_translating, shape, folder, alone)
        self._crew: ProcessPool[Sequence[Line], int] = ProcessPool(configuration.workers, make)
        # The processes start together, in some seconds that are no part of the work.
        self.translate(lines(shape, 8 * configuration.workers))
        time.sleep(_LATECOMERS_S)

    def translate(self, lines: Sequence[Line]) -> int:
        count = max(self._crew.size, -(-len(lines) // _PART))
        return sum(self._crew.map(lines[first::count] for first in range(count)))


def _translating(
    shape: Shape, folder: Path, configuration: Configuration
) -> Callable[[Sequence[Line]], int]:
    return _open(shape, folder, "cpu", configuration).translate
