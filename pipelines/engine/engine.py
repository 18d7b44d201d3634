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

from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.backends.transformers import TransformersBackend
from pipelines.engine.decoding.batch import Batch
from pipelines.engine.decoding.memory_budget import MemoryBudget
from pipelines.engine.decoding.request import Request, Result
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.engine.kernels.loader import cache_is_writable, needs_compiling
from pipelines.engine.kernels.malloc import keep_freed_memory
from pipelines.engine.loaded_model import LoadedModel
from pipelines.engine.model.precision import choose_device, choose_threads, compute_plan
from pipelines.engine.model.threads import ComputeThreads
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
        compute_type: str = "auto",
        threads: int | Literal["auto"] = "auto",
        max_batch: int = 64,
        cache_budget_bytes: int | None = None,
    ) -> None:
        if cache_budget_bytes is not None and cache_budget_bytes < 1:
            raise OptionError(f"memory_budget must be 1 byte or more, not {cache_budget_bytes}")
        self._device = choose_device(device)
        compute_plan(compute_type, self._device)  # fail here rather than at the first load
        self._compute_type = compute_type
        self.threads = choose_threads(threads)
        self._max_batch = max_batch
        self._budget = MemoryBudget(cache_budget_bytes)
        keep_freed_memory()
        self._compute_threads = ComputeThreads(self.threads)
        self._scheduler = Scheduler(self.threads, self._move_to_cpu)
        self._models: dict[tuple[Path, tuple[int, ...] | None], LoadedModel] = {}
        self._wrapped: weakref.WeakSet[LoadedModel] = weakref.WeakSet()
        self._lock = threading.Lock()

    @property
    def device(self) -> str:
        """Where new models go: "cpu" or "cuda"."""
        return self._device.type

    @property
    def needs_compiling(self) -> bool:
        """Whether loading the first model compiles the int8 kernels for this CPU first, which takes
        some 15 seconds."""
        side = compute_plan(self._compute_type, self._device).decoder
        return side.kernel == "int8" and self.device == "cpu" and needs_compiling()

    @property
    def kernel_cache_is_writable(self) -> bool:
        """Whether compiled kernels are kept for later processes."""
        return cache_is_writable()

    @property
    def models(self) -> tuple[LoadedModel, ...]:
        """The loaded models."""
        with self._lock:
            return (*self._models.values(), *self._wrapped)

    def load(self, folder: str | Path, shortlist: Sequence[int] | None = None) -> LoadedModel:
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
                backend = self._scheduler.run(lambda: self._build(*key))
                self._models[key] = LoadedModel(
                    backend, self._scheduler, self._max_batch, self._budget
                )
            return self._models[key]

    def wrap(self, module: Any) -> LoadedModel:
        """A transformers model that is in memory already, encoder-decoder or decoder-only.

        It is used with its own tensors, dtype and device, through its own forward, and stays with
        its owner: the engine forgets it when the returned model is dropped.
        """
        model = LoadedModel(
            TransformersBackend(module), self._scheduler, self._max_batch, self._budget
        )
        self._wrapped.add(model)
        return model

    def unload(self, model: LoadedModel) -> None:
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

    def _model_of(self, request: Request) -> LoadedModel:
        for model in self.models:
            if model.owns(request.encoded):
                return model
        raise RequestError("the memory of this request was made by no model that is loaded here")

    def _build(self, path: Path, shortlist: tuple[int, ...] | None) -> NativeBackend:
        try:
            return self._load_backend(path, shortlist)
        except torch.cuda.OutOfMemoryError:
            self._fall_back(path)
            return self._load_backend(path, shortlist)

    def _load_backend(self, path: Path, shortlist: tuple[int, ...] | None) -> NativeBackend:
        plan = compute_plan(self._compute_type, self._device)
        return NativeBackend(path, plan, self._compute_threads, shortlist)

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
        former = batch.backend
        if model is None or not isinstance(former, NativeBackend) or not former.plan.on_gpu:
            return False
        states = batch.drain()
        try:
            self._fall_back(former.folder)
            backend = self._load_backend(former.folder, former.shortlist)
            backend.adopt(former)
            model.move(backend, states)
        except Exception as error:  # the folder is gone, or memory here is short as well
            failure = EngineError(f"out of GPU memory, and the CPU cannot take over: {error}")
            failure.__cause__ = error
            for state in states:
                state.fail(failure)
        return True
