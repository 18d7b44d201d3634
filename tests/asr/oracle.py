"""openai-whisper as oracle: the same weights in its class, and the comparison of results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from whisper.model import ModelDimensions, Whisper
from whisper.transcribe import transcribe

from pipelines.asr import Segment

__all__ = ["assert_same", "from_openai", "in_openai", "of_openai"]

# transformers' name → openai-whisper's, first match first; after convert_openai_to_hf.py.
_NAMES = (
    ("model.", ""),
    ("layers.", "blocks."),
    ("fc1", "mlp.0"),
    ("fc2", "mlp.2"),
    ("final_layer_norm", "mlp_ln"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("self_attn_layer_norm", "attn_ln"),
    ("encoder_attn", "cross_attn"),
    ("self_attn", "attn"),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "out"),
    ("encoder.layer_norm", "encoder.ln_post"),
    ("decoder.layer_norm", "decoder.ln"),
    ("embed_tokens", "token_embedding"),
    ("embed_positions.weight", "positional_embedding"),
)


def _openai_name(name: str) -> str:
    for theirs, openai in _NAMES:
        name = name.replace(theirs, openai)
    return name


def in_openai(folder: Path) -> Whisper:
    """A Hugging Face folder's weights as openai-whisper's model, in float32 on the CPU."""
    config = json.loads((folder / "config.json").read_text())
    width = config["d_model"]
    dimensions = ModelDimensions(
        n_mels=config["num_mel_bins"],
        n_audio_ctx=config["max_source_positions"],
        n_audio_state=width,
        n_audio_head=config["encoder_attention_heads"],
        n_audio_layer=config["encoder_layers"],
        n_vocab=config["vocab_size"],
        n_text_ctx=config["max_target_positions"],
        n_text_state=width,
        n_text_head=config["decoder_attention_heads"],
        n_text_layer=config["decoder_layers"],
    )
    model = Whisper(dimensions)
    state = load_file(folder / "model.safetensors")
    model.load_state_dict({_openai_name(name): value for name, value in state.items()})
    return model.eval().requires_grad_(False)


def from_openai(model: Whisper, folder: Path) -> Path:
    """Replace the weights in a folder by those of a model of the same shape."""
    weights: dict[str, Tensor] = model.state_dict()
    names = load_file(folder / "model.safetensors")
    state = {name: weights[_openai_name(name)].contiguous() for name in names}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def of_openai(model: Whisper, samples: NDArray[np.float32], **options: Any) -> dict[str, Any]:
    """The result of openai-whisper's `transcribe`, with our options' names."""
    if "suppress_tokens" in options:
        options["suppress_tokens"] = list(options["suppress_tokens"])
    found: dict[str, Any] = transcribe(model, samples, fp16=False, **options)
    return found


def assert_same(
    ours: Sequence[Segment], theirs: Sequence[dict[str, Any]], tolerance: float = 1e-4
) -> None:
    """Assert that segments are equal; sums and exponentials in float32 within the tolerance."""
    assert [s.text for s in ours] == [s["text"] for s in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        for name in ("id", "seek", "start", "end", "temperature", "compression_ratio"):
            assert getattr(mine, name) == other[name], name
        assert list(mine.tokens) == other["tokens"]
        assert mine.avg_logprob == pytest.approx(other["avg_logprob"], abs=tolerance)
        assert mine.no_speech_prob == pytest.approx(other["no_speech_prob"], abs=tolerance)
