"""One loaded model: checks what goes in, runs it between everybody else's steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.decoding.batch import Batch
from pipelines.engine.decoding.request import FinishReason, Request
from pipelines.engine.decoding.row import Row
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.engine.model.families import Architecture
from pipelines.engine.model.memory import Memory
from pipelines.engine.model.network import Network
from pipelines.engine.stream import Stream
from pipelines.errors import EngineError, RequestError

__all__ = ["Model"]


class Model:
    """One loaded model. Made by Engine.load."""

    def __init__(self, network: Network, scheduler: Scheduler, max_batch: int) -> None:
        self._architecture, self._folder = network.architecture, network.folder
        self._scheduler = scheduler
        self._loaded: Batch | None = Batch(network, max_batch)

    @property
    def _batch(self) -> Batch:
        if self._loaded is None:
            raise EngineError(f"{self._folder.name} was unloaded; load it again")
        return self._loaded

    @property
    def _network(self) -> Network:
        return self._batch.network

    @property
    def architecture(self) -> Architecture:
        return self._architecture

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def device(self) -> str:
        return self._network.plan.device.type

    @property
    def precision(self) -> str:
        """The precision in use: what "auto" became."""
        return self._network.plan.precision

    def owns(self, memory: Memory) -> bool:
        """Whether this model made the memory, and so can read it."""
        return self._loaded is not None and self._loaded.network.owns(memory)

    def encode(self, sources: Sequence[Any]) -> list[Memory]:
        """Encode sources in one pass; callers choose what goes well together.

        Audio models: log-mel arrays or tensors [mels, frames], all of one even length of at most
        2 × max_source_positions frames. Text models: sequences of token ids, of any lengths.
        Raises RequestError for anything the model cannot take in.
        """
        if not sources:
            return []
        if self.architecture.source == "audio":
            frames = self._check_frames(sources)
            return self._scheduler.run(lambda: self._network.hear(frames))
        ids = [self._check_ids(source) for source in sources]
        return self._scheduler.run(lambda: self._network.read(ids))

    def score(self, memory: Memory, tokens: Sequence[int]) -> Tensor:
        """Logits after each token of a given target, in one pass: float32 [tokens, vocab]."""
        self._check_target(memory, tokens)
        return self._scheduler.run(lambda: self._score(memory, list(tokens)))

    def stream(self, request: Request) -> Stream:
        """As Engine.stream, for a memory that this model made."""
        self._check_target(request.memory, request.prompt)
        for position, token in request.watch:
            if not (
                0 <= position < len(request.prompt) and 0 <= token < self.architecture.vocab_size
            ):
                raise RequestError(
                    f"watch ({position}, {token}) lies outside the prompt or vocabulary"
                )
        stack = self.architecture.decoder
        for layer, head in request.attention:
            if not (0 <= layer < stack.layers and 0 <= head < stack.heads):
                raise RequestError(
                    f"attention head ({layer}, {head}): the decoder has {stack.layers} layers of "
                    f"{stack.heads}"
                )
        _inside(request.draft, self.architecture.vocab_size, "a draft")
        row = Row(
            request,
            self.architecture.vocab_size,
            self.architecture.max_target_positions,
            self._network.plan.device,
        )
        if request.options.max_new_tokens == 0:
            row.end(FinishReason.LENGTH)
        else:
            self._scheduler.submit(self._batch, row)
        return Stream(row, self._scheduler)

    def _score(self, memory: Memory, tokens: list[int]) -> Tensor:
        cache, cross = self._network.caches()
        cache.alloc()
        slot = cross.alloc()
        memory = self._local(memory)
        if self.architecture.source == "tokens":
            cross.store(slot, memory)
        hidden = self._network.decode([tokens], slice(0, 1), [memory], cache, cross)
        return self._network.logits(hidden[0])

    def _local(self, memory: Memory) -> Memory:
        return memory.to(self._network.plan.device, self._network.memory_dtype)

    def runs(self, batch: Batch) -> bool:
        """Whether `batch` is this model's."""
        return self._loaded is batch

    def move(self, network: Network, rows: list[Row]) -> None:
        """Go on with another network of the same weights; `rows` read their tokens again."""
        network.adopt(self._network)
        self._loaded = Batch(network, self._batch.max_rows)
        for row in rows:
            row.memory = self._local(row.memory)
            row.bind(network.plan.device)
            self._scheduler.submit(self._batch, row)

    def release(self) -> None:
        """Give the memory back; what still runs fails."""
        if self._loaded is not None:
            self._loaded.fail(EngineError(f"{self.folder.name} was unloaded"))
            self._loaded = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _check_frames(self, sources: Sequence[Any]) -> Tensor:
        shape = (self.architecture.num_mel_bins, 2 * self.architecture.max_source_positions)
        tensors = [torch.as_tensor(source, dtype=torch.float32) for source in sources]
        for tensor in tensors:
            mels, frames = tensor.shape if tensor.ndim == 2 else (0, 0)
            if mels != shape[0] or not 0 < frames <= shape[1] or frames % 2:
                raise RequestError(
                    f"audio of shape {list(tensor.shape)}: this model takes "
                    f"[{shape[0]} mels, up to {shape[1]} frames, an even number]"
                )
            if tensor.shape != tensors[0].shape:
                raise RequestError("sources encoded together must have the same number of frames")
            if not torch.isfinite(tensor).all():
                raise RequestError("audio features hold NaN or infinity")
        return torch.stack(tensors)

    def _check_ids(self, source: Sequence[int]) -> list[int]:
        architecture = self.architecture
        ids = [int(i) for i in source]
        if not ids:
            raise RequestError("a source holds no tokens")
        if len(ids) > architecture.max_source_positions:
            raise RequestError(
                f"a source of {len(ids)} tokens is longer than the model's "
                f"{architecture.max_source_positions} positions; split it"
            )
        _inside(ids, architecture.source_vocab_size, "a source")
        return ids

    def _check_target(self, memory: Memory, tokens: Sequence[int]) -> None:
        if not self.owns(memory):
            raise RequestError("the memory of this request was made by another model")
        if not tokens:
            raise RequestError("a prompt needs at least the start token")
        if len(tokens) > self.architecture.max_target_positions:
            raise RequestError(
                f"a prompt of {len(tokens)} tokens is longer than the model's "
                f"{self.architecture.max_target_positions} positions"
            )
        _inside(tokens, self.architecture.vocab_size, "a prompt")


def _inside(ids: Sequence[int], vocab_size: int, what: str) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise RequestError(
                f"{what} holds the id {token}, outside the vocabulary of {vocab_size}"
            )
