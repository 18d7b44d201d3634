"""The two sides of the comparison, each as one call: source in, so many tokens out."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.generation.utils import GenerationMixin

from edgeapp.bench.shapes import Shape
from pipelines.engine import Engine, GenerationOptions, Request

__all__ = ["Contender", "Ours", "Theirs"]


class Contender(ABC):
    """Something that is timed. engine, precision, threads: as the table names them."""

    def __init__(self, engine: str, precision: str, threads: int, shape: Shape) -> None:
        self.engine, self.precision, self.threads = engine, precision, threads
        self._source, self._prompt = shape.source(), shape.prompt

    def seconds(self, tokens: int) -> float:
        """Wall time from the source to this many tokens, batch 1, greedy."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        began = time.perf_counter()
        ids = self._generate(tokens)
        elapsed = time.perf_counter() - began
        if len(ids) != tokens:
            raise RuntimeError(f"{self.engine} made {len(ids)} tokens instead of {tokens}")
        return elapsed

    @abstractmethod
    def _generate(self, tokens: int) -> Sequence[int]: ...


class Theirs(Contender):
    """transformers' `generate`: the plain one, without what Whisper's own adds around it."""

    def __init__(self, model: Any, shape: Shape, threads: int) -> None:
        super().__init__("transformers", str(model.dtype).removeprefix("torch."), threads, shape)
        self._model = model
        audio = self._source.ndim == 2
        source = self._source[None].to(model.dtype) if audio else self._source[None]
        self._inputs: dict[str, Tensor] = {
            "input_features" if audio else "input_ids": source,
            "decoder_input_ids": torch.tensor([self._prompt]),
        }

    def _generate(self, tokens: int) -> Sequence[int]:
        with torch.inference_mode():
            ids = GenerationMixin.generate(
                self._model,
                **self._inputs,
                max_new_tokens=tokens,
                do_sample=False,
                num_beams=1,
            )
        return ids[0, len(self._prompt) :].tolist()


class Ours(Contender):
    """An engine of its own, with one model. name: "auto", or the precision that is asked for."""

    def __init__(self, folder: Path, shape: Shape, name: str, threads: int) -> None:
        self._edge = Engine(device="cpu", precision=name, threads=threads)
        self._model = self._edge.load(folder)
        chosen = self._model.precision
        super().__init__(
            "edgeapp", chosen if name == chosen else f"{name} ({chosen})", threads, shape
        )

    def _generate(self, tokens: int) -> Sequence[int]:
        source = self._source if self._source.ndim == 2 else self._source.tolist()
        (memory,) = self._model.encode([source])
        options = GenerationOptions(max_new_tokens=tokens)
        return self._edge.generate([Request(memory, self._prompt, options)])[0].tokens
