"""Writers of other programs' files, from the folders of transformers."""

from __future__ import annotations

import json
import struct
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from pipelines.asr.audio.features import mel_filters
from tests.benchmarks.comparison.openai_names import openai_name
from tests.fixtures.bpe import whisper_tokens

__all__ = [
    "QUANTIZED",
    "pack_argos",
    "write_argos",
    "write_ctranslate2",
    "write_ggml",
    "write_gguf",
    "write_pt",
]

_CONFIG_OF_DIMS = {
    "n_vocab": "vocab_size",
    "n_audio_ctx": "max_source_positions",
    "n_audio_state": "d_model",
    "n_audio_head": "encoder_attention_heads",
    "n_audio_layer": "encoder_layers",
    "n_text_ctx": "max_target_positions",
    "n_text_state": "d_model",
    "n_text_head": "decoder_attention_heads",
    "n_text_layer": "decoder_layers",
    "n_mels": "num_mel_bins",
}


def write_ctranslate2(folder: Path, target: Path, quantization: str, *files: str) -> Path:
    """Convert a folder with CTranslate2's own converter. files: copied beside the weights."""
    from ctranslate2.converters import TransformersConverter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converter = TransformersConverter(str(folder), copy_files=list(files))
        converter.convert(str(target), quantization=quantization, force=True)
    return target


def openai_tensors(folder: Path) -> dict[str, torch.Tensor]:
    state = load_file(folder / "model.safetensors")
    return {openai_name(k): v for k, v in state.items() if k != "proj_out.weight"}


def dims_of(folder: Path) -> dict[str, int]:
    config = json.loads((folder / "config.json").read_text())
    return {name: config[key] for name, key in _CONFIG_OF_DIMS.items()}


def write_pt(folder: Path, target: Path) -> Path:
    """As openai-whisper's files: the sizes of the model beside its tensors."""
    torch.save({"dims": dims_of(folder), "model_state_dict": openai_tensors(folder)}, target)
    return target


# ggml's type → its number, and the file's.
QUANTIZED = {"q4_0": (2, 2), "q4_1": (3, 3), "q8_0": (8, 7), "q5_0": (6, 8), "q5_1": (7, 9)}


def write_ggml(
    folder: Path, target: Path, kind: str = "float16", words: Sequence[bytes] | None = None
) -> Path:
    """As whisper.cpp's convert-pt-to-ggml.py, and its quantize for the kinds of QUANTIZED.

    words: the tokens before end-of-text, to which whisper.cpp adds the special ones. None: those
    of the published models.
    """
    dims = dims_of(folder)
    number, ftype = QUANTIZED.get(kind, (1, 1) if kind == "float16" else (0, 0))
    mels = dims["n_mels"]
    with target.open("wb") as file:
        file.write(struct.pack("<I10i", 0x67676D6C, *list(dims.values())))
        file.write(struct.pack("<i", ftype))
        file.write(struct.pack("<2i", mels, 201) + mel_filters(mels).numpy().tobytes())
        if words is None:
            words = whisper_tokens("gpt2" if dims["n_vocab"] == 51_864 else "multilingual")
        file.write(struct.pack("<i", len(words)))
        for word in words:
            file.write(struct.pack("<i", len(word)) + word)
        for name, tensor in openai_tensors(folder).items():
            values = tensor.float().numpy()
            own = number if values.ndim == 2 and "positional" not in name else min(number, 1)
            if values.ndim == 1 or "positional" in name:
                own = 0
            if "conv" in name and name.endswith("bias"):
                values = values[:, None]
            sides = values.shape[::-1]
            file.write(struct.pack(f"<3i{len(sides)}i", len(sides), len(name), own, *sides))
            file.write(name.encode() + _content(own, values))
    return target


def write_gguf(folder: Path, target: Path, kind: str = "q8_0") -> Path:
    """With transformers' names, as candle's files."""
    state = load_file(folder / "model.safetensors")
    number = QUANTIZED[kind][0]
    places, content = b"", b""
    for name, tensor in state.items():
        values = tensor.float().numpy()
        own = number if values.ndim == 2 and "embed_positions" not in name else 0
        sides = values.shape[::-1]
        places += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(sides))
        places += struct.pack(f"<{len(sides)}QIQ", *sides, own, len(content))
        content += _content(own, values)
        content += bytes(-len(content) % 32)
    key = b"general.architecture"
    pairs = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, 7) + b"whisper"
    header = struct.pack("<IIQQ", 0x46554747, 3, len(state), 1) + pairs + places
    target.write_bytes(header + bytes(-len(header) % 32) + content)
    return target


def _content(number: int, values: NDArray[np.float32]) -> bytes:
    if number < 2:
        return values.astype(np.float16 if number else np.float32).tobytes()
    kind = next(kind for kind, (own, _) in QUANTIZED.items() if own == number)
    return quantized(kind, values)


