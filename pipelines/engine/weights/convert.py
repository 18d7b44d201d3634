"""Write the weights of a model folder anew, in another kind of numbers.

The layout is that of transformers: safetensors, in shards where they are large. int8 has a scale
for each row of a matrix, `{name}_scale`, which the engine reads and transformers does not.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from pipelines.engine.weights.checkpoint import SCALE, Weights, open_weights
from pipelines.engine.weights.quantized import quantize_weight
from pipelines.errors import ModelError, OptionError
from pipelines.json_files import read_json_object

COMPUTE_TYPES = ("float32", "float16", "bfloat16", "int8")
_SHARD_BYTES = 2 << 30
_WEIGHTS = (".safetensors", ".bin", ".pt", ".ctranslate2", ".ggml", ".gguf", ".index.json", ".h5")
_HEADS = ("lm_head.weight", "proj_out.weight")
# Tables that stay float32 beside int8 matrices: positions, and biases of attention.
_FLOAT_TABLES = ("embed_positions.weight", "relative_attention_bias.weight")


def convert_model(folder: Path, target: Path, compute_type: str) -> Path:
    """Write a model in transformers' layout.

    Args:
        folder: A model folder, also one with a link to weights of another program.
        target: The new folder; it may exist if it is empty.
        compute_type: One of COMPUTE_TYPES.

    Returns:
        The new folder.

    Raises:
        OptionError: `compute_type` is none of them, or `target` is not empty.
        CheckpointError: The model is incomplete or damaged.
        ModelError: The folder cannot be written.
    """
    if compute_type not in COMPUTE_TYPES:
        raise OptionError(f"compute type {compute_type!r} is none of {', '.join(COMPUTE_TYPES)}")
    try:
        if target.exists() and any(target.iterdir()):
            raise OptionError(f"{target} is not empty; name a new folder")
        part = target.with_name(f".{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            _copy_files(folder, part, compute_type)
            _write_shards(_tensors(folder, compute_type), part)
            if target.exists():
                target.rmdir()
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise ModelError(f"{target} cannot be written: {error.strerror or error}") from error
    return target


def _tensors(folder: Path, compute_type: str) -> Iterator[tuple[str, Tensor]]:
    """Name and content of each tensor in the new kind of numbers."""
    weights = open_weights(folder)
    names = sorted(weights.names)
    shared = "model.shared.weight" in names or "shared.weight" in names
    for name in names:
        if shared and name.endswith("embed_tokens.weight"):
            continue  # the same table under another name
        if name in _HEADS and _is_tied(folder, weights, name):
            continue
        tensor = weights.read(name)
        if not tensor.is_floating_point():
            yield name, tensor
        elif compute_type != "int8":
            yield name, tensor.to(getattr(torch, compute_type)).contiguous()
        elif tensor.ndim == 2 and not name.endswith((*_FLOAT_TABLES, "final_logits_bias")):
            quantized = quantize_weight(tensor)
            yield name, quantized.numbers
            yield f"{name}{SCALE}", quantized.scales
        else:
            yield name, tensor.float().contiguous()


def _is_tied(folder: Path, weights: Weights, head: str) -> bool:
    """Whether the LM head is the token embedding once more, as in some .bin files."""
    if not read_json_object(folder / "config.json").get("tie_word_embeddings", True):
        return False
    tables = [
        n for n in weights.names if n.endswith(("shared.weight", "decoder.embed_tokens.weight"))
    ]
    return bool(tables) and torch.equal(weights.read(tables[0]), weights.read(head))


def _write_shards(tensors: Iterator[tuple[str, Tensor]], folder: Path) -> None:
    """Write safetensors files of at most `_SHARD_BYTES`, and their index where they are several."""
    shards: list[list[str]] = []
    held: dict[str, Tensor] = {}
    total = 0

    def write() -> None:
        shards.append(sorted(held))
        path = folder / f"{len(shards)}.safetensors"
        save_file(held, path, metadata={"format": "pt"})
        path.chmod((folder / "config.json").stat().st_mode)  # safetensors keeps it to the user
        held.clear()

    for name, tensor in tensors:
        if held and sum(t.nbytes for t in held.values()) + tensor.nbytes > _SHARD_BYTES:
            write()
        # The tensors of a .bin may share memory, which safetensors refuses.
        shares = any(other.data_ptr() == tensor.data_ptr() for other in held.values())
        held[name] = tensor.clone() if shares else tensor
        total += tensor.nbytes
    write()
    if len(shards) == 1:
        (folder / "1.safetensors").rename(folder / "model.safetensors")
        return
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"{number}.safetensors").rename(folder / file)
        weight_map |= dict.fromkeys(names, file)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


def _copy_files(folder: Path, target: Path, compute_type: str) -> None:
    """Copy everything but weights; config.json states the new kind of numbers."""
    for file in sorted(folder.iterdir()):
        if file.is_file() and not file.name.endswith(_WEIGHTS) and file.name != "origin.json":
            shutil.copyfile(file, target / file.name)
    config = read_json_object(folder / "config.json")
    config.pop("torch_dtype", None)
    config["dtype"] = "float32" if compute_type == "int8" else compute_type
    _write_json(target / "config.json", config)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
