"""What checkpoints of each family call the tensors. The native stack uses the names of BART's."""

from __future__ import annotations

import re
from collections.abc import Callable

from pipelines.engine.weights.architecture import Family

__all__ = ["checkpoint_names"]

_LAYER = re.compile(r"model\.(encoder|decoder)\.layers\.(\d+)\.(.*)\.(weight|bias)")
_T5 = {
    "shared": "shared",
    "encoder.layer_norm": "encoder.final_layer_norm",
    "decoder.layer_norm": "decoder.final_layer_norm",
    "encoder.relative_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "decoder.relative_bias": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
}
_T5_BLOCK = {
    "self_attn_layer_norm": "layer.0.layer_norm",
    "self_attn": "layer.0.SelfAttention",
    "encoder_attn_layer_norm": "layer.1.layer_norm",
    "encoder_attn": "layer.1.EncDecAttention",
    "final_layer_norm": "layer.{last}.layer_norm",
    "fc1": "layer.{last}.DenseReluDense.wi",
    "gate": "layer.{last}.DenseReluDense.wi_0",
    "value": "layer.{last}.DenseReluDense.wi_1",
    "fc2": "layer.{last}.DenseReluDense.wo",
}
_T5_PROJECTIONS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}


def checkpoint_names(family: Family) -> Callable[[str], str]:
    """BART's name for a tensor → the family's."""
    return _t5 if family == "t5" else str


def _t5(name: str) -> str:
    match = _LAYER.fullmatch(name)
    if match is None:
        bare, _, kind = name.removeprefix("model.").rpartition(".")
        return f"{_T5.get(bare, bare)}.{kind}"
    side, index, block, kind = match.groups()
    part, _, projection = block.partition(".")
    inside = _T5_BLOCK[part].format(last=1 if side == "encoder" else 2)
    end = f".{_T5_PROJECTIONS[projection]}" if projection else ""
    return f"{side}.block.{index}.{inside}{end}.{kind}"