def quantized(kind: str, values: NDArray[np.float32]) -> bytes:
    """Blocks of 32, each with a scale (and a minimum), as ggml's reference quantization."""
    blocks = values.reshape(-1, 32)
    if kind == "q8_0":
        scale = np.abs(blocks).max(1, keepdims=True) / 127
        numbers = np.round(blocks / np.maximum(scale, 1e-12)).astype(np.int8)
        return np.concatenate([_half(scale), numbers.view(np.uint8)], 1).tobytes()
    bits = 4 if kind.startswith("q4") else 5
    if kind.endswith("_1"):
        low = blocks.min(1, keepdims=True)
        scale = (blocks.max(1, keepdims=True) - low) / (2**bits - 1)
        head, shifted = [_half(scale), _half(low)], blocks - low
    else:
        largest = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)
        scale = largest / -(2 ** (bits - 1))
        head, shifted = [_half(scale)], blocks + scale * 2 ** (bits - 1)
    safe = np.where(scale == 0, 1, scale)
    numbers = np.clip(np.round(shifted / safe), 0, 2**bits - 1).astype(np.uint8)
    if bits == 5:
        head.append(np.packbits(numbers >> 4, axis=1, bitorder="little"))
    lower = numbers & 15
    head.append(lower[:, :16] | (lower[:, 16:] << 4))
    return np.concatenate(head, 1).tobytes()


def _half(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    return values.astype(np.float16).view(np.uint8)


def write_argos(marian: Path, package: Path, quantization: str = "float32") -> Path:
    """An unpacked package of Argos Translate with random weights of OpenNMT-py's layout.

    marian: a folder whose sentencepiece model the package takes over.
    """
    from ctranslate2.converters.opennmt_py import _get_model_spec_seq2seq
    from sentencepiece import SentencePieceProcessor

    spm = SentencePieceProcessor(model_file=str(marian / "source.spm"))
    pieces = [spm.id_to_piece(index) for index in range(spm.get_piece_size())]
    words = ["<blank>", "<s>", "</s>", "<unk>"]
    words += [piece for piece in pieces if piece not in {*words, "<pad>"}]
    options = Namespace(heads=4, enc_layers=2, dec_layers=2)
    spec = _get_model_spec_seq2seq(options, _opennmt_tensors(len(words)), [words], [words], 1)
    spec.validate()
    spec.optimize(quantization)
    model = package / "model"
    model.mkdir(parents=True)
    spec.save(str(model))
    (package / "sentencepiece.model").write_bytes((marian / "source.spm").read_bytes())
    stated = {"from_code": "en", "to_code": "de", "package_version": "1.0"}
    (package / "metadata.json").write_text(json.dumps(stated))
    return package


def pack_argos(package: Path, target: Path) -> Path:
    """The zip file that Argos distributes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(package.rglob("*")):
            if file.is_file():
                archive.write(file, Path("en_de") / file.relative_to(package))
    return target


def _opennmt_tensors(vocabulary: int, width: int = 32, ffn: int = 48) -> dict[str, Any]:
    """Random weights under OpenNMT-py's names; not small, so that every part counts."""
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int, mean: float = 0.0) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.2 + mean

    found: dict[str, Any] = {}

    def linear(name: str, outputs: int, inputs: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = random(outputs, inputs), random(outputs)

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = random(width, mean=1.0), random(width)

    embedding = random(vocabulary, width)
    rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(200)[:, None] * rates
    positions = torch.stack([angles.sin(), angles.cos()], 2).reshape(200, 1, width)
    for side, stack in (("encoder", "transformer"), ("decoder", "transformer_layers")):
        found[f"{side}.embeddings.make_embedding.emb_luts.0.weight"] = embedding
        found[f"{side}.embeddings.make_embedding.pe.pe"] = positions
        norm(f"{side}.layer_norm")
        for index in range(2):
            layer = f"{side}.{stack}.{index}"
            attentions = ["self_attn"] + ["context_attn"] * (side == "decoder")
            for attention in attentions:
                for part in ("query", "keys", "values"):
                    linear(f"{layer}.{attention}.linear_{part}", width, width)
                linear(f"{layer}.{attention}.final_linear", width, width)
            norms = ["layer_norm"] if side == "encoder" else ["layer_norm_1", "layer_norm_2"]
            for name in (*norms, "feed_forward.layer_norm"):
                norm(f"{layer}.{name}")
            linear(f"{layer}.feed_forward.w_1", ffn, width)
            linear(f"{layer}.feed_forward.w_2", width, ffn)
    found["generator.weight"], found["generator.bias"] = embedding, random(vocabulary)
    return found
