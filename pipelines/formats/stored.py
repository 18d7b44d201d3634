"""Weights of other programs in a folder of links.

The hub lays a folder beside the cache for each such model: config and tokenizer as transformers
has them, and a link to the weights, whose name tells their format.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pipelines.formats.described import CTRANSLATE2_LINK, GGML_LINK, GGUF_LINK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# openai-whisper's names of tensors, which whisper.cpp has too → transformers', in this order.
_PARTS = (
    (".blocks.", ".layers."),
    ("encoder.ln_post.", "encoder.layer_norm."),
    ("decoder.ln.", "decoder.layer_norm."),
    (".mlp_ln.", ".final_layer_norm."),
    (".mlp.0.", ".fc1."),
    (".mlp.2.", ".fc2."),
    (".cross_attn_ln.", ".encoder_attn_layer_norm."),
    (".attn_ln.", ".self_attn_layer_norm."),
    (".cross_attn.", ".encoder_attn."),
    (".attn.", ".self_attn."),
    (".query.", ".q_proj."),
    (".key.", ".k_proj."),
    (".value.", ".v_proj."),
    (".out.", ".out_proj."),
    (".token_embedding.", ".embed_tokens."),
    (".positional_embedding", ".embed_positions.weight"),
)


TensorReader: TypeAlias = "Callable[[], NDArray[np.floating]]"


def open_tensors(folder: Path) -> dict[str, TensorReader] | None:
    """The tensors of the weights in a folder.

    Returns:
        transformers' name → a function that reads the tensor; None if the folder has no weights
        in a format of this package, or openai-whisper's, which torch reads.

    Raises:
        CheckpointError: The file is damaged.
    """
    # These import numpy, which a list of models does without.
    from pipelines.formats.ctranslate2 import read_ctranslate2
    from pipelines.formats.ctranslate2_tensors import model_tensors
    from pipelines.formats.ggml import array_of, read_ggml
    from pipelines.formats.gguf import read_gguf

    path = folder / CTRANSLATE2_LINK
    if path.exists():
        return dict(model_tensors(read_ctranslate2(path)))
    for link in (GGML_LINK, GGUF_LINK):
        path = folder / link
        if path.exists():
            arrays = read_ggml(path).arrays if link == GGML_LINK else read_gguf(path)
            return {
                transformers_name(name): partial(array_of, path, name, stored)
                for name, stored in arrays.items()
            }
    return None


def transformers_name(name: str) -> str:
    """encoder.blocks.0.mlp.0.weight → model.encoder.layers.0.fc1.weight; names of transformers
    are returned as they are."""
    if name.startswith("model."):
        return name
    for theirs, ours in _PARTS:
        name = name.replace(theirs, ours)
    return f"model.{name}"
