"""The engine: loads models, encodes sources, runs requests.

Token ids in, token ids out: it reads no text, no audio, and no files except a model's folder.
"""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from pipelines.daemon_threads import stop_daemon_threads_at_exit
from pipelines.engine.backends.base import Backend
from pipelines.engine.backends.module_loader import load_module
from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.backends.transformers import TransformersBackend
from pipelines.engine.decoding.batch import Batch
from pipelines.engine.decoding.memory_budget import MemoryBudget
from pipelines.engine.decoding.request import Request, Result
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.engine.kernels.isa import ISA_LEVELS
from pipelines.engine.kernels.loader import (
    CompileProgress,
    cache_is_writable,
    expected_isa,
    load_kernels,
    needs_compiling,
    report_compiling_to,
)
from pipelines.engine.loaded_model import LoadedModel
from pipelines.engine.model.precision import (
    choose_device,
    choose_threads,
    compute_plan,
    loading_plan,
)
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.stream import Stream
from pipelines.errors import CheckpointError, EngineError, OptionError, RequestError
from pipelines.families import is_native, read_config
from pipelines.malloc import keep_freed_memory, trim_heap


class Engine:
    """Loads models and runs their requests, one computation at a time for all callers.

    All methods may be called from any thread.

    Args:
        device: "auto" (CUDA when present, else the CPU), "cpu", "cuda", "cuda:N".
        compute_type: "float32" (the same tokens as transformers), "bfloat16", "float16", "int8",
            or "auto", the fastest that the device runs well.
        threads: CPU threads, or "auto": all cores for the int8 kernels, and those that are not busy
            now for torch's operations.
        max_batch: Upper bound of the sequences that a model decodes at once.
        cache_budget_bytes: Limit for the caches of all models together. Requests wait while it is
            used up, and one that can never fit fails. None is no limit.

    Raises:
        OptionError: A choice is impossible on this machine.
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
            raise OptionError(f"cache_budget_bytes must be 1 or more, not {cache_budget_bytes}")
        self._device = choose_device(device)
        self._compute_type = compute_type
        # `_uses_kernels` raises here, rather than at the first load, if there is no such type.
        adapts = self._uses_kernels and expected_isa() is not None
        own = ComputeThreads(choose_threads(threads, adapts=adapts))
        # The kernels time now and then whether one thread is faster; torch's operations do not, and
        # leave the busy cores out. These are counted before the engine itself keeps cores busy.
        apart = adapts and threads == "auto"
        self._torch_threads = ComputeThreads(choose_threads(threads)) if apart else own
        self._max_batch = max_batch
        self._budget = MemoryBudget(cache_budget_bytes)
        keep_freed_memory()
        stop_daemon_threads_at_exit()
        self._scheduler = Scheduler(own, self._move_to_cpu)
        self._models: dict[tuple[Path, tuple[int, ...] | None], LoadedModel] = {}
        self._wrapped: weakref.WeakSet[LoadedModel] = weakref.WeakSet()
        self._lock = threading.Lock()  # of the two above
        self._loading = threading.Lock()  # held while a model is loaded

    @property
    def threads(self) -> int:
        """The number of CPU threads."""
        return self._scheduler.threads.count

    @property
    def device(self) -> str:
        """The type of device that new models are loaded on: "cpu" or "cuda"."""
        return self._device.type

    @property
    def needs_compiling(self) -> bool:
        """Whether loading the first model will compile kernels: 20 s, or minutes beside other work.

        The int8 kernels are compiled for the CPU that they run on, and cached.
        """
        return self._uses_kernels and needs_compiling()

    def report_compiling_to(self, listener: Callable[[CompileProgress], None] | None) -> None:
        """Report the progress of compiling, in this process, to a listener; None ends that.

        The thread that loads the first model calls it after each compiled function.
        """
        report_compiling_to(listener)

    @property
    def _uses_kernels(self) -> bool:
        """Whether decoders run on kernels where there are any."""
        precision = compute_plan(self._compute_type, self._device).decoder
        return precision.kernel == "int8" and self.device == "cpu"

    @property
    def instructions(self) -> str | None:
        """The instruction set of the compiled int8 kernels, such as "AVX512-VNNI"; None where
        torch's operations compute."""
        level = expected_isa() if self._uses_kernels else None
        return None if level is None else ISA_LEVELS[level].name

    @property
    def kernel_cache_is_writable(self) -> bool:
        """Whether compiled kernels are kept for later processes."""
        return cache_is_writable()

    @property
    def cache_bytes(self) -> int:
        """Bytes that the caches of all models hold, or may come to need for running requests."""
        return self._budget.reserved_bytes

    @property
    def models(self) -> tuple[LoadedModel, ...]:
        """The loaded and wrapped models."""
        with self._lock:
            return (*self._models.values(), *self._wrapped)

    def check_process(self) -> None:
        """Raise EngineError in a process that was forked from the one that made the engine."""
        self._scheduler.check_process()

    def load(self, folder: str | Path, shortlist: Sequence[int] | None = None) -> LoadedModel:
        """Load the model in a Hugging Face folder; later calls return the same model.

        A folder of a family that is not native is run by transformers, with a notice, where
        transformers has such a model that generates.

        Args:
            folder: Holds config.json and the weights.
            shortlist: The only ids that can be generated. The last layer computes no others: all
                other logits are −∞.

        Raises:
            CheckpointError: The folder holds no usable model.
            OptionError: The shortlist names ids outside the vocabulary, or no end-of-text id.
            EngineError: The engine was closed.
        """
        self._scheduler.check_open()
        path = Path(folder).expanduser().resolve()
        if not path.is_dir():
            raise CheckpointError(f"{folder} is not a folder")
        key = path, None if shortlist is None else tuple(sorted(set(shortlist)))
        with self._loading:
            with self._lock:
                model = self._models.get(key)
            if model is None:
                backend = self._build_beside_others(*key)
                model = LoadedModel(backend, self._scheduler, self._max_batch, self._budget)
                with self._lock:
                    self._scheduler.check_open()  # it may have been closed meanwhile
                    self._models[key] = model
            return model

    def wrap(self, module: Any) -> LoadedModel:
        """Use a transformers module that is in memory already, encoder-decoder or decoder-only.

        The engine calls the module's own forward, with its tensors, dtype and device, and keeps no
        reference to the returned model.
        """
        model = LoadedModel(
            TransformersBackend(module, self._torch_threads),
            self._scheduler,
            self._max_batch,
            self._budget,
        )
        with self._lock:
            self._wrapped.add(model)
        return model

    def unload(self, model: LoadedModel) -> None:
        """Free a model's memory and return it to the system. Its requests that still run fail."""
        self.check_process()
        with self._lock:
            self._models = {key: kept for key, kept in self._models.items() if kept is not model}
        self._scheduler.run(model.unload)
        gc.collect()
        trim_heap()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def stream(self, request: Request) -> Stream:
        """Start a generation; its events are read by iterating.

        Raises:
            RequestError: The source was encoded by no model of this engine, or the model cannot
                run the request.
            EngineError: The engine was closed.
        """
        return self._model_of(request).stream(request)

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        """Run requests in one batch and return their results in order."""
        streams = [self.stream(request) for request in requests]
        try:
            return [stream.result() for stream in streams]
        finally:
            for stream in streams:
                stream.cancel()

    def close(self) -> None:
        """Drop all models. Requests that still run fail, and later ones raise EngineError."""
        if not self._scheduler.is_of_this_process:
            return  # its locks and threads are those of the process that it was forked from
        self._scheduler.close()
        with self._lock:
            models = [*self._models.values()]
            self._models.clear()
        for model in models:
            model.unload()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _model_of(self, request: Request) -> LoadedModel:
        for model in self.models:
            if model.owns(request.encoded):
                return model
        self._scheduler.check_open()
        raise RequestError(
            "the source of this request was encoded by no model that this engine has loaded"
        )

    def _build_beside_others(self, path: Path, shortlist: tuple[int, ...] | None) -> Backend:
        """Make a backend while other models go on computing; on a GPU between two of their steps,
        as no memory can be allocated while a CUDA graph is recorded."""
        if self._device.type != "cpu":
            return self._scheduler.run(lambda: self._build(path, shortlist))
        self._scheduler.threads.use()
        with torch.inference_mode():
            return self._build(path, shortlist)

    def _build(self, path: Path, shortlist: tuple[int, ...] | None) -> Backend:
        native = is_native(read_config(path))
        module = None if native else load_module(path, self._device)
        if module is not None:
            if shortlist is not None:
                raise OptionError(f"{path.name} is run by transformers, which takes no shortlist")
            return TransformersBackend(module, self._torch_threads)
        try:
            return self._load_backend(path, shortlist)
        except torch.cuda.OutOfMemoryError:
            self._fall_back_to_cpu(path)
            return self._load_backend(path, shortlist)

    def _load_backend(self, path: Path, shortlist: tuple[int, ...] | None) -> NativeBackend:
        plan = loading_plan(self._compute_type, self._device)
        compiled = plan.decoder.kernel == "int8" and not plan.on_gpu and load_kernels() is not None
        threads = self._scheduler.threads if compiled else self._torch_threads
        return NativeBackend(path, plan, threads, shortlist)

    def _fall_back_to_cpu(self, path: Path) -> None:
        warnings.warn(
            f"GPU out of memory with {path.name}: going on with the CPU",
            RuntimeWarning,
            stacklevel=2,
        )
        self._device = torch.device("cpu")
        torch.cuda.empty_cache()

    def _move_to_cpu(self, batch: Batch) -> bool:
        """Recover from a step that ran out of GPU memory: reload the batch's model on the CPU.

        Returns:
            Whether the model was on a GPU. Its requests go on, or have failed if the reload did.
        """
        # Without the lock, as a thread that loads a model holds it until this step is over.
        model = next((m for m in list(self._models.values()) if m.uses(batch)), None)
        former = batch.backend
        if model is None or not isinstance(former, NativeBackend) or not former.plan.on_gpu:
            return False
        states = batch.drain()
        try:
            self._fall_back_to_cpu(former.folder)
            backend = self._load_backend(former.folder, former.shortlist)
            backend.adopt(former)
            model.replace_backend(backend, states)
        except Exception as error:  # such as a deleted folder, or too little memory
            failure = EngineError(f"out of GPU memory, and the CPU cannot take over: {error}")
            failure.__cause__ = error
            for state in states:
                state.fail(failure)
        return True
