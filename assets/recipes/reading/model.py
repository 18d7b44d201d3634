"""The reader's architecture, and the weights that its training begins with.

A picture is cut into columns of 8 × 32 pixels; a vision transformer reads these, a TrOCR decoder
writes characters. transformers' vision transformer has neither convolutions nor relative positions,
and learns slowly which columns are neighbors. So the heads of the encoder begin as a convolution:
each looks at the column at one offset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from alphabet import END_ID, PAD_ID, START_ID, TOKENS
from render import HEIGHT, WIDTH
from torch import Tensor, nn
from transformers import (
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

COLUMN = 8  # pixels
COLUMNS = WIDTH // COLUMN
LONGEST_OUTPUT = 128  # characters
_HEAD = 32  # channels of a head
_OFFSETS = (-3, -2, -1, 1, 2, 3)  # columns; the other heads are free
_SHARPNESS = 1.25  # of the heads with an offset
_FAINT = 3e-4  # of the pixels' variance: directions with less are not made stronger


def new_model(
    width: int = 224, encoder_layers: int = 5, decoder_layers: int = 2
) -> VisionEncoderDecoderModel:
    """A model with initial weights.

    Args:
        width: Channels, a multiple of 32.
        encoder_layers: Their number.
        decoder_layers: Their number.
    """
    encoder = ViTConfig(
        hidden_size=width, num_hidden_layers=encoder_layers, num_attention_heads=width // _HEAD,
        intermediate_size=4 * width, image_size=(HEIGHT, WIDTH), patch_size=(HEIGHT, COLUMN),
        layer_norm_eps=1e-5,
    )  # fmt: skip
    decoder = TrOCRConfig(
        vocab_size=len(TOKENS), d_model=width, decoder_layers=decoder_layers,
        decoder_attention_heads=width // _HEAD, decoder_ffn_dim=2 * width, dropout=0.0,
        max_position_embeddings=LONGEST_OUTPUT, cross_attention_hidden_size=width,
        bos_token_id=START_ID, pad_token_id=PAD_ID, eos_token_id=END_ID,
        decoder_start_token_id=START_ID, is_decoder=True, add_cross_attention=True,
    )  # fmt: skip
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, decoder_start_token_id=START_ID, eos_token_id=END_ID,
        pad_token_id=PAD_ID,
    )  # fmt: skip
    model = VisionEncoderDecoderModel(config=config)
    _initialize(model)
    return model


def columns(pixels: Tensor) -> Tensor:
    """Gray pixels [n, 32, width] → columns [n, width / 8, 256]."""
    count, height, width = pixels.shape
    cut = pixels.view(count, height, width // COLUMN, COLUMN)
    return cut.permute(0, 2, 1, 3).reshape(count, width // COLUMN, height * COLUMN)


def encode(model: VisionEncoderDecoderModel, pixels: Tensor, first: int = 0) -> Tensor:
    """The encoder on a picture that is gray, and narrower than its config insists on.

    Args:
        model: The model.
        pixels: [n, 32, width] in [-1, 1]; width is a multiple of 8.
        first: Which column of the full width this picture begins at.

    Returns:
        [n, 1 + columns, channels]; the first is that of the class token.
    """
    parts = model.encoder.embeddings
    projection = parts.patch_embeddings.projection
    weight = projection.weight.sum(1).flatten(1)  # the three colors are equal
    x = nn.functional.linear(columns(pixels), weight, projection.bias)
    positions = parts.position_embeddings
    x = x + positions[:, 1 + first : 1 + first + x.shape[1]]
    beginning = (parts.cls_token + positions[:, :1]).expand(len(x), -1, -1)
    x = torch.cat((beginning.to(x.dtype), x), dim=1)
    for layer in model.encoder.layers:
        x = layer(x, None)
    hidden: Tensor = model.encoder.layernorm(x)
    return hidden


def decode(
    model: VisionEncoderDecoderModel, inputs: Tensor, encoded: Tensor
) -> tuple[Tensor, Sequence[Tensor]]:
    """The decoder on all characters at once.

    Args:
        model: The model, whose decoder computes attention without torch's fused operation.
        inputs: [n, length].
        encoded: [n, 1 + columns, channels].

    Returns:
        Logits of the next characters [n, length, vocabulary], and for each layer what they attend
        to in the picture [n, heads, length, 1 + columns].
    """
    out = model.decoder(
        input_ids=inputs, encoder_hidden_states=encoded, use_cache=False, output_attentions=True
    )
    return out.logits, out.cross_attentions


@torch.no_grad()
def whiten(model: VisionEncoderDecoderModel, pixels: Tensor) -> None:
    """Replace the filters of pixels by the principal directions of lines, at unit size.

    Most of what columns differ in is their brightness. With random filters that hides the strokes.
    Source: Page 2019, How to Train Your ResNet 8: Bag of Tricks.

    Args:
        model: With initial weights.
        pixels: Lines [n, 32, width] in [-1, 1].
    """
    projection = model.encoder.embeddings.patch_embeddings.projection
    patches = columns(pixels).flatten(0, 1)
    patches = patches[patches.std(1) > 0]  # not the empty canvas
    mean = patches.mean(0)
    values, directions = torch.linalg.eigh((patches - mean).T.cov())
    size = (values + _FAINT * values.sum()).rsqrt()
    filters = (directions * size).T.flip(0)[: len(projection.weight) - _HEAD]
    shape = projection.weight[:, :1].shape
    projection.weight[_HEAD:] = (filters.view(-1, *shape[1:]) / 3).expand(-1, 3, -1, -1)
    projection.bias[_HEAD:] = -filters @ mean


@torch.no_grad()
def _initialize(model: VisionEncoderDecoderModel) -> None:
    for name, weight in model.named_parameters():
        if "embed" in name and "projection" not in name:
            nn.init.normal_(weight, std=0.05)
        elif weight.dim() >= 2:
            nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
    parts = model.encoder.embeddings
    waves = math.pi * (torch.arange(_HEAD // 2) + 0.5) / (_HEAD // 2)  # radians a column
    parts.patch_embeddings.projection.weight[:_HEAD] = 0  # the channels of positions
    parts.patch_embeddings.projection.bias.zero_()
    parts.cls_token.zero_()
    parts.position_embeddings.zero_()
    angles = torch.arange(COLUMNS)[:, None] * waves
    parts.position_embeddings[0, 1:, :_HEAD:2] = math.sqrt(2) * angles.cos()
    parts.position_embeddings[0, 1:, 1:_HEAD:2] = math.sqrt(2) * angles.sin()
    for layer in model.encoder.layers:
        _initialize_heads(layer.attention, waves)
        layer.attention.o_proj.weight *= 0.5
        layer.mlp.fc2.weight *= 0.5
        layer.attention.o_proj.weight[:_HEAD] = 0
        layer.mlp.fc2.weight[:_HEAD] = 0


def _initialize_heads(attention: nn.Module, waves: Tensor) -> None:
    """Queries and keys of positions that match at an offset.

    Positions are sines and cosines of evenly spaced frequencies, so that the product of a position
    and another one, turned by an offset, has its peak there.
    """
    attention.q_proj.weight *= 0.3
    attention.k_proj.weight *= 0.3
    for head, offset in enumerate(_OFFSETS[: attention.num_attention_heads - 1]):
        even = torch.arange(len(waves)) * 2
        rows = head * _HEAD + even
        for weight, turn in (
            (attention.q_proj.weight, waves * offset),
            (attention.k_proj.weight, waves * 0),
        ):
            weight[head * _HEAD : (head + 1) * _HEAD] *= 0.3
            weight[rows, even] = _SHARPNESS * turn.cos()
            weight[rows, even + 1] = -_SHARPNESS * turn.sin()
            weight[rows + 1, even] = _SHARPNESS * turn.sin()
            weight[rows + 1, even + 1] = _SHARPNESS * turn.cos()
