"""openai-whisper: its model, its cache and its inference class, with the same weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.benchmarks.comparison.backends.base import Configuration, PeerBackend, Runner
from tests.benchmarks.comparison.openai_names import openai_name
from tests.benchmarks.comparison.shapes import Shape
from tests.benchmarks.comparison.work import features

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["OpenAIWhisper"]

# Imported by name: no extra requires the package, because it requires triton. The Makefile installs
# it without its dependencies.
_audio, _decoding, _model = (
    import_module(f"whisper.{part}") for part in ("audio", "decoding", "model")
)


class OpenAIWhisper(PeerBackend):
    """openai-whisper in float32 on a CPU, its only dtype there, and in float16 on a GPU."""

    def dtypes(self) -> Sequence[str]:
        return ["float32"] if self.device == "cpu" else ["float16"]

    def load(self, configuration: Configuration) -> Runner:
        config = self.shape.config
        layers = int(config["encoder_layers"])
        dims = _model.ModelDimensions(
            n_mels=int(config.get("num_mel_bins", 80)),
            n_audio_ctx=self.shape.frames // 2,
            n_audio_state=int(config["d_model"]),
            n_audio_head=int(config["encoder_attention_heads"]),
            n_audio_layer=layers,
            n_vocab=int(config["vocab_size"]),
            n_text_ctx=int(config.get("max_target_positions", 448)),
            n_text_state=int(config["d_model"]),
            n_text_head=int(config["decoder_attention_heads"]),
            n_text_layer=int(config["decoder_layers"]),
        )
        model = _model.Whisper(dims)
        weights = load_file(self.folder / "model.safetensors")
        weights.pop("proj_out.weight", None)  # tied to the token embedding
        model.load_state_dict({openai_name(name): tensor for name, tensor in weights.items()})
        model = model.to(self.device).eval()
        return _Inference(model.half() if configuration.dtype == "float16" else model,
                          self.shape, configuration)  # fmt: skip


class _Inference(Runner):
    def __init__(self, model: Any, shape: Shape, configuration: Configuration) -> None:
        self._model, self._shape, self._configuration = model, shape, configuration
        self._dtype: torch.dtype = getattr(torch, configuration.dtype)

    def ready(self) -> None:
        torch.set_num_threads(self._configuration.threads)

    @torch.inference_mode()
    def encode(self, count: int) -> Tensor:
        mel = torch.from_numpy(features(self._shape, count)).to(self._model.device, self._dtype)
        hidden: Tensor = self._model.embed_audio(mel)
        return hidden

    def repeat(self, encoded: Tensor, batch: int) -> Tensor:
        return encoded.repeat(batch, 1, 1)

    @torch.inference_mode()
    def decode(
        self, encoded: Tensor, tokens: int, token_times: list[float] | None = None
    ) -> Sequence[Sequence[int]]:
        prompt = self._shape.prompt
        inference = _decoding.PyTorchInference(self._model, len(prompt))
        ids = torch.tensor([prompt] * len(encoded), device=encoded.device)
        try:
            for _ in range(tokens):
                logits = inference.logits(ids, encoded)[:, -1]
                ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=-1)
                if token_times is not None:
                    token_times.append(time.perf_counter())
        finally:
            inference.cleanup_caching()
        made: list[list[int]] = ids[:, len(prompt) :].tolist()
        return made

    def transcribe(self, samples: NDArray[np.float32], tokens: int) -> Sequence[int]:
        mel = _audio.log_mel_spectrogram(
            samples, self._model.dims.n_mels, device=self._model.device
        )
        with torch.inference_mode():
            hidden = self._model.embed_audio(mel[None].to(self._dtype))
        return self.decode(hidden, tokens)[0]

    def step_bytes(self, encoded: Tensor) -> tuple[float, float]:
        return self._dtype.itemsize, self._dtype.itemsize
