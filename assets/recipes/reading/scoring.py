"""Character error rates, and reading a batch back during training."""

from __future__ import annotations

import jiwer
import torch
from alphabet import END_ID, START_ID, decode
from model import LONGEST_OUTPUT
from torch import Tensor
from transformers import VisionEncoderDecoderModel


def error_rate(references: list[str], read: list[str]) -> float:
    """Insertions, deletions and substitutions for each character of the references."""
    return float(jiwer.cer(references, read))


@torch.inference_mode()
def read_back(model: VisionEncoderDecoderModel, encoded: Tensor) -> list[str]:
    """Greedy text of encoded lines."""
    ids = torch.full((len(encoded), 1), START_ID)
    ended = torch.zeros(len(encoded), dtype=torch.bool)
    past = None
    for _ in range(LONGEST_OUTPUT - 1):
        out = model.decoder(
            input_ids=ids[:, -1:], encoder_hidden_states=encoded, past_key_values=past,
            use_cache=True,
        )  # fmt: skip
        past = out.past_key_values
        following = out.logits[:, -1].argmax(-1)
        following[ended] = END_ID
        ids = torch.cat((ids, following[:, None]), dim=1)
        ended |= following == END_ID
        if ended.all():
            break
    return [decode(row.tolist()) for row in ids[:, 1:]]
