"""Published model shapes as data; imports neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["GGML_BYTES", "SHAPES", "Shape", "converted_folder", "ggml_file"]

_SPECIAL = {"bos_token_id": 50_257, "eos_token_id": 50_257, "pad_token_id": 50_257}


@dataclass(frozen=True, eq=False)
class Shape:
    """A model shape.

    Attributes:
        name: Name of the published model.
        kind: Architecture.
        config: Arguments of the configuration class of transformers.
        prompt: Ids that the decoder starts with.
        batches: Default batch sizes of steps.
        large: Batches take slow libraries minutes.
    """

    name: str
    kind: Literal["whisper", "marian"]
    config: Mapping[str, Any]
    prompt: tuple[int, ...]
    batches: tuple[int, ...] = (1, 8, 32)
    large: bool = False

    @property
    def eos(self) -> int:
        return int(self.config["eos_token_id"])

    @property
    def frames(self) -> int:
        """Log-mel frames of a full window."""
        return 2 * int(self.config.get("max_source_positions", 1500))


def _whisper(
    name: str, width: int, layers: int, heads: int, batches: tuple[int, ...], large: bool
) -> Shape:
    config = {
        "vocab_size": 51_865,
        "d_model": width,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
        "decoder_start_token_id": 50_258,
        **_SPECIAL,
    }
    # start, English, transcribe, no timestamps
    return Shape(name, "whisper", config, (50_258, 50_259, 50_359, 50_363), batches, large)


_OPUS = {
    "vocab_size": 58_101,
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "activation_function": "swish",
    "scale_embedding": True,
    "static_position_embeddings": True,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "pad_token_id": 58_100,
    "decoder_start_token_id": 58_100,
}

SHAPES = (
    _whisper("whisper-tiny", 384, 4, 6, (1, 8, 32), large=False),
    _whisper("whisper-base", 512, 6, 8, (1, 8), large=True),
    _whisper("whisper-small", 768, 12, 12, (1, 8), large=True),
    Shape("opus-mt-en-de", "marian", _OPUS, (58_100,)),
)


def converted_folder(folder: Path) -> Path:
    """The folder of the same weights in CTranslate2's format."""
    return folder.with_name(f"{folder.name}-ctranslate2")


# Precision of a file for whisper.cpp → bytes a weight; each 32 of q8_0 share a scale of two.
GGML_BYTES = {"float16": 2.0, "q8_0": 34 / 32}


def ggml_file(folder: Path, compute_type: str) -> Path:
    """The file of the same weights in whisper.cpp's format."""
    return folder.with_name(f"{folder.name}-{compute_type}.bin")
