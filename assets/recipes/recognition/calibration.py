"""What an export measures on held-out sentences: the heads that follow the speech, and how sure
the model may call itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import WhisperForConditionalGeneration
from windows import Utterances

from pipelines.asr.audio.features import FileFeatures
from pipelines.asr.tokenizer import WhisperTokenizer

SENTENCES = 60
NEARBY = 5  # encoder positions of 20 ms to either side of the path
WORTH = 0.6  # of the best head's score
SCALES = [1 + step / 20 for step in range(21)]


@dataclass(frozen=True)
class Measured:
    """heads: [layer, head] of the cross-attention that word times can be read from. scale: for
    the logits."""

    heads: list[list[int]]
    scale: float


@torch.inference_mode()
def measure(
    model: WhisperForConditionalGeneration, tokenizer: WhisperTokenizer, dev: Path
) -> Measured:
    """dev: sentences that speak.py wrote. model: with eager attention, so that it shows it."""
    config, special = model.config, tokenizer.special
    scores = np.zeros((config.decoder_layers, config.decoder_attention_heads))
    logits, texts = [], []
    items = Utterances([dev]).items[:SENTENCES]
    for samples, sentence, _ in items:
        audio = samples.astype(np.float32) / 32768
        features = FileFeatures(audio, config.num_mel_bins, 2 * config.max_source_positions)
        mel, frames = features.window(0)
        text = tokenizer.encode(" " + sentence)
        out = model(
            input_features=mel[None],
            decoder_input_ids=torch.tensor([[special.sot, special.no_timestamps, *text]]),
            output_attentions=True,
        )
        # The row of a token shows where the model listened for the one after it.
        attention = torch.stack(out.cross_attentions)[:, 0, :, 1:-1, : frames // 2].numpy()
        scores += [[progress(head) for head in layer] for layer in attention]
        logits.append(out.logits[0, 1:-1])
        texts.append(torch.tensor(text))
    heads = np.argwhere(scores >= WORTH * scores.max())
    return Measured(heads.tolist(), confidence(torch.cat(logits), torch.cat(texts)))


def progress(attention: np.ndarray) -> float:
    """How much of a head's attention [tokens, positions] lies near the best path that never goes
    back, times the share of the positions that the path leads through; 0 to 1."""
    tokens, positions = attention.shape
    attention = attention / (attention.sum(axis=1, keepdims=True) + 1e-9)
    best, came_from = attention[0], []
    for row in attention[1:]:
        reached = np.maximum.accumulate(best)
        # The position before, on the best path to each: where the maximum so far was last set.
        came_from.append(np.maximum.accumulate(np.where(best == reached, np.arange(positions), 0)))
        best = row + reached
    path = [int(best.argmax())]
    for before in reversed(came_from):
        path.append(int(before[path[-1]]))
    path.reverse()
    near = sum(
        attention[i, max(0, at - NEARBY) : at + NEARBY + 1].sum() for i, at in enumerate(path)
    )
    return float(near / tokens * (path[-1] - path[0]) / positions)


def confidence(logits: Tensor, text: Tensor) -> float:
    """The scale of logits [tokens, vocabulary] that makes the text likeliest (Guo et al. 2017).

    Label smoothing teaches doubt: a tenth of each choice goes to tokens at random. The thresholds
    and temperatures of Whisper's fallback want probabilities that are meant as such.
    """
    losses = [torch.nn.functional.cross_entropy(scale * logits, text) for scale in SCALES]
    return SCALES[int(torch.stack(losses).argmin())]
