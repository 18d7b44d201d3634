"""One loaded model: checks what goes in, runs it between everybody else's steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from pipelines.engine.backends.base import Backend
from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.backends.uncached import UncachedBackend
from pipelines.engine.decoding.batch import Batch
from pipelines.engine.decoding.memory_budget import MemoryBudget
from pipelines.engine.decoding.request import FinishReason, Request
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.engine.decoding.statistics import Statistics
from pipelines.engine.state.attention_capture import AttentionCapture
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.stream import Stream
from pipelines.engine.weights.architecture import Architecture
from pipelines.errors import EngineError, RequestError

__all__ = ["LoadedModel"]

T = TypeVar("T")


class LoadedModel:
    """One loaded model. Made by Engine.load, or by Engine.wrap."""

    def __init__(
        self,
        backend: Backend,
        scheduler: Scheduler,
        max_batch: int,
        budget: MemoryBudget | None = None,
    ) -> None:
        self._architecture, self._folder = backend.architecture, backend.folder
        self._scheduler = scheduler
        self._loaded: Batch | None = Batch(backend, max_batch, budget or MemoryBudget())

    @property
    def _batch(self) -> Batch:
        if self._loaded is None:
            raise EngineError(f"{self._folder.name} was unloaded; load it again")
        return self._loaded

    @property
    def _backend(self) -> Backend:
        return self._batch.backend

    @property
    def backend(self) -> Backend:
        """What computes. Only for use between steps: by drafters, which the steps call."""
        return self._backend

    @property
    def architecture(self) -> Architecture:
        return self._architecture

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def device(self) -> str:
        return self._backend.plan.device.type

    @property
    def compute_type(self) -> str:
        """The precision in use: what "auto" became."""
        return self._backend.plan.compute_type

    @property
    def statistics(self) -> Statistics:
        """What it has done so far, and what it is doing."""
        return self._batch.statistics

    def owns(self, encoded: EncodedSource) -> bool:
        """Whether this model made the memory, and so can read it."""
        return self._loaded is not None and self._loaded.backend.owns(encoded)

    def null_source(self) -> EncodedSource:
        """The memory of a decoder-only model, which has no source.

        Raises RequestError for a model with an encoder.
        """
        if self.architecture.source != "none":
            raise RequestError(f"{self.folder.name} has an encoder: encode a source for it")
        return self._scheduler.run(lambda: self._backend.encode([None]))[0]

    def uncached(self) -> LoadedModel:
        """The same model without a cache: it reads everything anew for every token."""
        return LoadedModel(
            UncachedBackend(self._backend), self._scheduler, self._batch.max_sequences
        )

    def encode(self, sources: Sequence[Any]) -> list[EncodedSource]:
        """Encode sources in one pass; callers choose what goes well together.

        Audio models: log-mel arrays or tensors [mels, frames], all of one even length of at most
        2 × max_source_positions frames. Text models: sequences of token ids, of any lengths.
        Wrapped models of other kinds: tensors of what their encoder takes, one a source.
        Raises RequestError for anything the model cannot take in.
        """
        if not sources:
            return []
        checked = self._checked(sources)
        return self._run(lambda: self._backend.encode(checked))

    def encode_sharing(
        self, sources: Sequence[Any], drafter: LoadedModel
    ) -> list[tuple[EncodedSource, EncodedSource]]:
        """As encode, with what a drafter that has the very same encoder makes of it (such as
        distil-whisper's, beside the model that it was made from): the encoder runs once.

        Only the shapes are checked; weights that differ cost guesses, never exactness. Raises
        RequestError for models that cannot share.
        """
        self._pair(drafter)
        checked = self._checked(sources)

        def encode() -> list[tuple[EncodedSource, EncodedSource]]:
            own, other = self._pair(drafter)
            return own.encode_sharing(checked, other)

        return self._run(encode)

    def _pair(self, drafter: LoadedModel) -> tuple[NativeBackend, NativeBackend]:
        own, other = self._backend, drafter.backend
        if (
            isinstance(own, NativeBackend)
            and isinstance(other, NativeBackend)
            and own.shares_encoder_with(other)
        ):
            return own, other
        raise RequestError(
            f"{drafter.folder.name} has another encoder than {self.folder.name}: encode the "
            "source with each"
        )

    def _checked(self, sources: Sequence[Any]) -> list[Any]:
        checked: list[Any] = list(sources)
        if self.architecture.source == "audio":
            checked = self._check_frames(sources)
        elif self.architecture.source == "tokens":
            checked = [self._check_ids(source) for source in sources]
        elif self.architecture.source == "none":
            raise RequestError(f"{self.folder.name} is decoder-only: it has nothing to encode")
        return checked

    def score(self, encoded: EncodedSource, tokens: Sequence[int]) -> Tensor:
        """Logits after each token of a given target, in one pass: float32 [tokens, vocab]."""
        return self.attend(encoded, tokens, ())[0]

    def attend(
        self, encoded: EncodedSource, tokens: Sequence[int], heads: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, Tensor]:
        """As score, and where each token looks in the source when it is read: float32 [heads,
        tokens, source length] for (decoder layer, head) pairs."""
        self._check_target(encoded, tokens)
        self._check_heads(heads)
        return self._run(lambda: self._attend(encoded, list(tokens), heads))

    def stream(self, request: Request) -> Stream:
        """As Engine.stream, for a memory that this model made."""
        self._check_target(request.encoded, request.prompt)
        for position, token in request.token_probs:
            if not (
                0 <= position < len(request.prompt) and 0 <= token < self.architecture.vocab_size
            ):
                raise RequestError(
                    f"token_probs ({position}, {token}) lies outside the prompt or vocabulary"
                )
        self._check_heads(request.attention)
        _inside(request.draft, self.architecture.vocab_size, "a draft")
        if request.drafter is not None:
            request.drafter.check(self.architecture.vocab_size)
        state = RequestState(
            request,
            self.architecture.vocab_size,
            self.architecture.max_target_positions,
            self._backend.plan.device,
        )
        if request.options.max_new_tokens == 0:
            state.end(FinishReason.LENGTH)
        else:
            self._scheduler.submit(self._batch, state)
        return Stream(state, self._scheduler)

    def _run(self, job: Callable[[], T]) -> T:
        """A job between two steps; once more on the CPU when the GPU's memory is too small."""
        try:
            return self._scheduler.run(job)
        except torch.cuda.OutOfMemoryError as error:
            if not self._scheduler.recover(self._batch):
                raise EngineError(f"out of memory: {error}") from error
        return self._scheduler.run(job)

    def _attend(
        self, encoded: EncodedSource, tokens: list[int], heads: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, Tensor]:
        cache, cross = self._backend.caches()
        cache.alloc()
        slot = cross.alloc()
        encoded = self._local(encoded)
        cross.store(slot, encoded)
        capture = AttentionCapture([encoded], [heads], len(tokens)) if heads else None
        hidden = self._backend.decode([tokens], slice(0, 1), [encoded], cache, cross, capture)
        seen = capture.weights[0] if capture is not None else torch.zeros(0, len(tokens), 0)
        return self._backend.logits(hidden[0]), seen.cpu()

    def _local(self, encoded: EncodedSource) -> EncodedSource:
        return encoded.to(self._backend.plan.device, self._backend.source_dtype)

    def runs(self, batch: Batch) -> bool:
        """Whether `batch` is this model's."""
        return self._loaded is batch

    def move(self, backend: Backend, states: list[RequestState]) -> None:
        """Go on with another network of the same weights; `states` read their tokens again."""
        self._loaded = Batch(backend, self._batch.max_sequences, self._batch.budget)
        for state in states:
            self._scheduler.submit(self._batch, state)

    def release(self) -> None:
        """Give the memory back; what still runs fails."""
        if self._loaded is not None:
            self._loaded.fail(EngineError(f"{self.folder.name} was unloaded"))
            self._loaded = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _check_frames(self, sources: Sequence[Any]) -> list[Tensor]:
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
        return tensors

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

    def _check_heads(self, heads: Sequence[tuple[int, int]]) -> None:
        stack = self.architecture.decoder
        if heads and not self._backend.reports_attention:
            raise RequestError(
                f"{self.folder.name} does not report its attention; a module of transformers does "
                'when it reads a source and was loaded with attn_implementation="eager"'
            )
        for layer, head in heads:
            if not (0 <= layer < stack.layers and 0 <= head < stack.heads):
                raise RequestError(
                    f"attention head ({layer}, {head}): the decoder has {stack.layers} layers of "
                    f"{stack.heads}"
                )

    def _check_target(self, encoded: EncodedSource, tokens: Sequence[int]) -> None:
        if not self.owns(encoded):
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
