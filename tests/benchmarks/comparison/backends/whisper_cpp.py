"""whisper.cpp, through pywhispercpp's wheel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import _pywhispercpp as cpp

from tests.benchmarks.comparison.backends.base import Configuration, PeerBackend, Runner
from tests.benchmarks.comparison.shapes import GGML_BYTES, Shape, ggml_file
from tests.benchmarks.comparison.work import features

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["WhisperCpp"]


class WhisperCpp(PeerBackend):
    """In half precision and in 8 bits, on a CPU: the wheel is built for no other device."""

    def dtypes(self) -> Sequence[str]:
        return [*GGML_BYTES] if self.device == "cpu" else []

    def load(self, configuration: Configuration) -> Runner:
        file = ggml_file(self.folder, configuration.dtype)
        told = cpp.whisper_context_default_params()
        told.use_gpu = False
        context = cpp.whisper_init_from_file_with_params(str(file), told)
        return _Context(context, self.shape, configuration)


class _Context(Runner):
    def __init__(self, context: Any, shape: Shape, configuration: Configuration) -> None:
        self._context, self._shape, self._configuration = context, shape, configuration

    def encode(self, count: int) -> None:
        """What is encoded stays in the context."""
        mels = features(self._shape, 1)[0]
        cpp.whisper_set_mel(self._context, mels, mels.shape[1], mels.shape[0])
        cpp.whisper_encode(self._context, 0, self._configuration.threads)

    def widen(self, encoded: None, batch: int) -> None:
        assert batch == 1, "it has a batch of one"

    def decode(
        self, encoded: None, tokens: int, ticks: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        # The binding takes one token at a time, and keeps the logits to itself: any token will do.
        prompt = self._shape.prompt
        for at, token in enumerate((*prompt[:-1], *prompt[-1:] * tokens)):
            cpp.whisper_decode(self._context, token, 1, at, self._configuration.threads)
            if ticks is not None and at + 1 >= len(prompt):
                ticks.append(time.perf_counter())
        return [[0] * tokens]

    def transcribe(self, samples: NDArray[np.float32], tokens: int) -> Sequence[int]:
        told = cpp.whisper_full_default_params(
            cpp.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY
        )
        told.n_threads = self._configuration.threads
        told.no_context = told.single_segment = told.no_timestamps = True
        told.print_progress = told.print_realtime = told.print_timestamps = False
        told.temperature_inc = 0.0  # nothing is tried again
        told.suppress_blank = False
        told.max_tokens = tokens - 1  # it ends after the first beyond
        cpp.whisper_full(self._context, told, samples, len(samples))
        return [
            cpp.whisper_full_get_token_id(self._context, segment, index)
            for segment in range(cpp.whisper_full_n_segments(self._context))
            for index in range(cpp.whisper_full_n_tokens(self._context, segment))
        ]

    def step_bytes(self, encoded: None) -> tuple[float, float]:
        return GGML_BYTES[self._configuration.dtype], 2.0
