"""Random transformers modules, as a caller would have them in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DeiTConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

__all__ = ["MODULES", "VISION", "made"]

_SEQ2SEQ: dict[str, Any] = {
    "vocab_size": 120,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
_T5: dict[str, Any] = {
    "vocab_size": 120, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
_CAUSAL: dict[str, Any] = {"vocab_size": 120, "bos_token_id": 1, "eos_token_id": 2}

MODULES: dict[str, Callable[[], Any]] = {
    "bart": lambda: BartForConditionalGeneration(
        BartConfig(**_SEQ2SEQ, forced_eos_token_id=None)
    ),
    "marian": lambda: MarianMTModel(
        MarianConfig(**_SEQ2SEQ | {"pad_token_id": 119, "decoder_start_token_id": 119},
                     forced_eos_token_id=None)
    ),
    "m2m100": lambda: M2M100ForConditionalGeneration(M2M100Config(**_SEQ2SEQ)),
    "t5": lambda: T5ForConditionalGeneration(T5Config(**_T5)),
    "flan-t5": lambda: T5ForConditionalGeneration(
        T5Config(**_T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    ),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(**_CAUSAL, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    ),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(**_CAUSAL, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, intermediate_size=64, max_position_embeddings=64)
    ),
}  # fmt: skip


def _ocr() -> Any:
    """microsoft/trocr-small-printed: all widths and vocabulary, two layers a side."""
    encoder = DeiTConfig(
        hidden_size=384, num_hidden_layers=2, num_attention_heads=6, intermediate_size=1536,
        image_size=384, qkv_bias=True,
    )  # fmt: skip
    decoder = TrOCRConfig(
        vocab_size=64_044, d_model=256, decoder_layers=2, decoder_attention_heads=8,
        decoder_ffn_dim=1024, activation_function="relu", max_position_embeddings=512,
        cross_attention_hidden_size=384, scale_embedding=True, layernorm_embedding=True,
        decoder_start_token_id=2, is_decoder=True, add_cross_attention=True,
    )  # fmt: skip
    return VisionEncoderDecoderModel(
        VisionEncoderDecoderConfig.from_encoder_decoder_configs(
            encoder, decoder, decoder_start_token_id=2, eos_token_id=2, pad_token_id=1
        )
    )


def _captions() -> Any:
    """nlpconnect/vit-gpt2-image-captioning: all widths, two layers a side, a tenth of its
    vocabulary, which would be 310 MB while it is made."""
    encoder, end = ViTConfig(num_hidden_layers=2), 5_025
    decoder = GPT2Config(
        n_layer=2, vocab_size=end + 1, bos_token_id=end, eos_token_id=end,
        add_cross_attention=True, is_decoder=True,
    )  # fmt: skip
    return VisionEncoderDecoderModel(
        VisionEncoderDecoderConfig.from_encoder_decoder_configs(
            encoder, decoder, decoder_start_token_id=end, eos_token_id=end, pad_token_id=end
        )
    )


VISION: dict[str, Callable[[], Any]] = {"ocr": _ocr, "captions": _captions}


def made(kind: str, seed: int = 0, **changes: Any) -> Any:
    """A module with random weights, wide enough apart that it does not say one thing for ever."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = (MODULES | VISION)[kind]()
        if kind in MODULES:
            for parameter in module.parameters():
                if parameter.ndim > 1:
                    torch.nn.init.normal_(parameter, std=0.2)
    return module.eval().requires_grad_(False)
