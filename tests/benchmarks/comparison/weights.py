"""Folders with random weights, in the formats of transformers and CTranslate2."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from tests.benchmarks.comparison.shapes import Shape, converted_folder

__all__ = ["convert", "vocabulary", "write"]

_FIRST_LANGUAGE, _TASKS = 50_259, 50_358
_CONTROLS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")


def write(shape: Shape, folder: Path) -> None:
    """Random float32 weights of a shape, the same for all libraries."""
    torch.manual_seed(0)
    if shape.kind == "whisper":
        model: Any = WhisperForConditionalGeneration(WhisperConfig(**shape.config))
    else:
        model = MarianMTModel(MarianConfig(**shape.config))
    config = model.config
    # Without an eos id no generation ends early: all libraries make the same number of tokens.
    model.generation_config = GenerationConfig(
        pad_token_id=config.pad_token_id,
        eos_token_id=None,
        decoder_start_token_id=config.decoder_start_token_id,
    )
    model.float().eval().save_pretrained(folder)


def vocabulary(shape: Shape) -> dict[str, int]:
    """A token for every id; special tokens have the names that CTranslate2 looks up."""
    size = int(shape.config["vocab_size"])
    names = [f"t{number}" for number in range(size)]
    if shape.kind == "whisper":
        names[50_257], names[50_258] = "<|endoftext|>", "<|startoftranscript|>"
        for number in range(_FIRST_LANGUAGE, _TASKS):
            names[number] = f"<|l{number - _FIRST_LANGUAGE}|>"
        names[_FIRST_LANGUAGE] = "<|en|>"
        for number, control in enumerate(_CONTROLS, start=_TASKS):
            names[number] = f"<|{control}|>"
        for number in range(50_364, size):
            names[number] = f"<|{(number - 50_364) * 0.02:.2f}|>"
    else:
        names[0], names[1], names[-1] = "</s>", "<unk>", "<pad>"
    return {name: number for number, name in enumerate(names)}


def convert(shape: Shape, folder: Path) -> None:
    """Convert the weights to CTranslate2's format. Raises ModuleNotFoundError without it."""
    from ctranslate2.converters import TransformersConverter

    names = vocabulary(shape)

    class Converter(TransformersConverter):  # type: ignore[misc]
        def load_tokenizer(self, tokenizer_class: Any, name: str, **options: Any) -> Any:
            return SimpleNamespace(
                get_vocab=lambda: names,
                additional_special_tokens=[],
                bos_token="<s>",
                eos_token="</s>",
                unk_token="<unk>",
            )

    target = converted_folder(folder)
    Converter(str(folder)).convert(str(target))
    # faster-whisper reads this file, in the format of the package tokenizers.
    model = {"type": "WordLevel", "vocab": names, "unk_token": "t0"}
    content = {"version": "1.0", "added_tokens": [], "model": model}
    (target / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
