"""whisper.cpp, through the extension module of pywhispercpp."""

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
    """whisper.cpp in float16 and in 8 bits, on a CPU: the wheel supports no other device."""

    def dtypes(self) -> Sequence[str]:
        return [*GGML_BYTES] if self.device == "cpu" else []

    def load(self, configuration: Configuration) -> Runner:
        file = ggml_file(self.folder, configuration.dtype)
        params = cpp.whisper_context_default_params()
        params.use_gpu = False
        context = cpp.whisper_init_from_file_with_params(str(file), params)
        return _Context(context, self.shape, configuration)


class _Context(Runner):
    def __init__(self, context: Any, shape: Shape, configuration: Configuration) -> None:
        self._context, self._shape, self._configuration = context, shape, configuration

    def encode(self, count: int) -> None:
        """Encode one window; the context keeps the result."""
        mels = features(self._shape, 1)[0]
        cpp.whisper_set_mel(self._context, mels, mels.shape[1], mels.shape[0])
        cpp.whisper_encode(self._context, 0, self._configuration.threads)

    def repeat(self, encoded: None, batch: int) -> None:
        assert batch == 1, "whisper.cpp has no batches"

    def decode(
        self, encoded: None, tokens: int, token_times: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        # The binding decodes one token at a time and returns no logits. The cost of a step does not
        # depend on its token.
        prompt = self._shape.prompt
        for at, token in enumerate((*prompt[:-1], *prompt[-1:] * tokens)):
            cpp.whisper_decode(self._context, token, 1, at, self._configuration.threads)
            if token_times is not None and at + 1 >= len(prompt):
                token_times.append(time.perf_counter())
        return [[0] * tokens]

    def transcribe(self, samples: NDArray[np.float32], tokens: int) -> Sequence[int]:
        params = cpp.whisper_full_default_params(
            cpp.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY
        )
        params.n_threads = self._configuration.threads
        params.no_context = params.single_segment = params.no_timestamps = True
        params.print_progress = params.print_realtime = params.print_timestamps = False
        params.temperature_inc = 0.0  # no temperature fallback
        params.suppress_blank = False
        params.max_tokens = tokens - 1  # it stops after one more
        cpp.whisper_full(self._context, params, samples, len(samples))
        return [
            cpp.whisper_full_get_token_id(self._context, segment, index)
            for segment in range(cpp.whisper_full_n_segments(self._context))
            for index in range(cpp.whisper_full_n_tokens(self._context, segment))
        ]

    def step_bytes(self, encoded: None) -> tuple[float, float]:
        return GGML_BYTES[self._configuration.dtype], 2.0
