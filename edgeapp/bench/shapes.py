"""The models that are measured: published shapes, random weights, written by transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

__all__ = ["SHAPES", "Shape"]


@dataclass(frozen=True)
class Shape:
    """A model shape with the work that it is measured on.

    source: one input, [mels, frames] or [ids]; task: what it is called in the table.
    prompt: what the decoder starts from.
    """

    name: str
    task: str
    build: Callable[[], Any]
    source: Callable[[], Tensor]
    prompt: tuple[int, ...]

    def write(self, folder: Path) -> Any:
        """The model as transformers has it, float32, also saved in `folder`."""
        torch.manual_seed(0)
        model = self.build().float().eval()
        model.save_pretrained(folder)
        # Nothing ends a generation early: both sides make exactly as many tokens as asked for.
        config = model.config
        model.generation_config = GenerationConfig(
            pad_token_id=config.pad_token_id,
            eos_token_id=None,
            decoder_start_token_id=config.decoder_start_token_id,
        )
        return model


def _whisper_tiny() -> Any:
    config = WhisperConfig(
        vocab_size=51_865,
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        bos_token_id=50_257,
        eos_token_id=50_257,
        pad_token_id=50_257,
        decoder_start_token_id=50_258,
    )
    return WhisperForConditionalGeneration(config)


def _opus_mt() -> Any:
    config = MarianConfig(
        vocab_size=58_101,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="swish",
        scale_embedding=True,
        static_position_embeddings=True,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=0,
        forced_eos_token_id=0,
        pad_token_id=58_100,
        decoder_start_token_id=58_100,
    )
    return MarianMTModel(config)


def _half_a_minute() -> Tensor:
    return torch.randn(80, 3000, generator=torch.Generator().manual_seed(0)) * 0.5


def _sentence() -> Tensor:
    ids = torch.randint(3, 58_000, (30,), generator=torch.Generator().manual_seed(0))
    ids[-1] = 0
    return ids


SHAPES = (
    Shape(
        "whisper-tiny",
        "30 s of audio",
        _whisper_tiny,
        _half_a_minute,
        (50_258, 50_259, 50_359, 50_363),  # start, English, transcribe, no timestamps
    ),
    Shape("opus-mt-en-de", "a sentence of 30 tokens", _opus_mt, _sentence, (58_100,)),
)
