"""Small checkpoints that a test changes and then writes in any form that repositories have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pipelines.errors import CheckpointError
from tests.fixtures.checkpoints import save_sharded

State = dict[str, Tensor]
VOCABULARY = 600
SOURCE = [17, 300, 500, 250, 0]
TARGET = [VOCABULARY - 1, 12, 400, 7]


class Stored:
    """A model's config and tensors, to be changed and written in any form.

    The first rows of the vocabulary are enough here, and written in no time.
    """

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        whole = self.config["vocab_size"]
        self.config |= {"vocab_size": VOCABULARY, "decoder_vocab_size": VOCABULARY}
        self.config |= dict.fromkeys(("decoder_start_token_id", "pad_token_id"), VOCABULARY - 1)
        self.config |= dict.fromkeys(("bos_token_id", "eos_token_id", "forced_eos_token_id"), 0)
        self.config.pop("bad_words_ids", None)
        self.state: State = {}
        for name, tensor in load_file(folder / "model.safetensors").items():
            for side, size in enumerate(tensor.shape):
                if size == whole:
                    tensor = tensor.narrow(side, 0, VOCABULARY)
            self.state[name] = tensor.clone()

    def write(self, folder: Path, form: str = "safetensors") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        if form == "safetensors":
            save_file(self.state, folder / "model.safetensors", metadata={"format": "pt"})
        elif form == "sharded":
            save_sharded(folder, self.state, 3)
        elif form == "sharded bin":
            names = list(self.state)
            halves = names[::2], names[1::2]
            weight_map = {}
            for i, half in enumerate(halves, start=1):
                file = f"pytorch_model-0000{i}-of-00002.bin"
                torch.save({name: self.state[name] for name in half}, folder / file)
                weight_map |= dict.fromkeys(half, file)
            index = folder / "pytorch_model.bin.index.json"
            index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        else:
            modern = form != "legacy bin"
            torch.save(
                self.state,
                folder / "pytorch_model.bin",
                _use_new_zipfile_serialization=modern,
            )
        return folder


def logits(load: Callable[..., Any], folder: Path, source: Any = SOURCE) -> Tensor:
    """What a model makes of a source: float32 [tokens, vocabulary]."""
    model = load(folder)
    (encoded,) = model.encode([source])
    scores: Tensor = model.score(encoded, TARGET)
    assert torch.isfinite(scores).all()
    return scores


def frames() -> Tensor:
    return torch.randn(80, 20, generator=torch.Generator().manual_seed(0))


def refused(load: Callable[..., Any], folder: Path) -> str:
    with pytest.raises(CheckpointError) as error:
        load(folder)
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    return message
