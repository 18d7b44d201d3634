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
_PART = 500  # lines per task of a worker process
_WORKER_START_S = 1.0  # pause until the last worker has started
_AHEAD = 192  # lines submitted in advance, so that the batch stays full


class Ours(PeerBackend):
    """The default compute type, and float32, whose tokens equal those of transformers."""

    def dtypes(self) -> Sequence[str]:
        return ["auto", "float32"]

    def batch_configurations(self, best: Configuration, cores: int) -> Sequence[Configuration]:
        batches = [replace(best, batch=size) for size in (32, 128)]
        has_workers = cores > 1 and self.device == "cpu"
        return [*batches, *[replace(best, threads=1, workers=cores)] * has_workers]

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
    """As Ours, and in the other compute types."""

    def dtypes(self) -> Sequence[str]:
        return ["auto", "float32", "bfloat16", "int8"]


class _Engine(Runner):
    def __init__(self, engine: Engine, model: LoadedModel, shape: Shape) -> None:
        self._engine, self._model, self._shape = engine, model, shape

    def encode(self, count: int) -> list[EncodedSource]:
        if self._shape.kind == "marian":
            return self._model.encode([sentence(self._shape)] * count)
        return self._model.encode(list(features(self._shape, count)))

    def repeat(self, encoded: list[EncodedSource], batch: int) -> list[EncodedSource]:
        (encoding,) = encoded
        owner = {id(encoding.owner): encoding.owner}  # not copied: it identifies the model
        return [encoding, *(copy.deepcopy(encoding, dict(owner)) for _ in range(batch - 1))]

    def decode(
        self, encoded: list[EncodedSource], tokens: int, token_times: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        options = GenerationOptions(max_new_tokens=tokens)
        requests = [Request(encoding, self._shape.prompt, options) for encoding in encoded]
        if token_times is None:
            return [result.tokens for result in self._engine.generate(requests)]
        streams = [self._engine.stream(request) for request in requests]
        token_times.extend(time.perf_counter() for event in streams[-1] if event.tokens)
        return [stream.result().tokens for stream in streams]

    def transcribe(self, samples: NDArray[np.float32], tokens: int) -> Sequence[int]:
        from pipelines.asr.audio.features import FileFeatures

        mels = self._model.architecture.num_mel_bins
        mel, _ = FileFeatures(samples, mels, self._shape.frames).window(0)
        return self.decode(self._model.encode([mel]), tokens)[0]

    def step_bytes(self, encoded: list[EncodedSource]) -> tuple[float, float]:
        plan = self._model.backend.plan
        encoding = encoded[0]
        numbers = sum(each.numel() for each in (*encoding.keys, *encoding.values))
        return plan.decoder.weight_dtype.itemsize, encoding.bytes / numbers

    def explain(self) -> str:
        backend = self._model.backend
        plan, kernels = backend.plan, getattr(backend, "kernels", "")
        sides = (
            f"{name} {side.kernel} {str(side.weight_dtype).removeprefix('torch.')}"
            for name, side in (("encoder", plan.encoder), ("decoder", plan.decoder))
        )
        return f"{plan.compute_type}: {', '.join(sides)} ({kernels}); {plan.reason}"

    def translate(self, lines: Sequence[Line]) -> int:
        # The longest first: the last lines of the batch are then short and end soon.
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
    """Translates lines in worker processes, as `edgeapp translate --workers` does."""

    def __init__(self, shape: Shape, folder: Path, configuration: Configuration) -> None:
        single = replace(configuration, workers=1)
        one = _open(shape, folder, "cpu", single)
        super().__init__(one._engine, one._model, shape)
        make = partial(_open_in_worker, shape, folder, single)
        self._pool: ProcessPool[Sequence[Line], int] = ProcessPool(configuration.workers, make)
        # The first run starts the processes, which takes seconds and is not measured.
        self.translate(lines(shape, 8 * configuration.workers))
        time.sleep(_WORKER_START_S)

    def translate(self, lines: Sequence[Line]) -> int:
        count = max(self._pool.size, -(-len(lines) // _PART))
        return sum(self._pool.map(lines[first::count] for first in range(count)))


def _open_in_worker(
    shape: Shape, folder: Path, configuration: Configuration
) -> Callable[[Sequence[Line]], int]:
    return _open(shape, folder, "cpu", configuration).translate
