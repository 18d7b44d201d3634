"""Reading a batch of windows back, and word error rates as every table here uses them."""

from __future__ import annotations

import re
from collections.abc import Callable

import jiwer
import torch
from torch import Tensor
from transformers import WhisperForConditionalGeneration
from windows import Tokens

LONGEST = 64


def plain(text: str) -> str:
    """Lower case, letters and apostrophes only: what a word error rate is counted on."""
    return " ".join(re.sub(r"[^a-z' ]+", " ", text.lower().replace("-", " ")).split())


def error_rate(references: list[str], heard: list[str]) -> float:
    return jiwer.wer([plain(r) for r in references], [plain(h) for h in heard])


def read_back(
    model: WhisperForConditionalGeneration,
    tokens: Tokens,
    mels: Tensor,
    encode: Callable[[WhisperForConditionalGeneration, Tensor], Tensor],
) -> list[str]:
    """Greedy text of full windows without timestamps, in one batch; for checks during training."""
    with torch.inference_mode():
        hidden = encode(model, mels)
        ids = torch.tensor([[tokens.sot, tokens.no_timestamps]] * len(mels), device=mels.device)
        past, inputs = None, ids
        ended = torch.zeros(len(mels), dtype=torch.bool, device=mels.device)
        for _ in range(LONGEST):
            out = model.model.decoder(
                input_ids=inputs,
                encoder_hidden_states=hidden,
                past_key_values=past,
                use_cache=True,
            )
            past = out.past_key_values
            inputs = model.proj_out(out.last_hidden_state[:, -1:]).argmax(-1)
            inputs[ended] = tokens.eot
            ids = torch.cat([ids, inputs], dim=1)
            ended |= inputs[:, 0] == tokens.eot
            if ended.all():
                break
    return [tokens.tokenizer.decode(row.tolist()).strip() for row in ids]
