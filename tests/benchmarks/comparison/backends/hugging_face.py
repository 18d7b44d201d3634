"""transformers: GenerationMixin.generate, without what Whisper's override adds to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import MarianMTModel, WhisperFeatureExtractor, WhisperForConditionalGeneration
from transformers.generation.stopping_criteria import StoppingCriteriaList
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import logging

from tests.benchmarks.comparison.backends.base import Configuration, PeerBackend, Runner
from tests.benchmarks.comparison.shapes import Shape
from tests.benchmarks.comparison.work import Line, features, sentence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Transformers"]

_BATCH = 64  # lines at once


class Transformers(PeerBackend):
    """transformers in float32 and in the half precisions that the device supports."""

    lines_share = 8

    def dtypes(self) -> Sequence[str]:
        # On a CPU without fp16 arithmetic float16 is many times slower than float32.
        return (
            ["bfloat16", "float32"] if self.device == "cpu" else ["float16", "bfloat16", "float32"]
        )

    def load(self, configuration: Configuration) -> Runner:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        kind = WhisperForConditionalGeneration if self.shape.kind == "whisper" else MarianMTModel
        dtype = getattr(torch, configuration.dtype)
        model: Any = kind.from_pretrained(self.folder, dtype=dtype).to(self.device).eval()
        return _Generate(model, self.shape, configuration)


class _Generate(Runner):
    def __init__(self, model: Any, shape: Shape, configuration: Configuration) -> None:
        self._model, self._shape, self._configuration = model, shape, configuration
        self._extractor = WhisperFeatureExtractor() if shape.kind == "whisper" else None

    def ready(self) -> None:
        torch.set_num_threads(self._configuration.threads)

    @torch.inference_mode()
    def encode(self, count: int) -> Tensor:
        model = self._model
        if self._shape.kind == "marian":
            source = torch.tensor([sentence(self._shape)] * count, device=model.device)
        else:
            source = torch.from_numpy(features(self._shape, count)).to(model.device, model.dtype)
        hidden: Tensor = model.get_encoder()(source).last_hidden_state
        return hidden

    def repeat(self, encoded: Tensor, batch: int) -> Tensor:
        return encoded.repeat(batch, 1, 1)

    def decode(
        self, encoded: Tensor, tokens: int, token_times: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        return self._generate(encoded, tokens, token_times=token_times)

    @torch.inference_mode()
    def _generate(
        self,
        encoded: Tensor,
        tokens: int,
        mask: Tensor | None = None,
        token_times: list[float] | None = None,
    ) -> Sequence[Sequence[int]]:
        prompt = self._shape.prompt

        def record_time(ids: Tensor, scores: Tensor, **rest: Any) -> Tensor:
            if token_times is not None:
                token_times.append(time.perf_counter())
            return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

        ids = GenerationMixin.generate(
            self._model,
            encoder_outputs=BaseModelOutput(last_hidden_state=encoded),
            decoder_input_ids=torch.tensor([prompt] * len(encoded), device=encoded.device),
            max_new_tokens=tokens,
            do_sample=False,
            num_beams=1,
            stopping_criteria=StoppingCriteriaList([record_time]),
            **({} if mask is None else {"attention_mask": mask}),
        )
        made: list[list[int]] = ids[:, len(prompt) :].tolist()
        return made

    def transcribe(self, samples: NDArray[np.float32], tokens: int) -> Sequence[int]:
        mel = self._extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features
        with torch.inference_mode():
            hidden = self._model.get_encoder()(mel.to(self._model.device, self._model.dtype))
        return self.decode(hidden.last_hidden_state, tokens)[0]

    def step_bytes(self, encoded: Tensor) -> tuple[float, float]:
        return self._model.dtype.itemsize, self._model.dtype.itemsize

    def translate(self, lines: Sequence[Line]) -> int:
        ordered = sorted(lines, key=lambda line: len(line.ids))
        for first in range(0, len(ordered), _BATCH):
            self._translate(ordered[first : first + _BATCH])
        return sum(line.tokens for line in lines)

    @torch.inference_mode()
    def _translate(self, lines: Sequence[Line]) -> None:
        """Translate a batch; `generate` runs until its longest line is complete."""
        longest = max(len(line.ids) for line in lines)
        pad = self._model.config.pad_token_id
        ids = torch.tensor([[*line.ids, *[pad] * (longest - len(line.ids))] for line in lines])
        ids = ids.to(self._model.device)
        mask = (ids != pad).long()
        hidden = self._model.get_encoder()(ids, attention_mask=mask).last_hidden_state
        self._generate(hidden, max(line.tokens for line in lines), mask)
