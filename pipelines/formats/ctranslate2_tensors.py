"""The variables of a CTranslate2 model under transformers' names.

CTranslate2 keeps query, key and value of an attention in one matrix, and drops Marian's padding
token: its decoder begins with a zero embedding instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipelines.formats.ctranslate2 import CTranslate2File

_Array = NDArray[np.floating]
_Reader = Callable[[], _Array]

_MOST_LAYERS = 1000
# CTranslate2's norm → transformers' norm, of one layer.
_NORMS = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
}
# CTranslate2's linear layer → those of transformers that are stacked in it.
_LINEARS = {
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}
_EMBEDDINGS = "decoder/embeddings/weight"


def layers_of(file: CTranslate2File, side: str) -> int:
    """The number of layers of a side, "encoder" or "decoder"."""
    count = 0
    while f"{side}/layer_{count}/ffn/linear_0/weight" in file and count < _MOST_LAYERS:
        count += 1
    return count


def starts_from_zero(file: CTranslate2File) -> bool:
    """Whether the decoder begins with a zero embedding, as only Marian's does."""
    return file.scalar("decoder/start_from_zero_embedding", 0) != 0


def model_tensors(file: CTranslate2File) -> dict[str, _Reader]:
    """transformers' name → a function that reads the tensor."""
    found: dict[str, _Reader] = {}
    for side in ("encoder", "decoder"):
        found.update(_side(file, side))
        for index in range(layers_of(file, side)):
            found.update(_layer(file, side, index))
    for conv in ("conv1", "conv2"):
        found.update(_whole(file, f"encoder/{conv}", f"model.encoder.{conv}"))
    found.update(_head(file))
    return found


def _side(file: CTranslate2File, side: str) -> Iterator[tuple[str, _Reader]]:
    """Embeddings, positions and norms outside the layers."""
    for name in (f"{side}/embeddings_0/weight", f"{side}/embeddings/weight"):
        if name in file:
            yield f"model.{side}.embed_tokens.weight", partial(_table, file, name)
            if side == "encoder" and file.variables[name] == file.variables.get(_EMBEDDINGS):
                yield "model.shared.weight", partial(_table, file, name)
            break
    table = f"{side}/position_encodings/encodings"
    if table in file:
        yield f"model.{side}.embed_positions.weight", partial(file.array, table)
    yield from _norm(file, f"{side}/layer_norm", f"model.{side}.layer_norm")


def _layer(file: CTranslate2File, side: str, index: int) -> Iterator[tuple[str, _Reader]]:
    theirs, ours = f"{side}/layer_{index}", f"model.{side}.layers.{index}"
    for norm, name in _NORMS.items():
        yield from _norm(file, f"{theirs}/{norm}", f"{ours}.{name}")
    for linear, names in _LINEARS.items():
        for kind in ("weight", "bias"):
            variable = f"{theirs}/{linear}/{kind}"
            if variable not in file:
                continue
            rows = file.shape(variable)[0] // len(names)
            for part, name in enumerate(names):
                # Whisper's keys have no bias. CTranslate2 fills the place with zeros.
                if kind == "bias" and name.endswith("k_proj") and "encoder/conv1/weight" in file:
                    continue
                start, stop = part * rows, (part + 1) * rows
                yield f"{ours}.{name}.{kind}", partial(file.array, variable, start, stop)


def _norm(file: CTranslate2File, theirs: str, ours: str) -> Iterator[tuple[str, _Reader]]:
    for variable, kind in ((f"{theirs}/gamma", "weight"), (f"{theirs}/beta", "bias")):
        if variable in file:
            yield f"{ours}.{kind}", partial(file.array, variable)


def _whole(file: CTranslate2File, theirs: str, ours: str) -> Iterator[tuple[str, _Reader]]:
    for kind in ("weight", "bias"):
        if f"{theirs}/{kind}" in file:
            yield f"{ours}.{kind}", partial(file.array, f"{theirs}/{kind}")


def _head(file: CTranslate2File) -> Iterator[tuple[str, _Reader]]:
    weight, bias = "decoder/projection/weight", "decoder/projection/bias"
    embeddings = file.variables.get(_EMBEDDINGS)
    if weight in file and file.variables[weight] != embeddings:
        yield "lm_head.weight", partial(_table, file, weight)
    if bias in file:
        yield "final_logits_bias", partial(_logits_bias, file, bias)


def _table(file: CTranslate2File, name: str) -> _Array:
    """An embedding or the LM head, with Marian's padding token as its last row."""
    table = file.array(name)
    return np.concatenate([table, table[:1] * 0]) if starts_from_zero(file) else table


def _logits_bias(file: CTranslate2File, name: str) -> _Array:
    bias = file.array(name)
    return (np.append(bias, bias[:1] * 0) if starts_from_zero(file) else bias)[None]
