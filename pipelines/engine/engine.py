"""The engine: loads models, encodes sources, runs requests. Token ids in, token ids out.

It knows no text, no audio and no files but a model's folder.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from pipelines.engine.backends.native import Network
from pipelines.engine.backends.transformers import Adapter
from pipelines.engine.decoding.batch import Batch
from pipelines.engine.decoding.memory_budget import Budget
from pipelines.engine.decoding.request import Request, Result
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.engine.kernels.loader import to_compile
from pipelines.engine.kernels.malloc import keep_freed_memory
from pipelines.engine.loaded_model import Model
from pipelines.engine.model.precision import choose_device, choose_threads, plan_for
from pipelines.engine.model.threads import Workers
from pipelines.engine.stream import Stream
from pipelines.errors import CheckpointError, EngineError, OptionError, RequestError

__all__ = ["Engine"]


class Engine:
    """One place that computes, shared by all models and callers.

    device: "auto" (CUDA when present, else the CPU), "cpu", "cuda", "cuda:N".
    precision: "float32" (token for token what transformers gives), "bfloat16", "float16",
        "int8", or "auto", the fastest that this device runs well.
    threads: CPU threads, or "auto". max_batch: at most so many lanes of a model at once.
    memory_budget: bytes for the caches of all models together; a generation that finds it used up
        waits, and one that could never fit fails. None: as much as there is.

    All methods may be called from any thread. Raises OptionError for impossible choices.
    """

    def __init__(
        self,
        device: str = "auto",
        precision: str = "auto",
        threads: int | Literal["auto"] = "auto",
        max_batch: int = 64,
        memory_budget: int | None = None,
    ) -> None:
        if memory_budget is not None and memory_budget < 1:
            raise OptionError(f"memory_budget must be 1 byte or more, not {memory_budget}")
        self._device = choose_device(device)
        plan_for(precision, self._device)  # fail here rather than at the first load
        self._precision = precision
        self.threads = choose_threads(threads)
        self._max_batch = max_batch
        self._budget = Budget(memory_budget)
        keep_freed_memory()
        self._workers = Workers(self.threads)
        self._scheduler = Scheduler(self.threads, self._move_to_cpu)
        self._models: dict[tuple[Path, tuple[int, ...] | None], Model] = {}
        self._wrapped: weakref.WeakSet[Model] = weakref.WeakSet()
        self._lock = threading.Lock()

    @property
    def device(self) -> str:
        """Where new models go: "cpu" or "cuda"."""
        return self._device.type

    @property
    def compiles_first(self) -> bool:
        """Whether the first model will take some 15 seconds longer, this once: kernels for int8 are
        compiled for the CPU that they run on."""
        side = plan_for(self._precision, self._device).decoder
        return side.kernel == "int8" and self.device == "cpu" and to_compile()

    @property
    def models(self) -> tuple[Model, ...]:
        """The loaded models."""
        with self._lock:
            return (*self._models.values(), *self._wrapped)

    def load(self, folder: str | Path, shortlist: Sequence[int] | None = None) -> Model:
        """The model in a Hugging Face folder; loaded once, then shared by everyone.

        shortlist: the only ids that are ever to be generated. The last layer computes no others:
        all other logits are −∞. Raises CheckpointError when the folder holds no usable model,
        OptionError for a shortlist of ids that it lacks, or without an end of text.
        """
        path = Path(folder).expanduser().resolve()
        if not path.is_dir():
            raise CheckpointError(f"{folder} is not a folder")
        with self._lock:
            key = path, None if shortlist is None else tuple(sorted(set(shortlist)))
            if key not in self._models:
                network = self._scheduler.run(lambda: self._build(*key))
                self._models[key] = Model(network, self._scheduler, self._max_batch, self._budget)
            return self._models[key]

    def wrap(self, module: Any) -> Model:
        """A transformers model that is in memory already, encoder-decoder or decoder-only.

        It is used with its own tensors, dtype and device, through its own forward, and stays with
        its owner: the engine forgets it when the returned model is dropped.
        """
        model = Model(Adapter(module), self._scheduler, self._max_batch, self._budget)
        self._wrapped.add(model)
        return model

    def unload(self, model: Model) -> None:
        """Give a model's memory back. Its generations that still run are ended as failed."""
        with self._lock:
            self._models = {key: kept for key, kept in self._models.items() if kept is not model}
        self._scheduler.run(model.release)

    def stream(self, request: Request) -> Stream:
        """Start a generation; its events are read by iterating.

        Raises RequestError at once for a request that no model could serve.
        """
        return self._model_of(request).stream(request)

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        """Run requests side by side and return their results in order."""
        streams = [self.stream(request) for request in requests]
        try:
            return [stream.result() for stream in streams]
        finally:
            for stream in streams:
                stream.cancel()

    def close(self) -> None:
        """Forget all models. Generations that still run fail."""
        self._scheduler.close()
        with self._lock:
            self._models.clear()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _model_of(self, request: Request) -> Model:
        for model in self.models:
            if model.owns(request.memory):
                return model
        raise RequestError("the memory of this request was made by no model that is loaded here")

    def _build(self, path: Path, shortlist: tuple[int, ...] | None) -> Network:
        try:
            return self._network(path, shortlist)
        except torch.cuda.OutOfMemoryError:
            self._fall_back(path)
            return self._network(path, shortlist)

    def _network(self, path: Path, shortlist: tuple[int, ...] | None) -> Network:
        plan = plan_for(self._precision, self._device)
        return Network(path, plan, self._workers, shortlist)

    def _fall_back(self, path: Path) -> None:
        warnings.warn(
            f"GPU out of memory with {path.name}: going on with the CPU",
            RuntimeWarning,
            stacklevel=2,
        )
        self._device = torch.device("cpu")
        torch.cuda.empty_cache()

    def _move_to_cpu(self, batch: Batch) -> bool:
        """A step ran out of GPU memory: reload the model on the CPU and go on from there."""
        # Without the lock: a thread that loads a model holds it until this step is over.
        model = next((m for m in list(self._models.values()) if m.runs(batch)), None)
        former = batch.network
        if model is None or not isinstance(former, Network) or not former.plan.on_gpu:
            return False
        rows = batch.drain()
        try:
            self._fall_back(former.folder)
            network = self._network(former.folder, former.shortlist)
            network.adopt(former)
            model.move(network, rows)
        except Exception as error:  # the folder is gone, or memory here is short as well
            failure = EngineError(f"out of GPU memory, and the CPU cannot take over: {error}")
            failure.__cause__ = error
            for row in rows:
                row.fail(failure)
        return True
