"""The drafter while it learns: decoder layers on keys and values that the teacher has computed.

Its parameters have the names of transformers' Whisper decoder, so that export.py only copies them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PREFIX = "model.decoder."


class _SelfAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj, self.v_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width)


class _CrossAttention(nn.Module):
    """Without projections of keys and values: these are the teacher's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)


class StudentLayer(nn.Module):
    """A decoder layer. Attention is written out: faster on a CPU than torch's fused one."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.self_attn, self.encoder_attn = _SelfAttention(width), _CrossAttention(width)
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.encoder_attn_layer_norm = nn.LayerNorm(width)
        self.final_layer_norm = nn.LayerNorm(width)
        self._heads = heads

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """x [batch, tokens, width]; keys, values [batch, heads, positions, head_dim]; mask
        [tokens, tokens], added to the scores of self-attention."""
        own, cross = self.self_attn, self.encoder_attn
        y = self.self_attn_layer_norm(x)
        parts = [self._split(part(y)) for part in (own.q_proj, own.k_proj, own.v_proj)]
        x = x + own.out_proj(self._attend(*parts, mask))
        y = self._split(cross.q_proj(self.encoder_attn_layer_norm(x)))
        x = x + cross.out_proj(self._attend(y, keys, values, None))
        return x + self.fc2(F.gelu(self.fc1(self.final_layer_norm(x))))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self._heads, -1)).transpose(1, 2)

    @staticmethod
    def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        scores = (query / math.sqrt(query.shape[-1])) @ keys.transpose(-1, -2).to(query.dtype)
        if mask is not None:
            scores = scores + mask
        mixed = scores.softmax(-1).to(query.dtype) @ values.to(query.dtype)
        return mixed.transpose(1, 2).flatten(-2)


class Student(nn.Module):
    """Some of the teacher's decoder layers, to be trained, under its embeddings, which are not.

    Args:
        teacher: the tensors of its checkpoint.
        heads: of its attention.
        layers: which of its decoder layers the student's begin as.
        shortlist: the ids that the student can write.
    """

    tokens: Tensor
    positions: Tensor
    head: Tensor

    def __init__(
        self,
        teacher: Mapping[str, Tensor],
        heads: int,
        layers: Sequence[int],
        shortlist: Sequence[int],
    ) -> None:
        super().__init__()
        tokens = teacher[f"{PREFIX}embed_tokens.weight"].float()
        self.register_buffer("tokens", tokens, persistent=False)
        self.register_buffer("head", tokens[list(shortlist)], persistent=False)
        positions = teacher[f"{PREFIX}embed_positions.weight"].float()
        self.register_buffer("positions", positions, persistent=False)
        inner = len(teacher[f"{PREFIX}layers.0.fc1.weight"])
        width = tokens.shape[1]
        self.layers = nn.ModuleList(StudentLayer(width, heads, inner) for _ in layers)
        self.layer_norm = nn.LayerNorm(width)
        own = self.state_dict()
        for name in own:
            _, place, rest = [*name.split(".", 2), ""][:3]
            source = f"layers.{layers[int(place)]}.{rest}" if name.startswith("layers.") else name
            own[name] = teacher[PREFIX + source].float()
        self.load_state_dict(own)

    def forward(self, ids: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Hidden states [batch, tokens, width]; their products with `head` are the logits.

        ids: [batch, tokens]. keys, values: [batch, layers, heads, positions, head_dim].
        """
        x = self.tokens[ids] + self.positions[: ids.shape[1]]
        mask = torch.full((ids.shape[1], ids.shape[1]), -torch.inf, device=x.device).triu(1)
        for index, layer in enumerate(self.layers):
            x = layer(x, keys[:, index], values[:, index], mask)
        return self.layer_norm(x)
