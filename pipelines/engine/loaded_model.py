"""One loaded model: checks its inputs, and runs it through the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
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
from pipelines.engine.model.sources import NoSource, Source
from pipelines.engine.model.sources.base import check_vocabulary
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.state.forward_batch import AttentionCapture
from pipelines.engine.stream import Stream
from pipelines.errors import EngineError, RequestError
from pipelines.families.architecture import Architecture

T = TypeVar("T")


class LoadedModel:
    """One loaded model, returned by Engine.load and Engine.wrap.

    Args:
        backend: The weights of the model and its passes.
        scheduler: Runs all computations.
        max_batch: Upper bound of the sequences decoded at once.
        budget: The memory limit shared with other models; None for no limit.
    """

    def __init__(
        self,
        backend: Backend,
        scheduler: Scheduler,
        max_batch: int,
        budget: MemoryBudget | None = None,
    ) -> None:
        self._architecture, self._folder = backend.architecture, backend.folder
        self._source = backend.source
        self._scheduler = scheduler
        self._batch: Batch | None = Batch(backend, max_batch, budget or MemoryBudget())
        self._ahead: set[Future[EncodedSource]] = set()  # what is encoded in the background

    def _require_batch(self) -> Batch:
        """The batch. Raises EngineError after `unload`."""
        if self._batch is None:
            self._scheduler.check_open()
            raise EngineError(f"{self._folder.name} was unloaded; load it again")
        return self._batch

    @property
    def _backend(self) -> Backend:
        return self._require_batch().backend

    @property
    def backend(self) -> Backend:
        """The backend. Call it only within a step or job of the scheduler, as drafters do."""
        return self._backend

    @property
    def architecture(self) -> Architecture:
        """Sizes and kinds of the layers, and the special ids."""
        return self._architecture

    @property
    def source(self) -> Source:
        """The kind of source that it encodes."""
        return self._source

    @property
    def folder(self) -> Path:
        """The model's folder; its name is used in messages."""
        return self._folder

    @property
    def device(self) -> str:
        """The type of its device: "cpu" or "cuda"."""
        return self._backend.plan.device.type

    @property
    def compute_type(self) -> str:
        """The compute type in use, with "auto" resolved."""
        return self._backend.plan.compute_type

    @property
    def weight_bytes(self) -> int | None:
        """Bytes of the weights. None for a native model: torch does not tell how large its packed
        layouts are."""
        return self._backend.weight_bytes

    @property
    def takes_any_shapes(self) -> bool:
        """Whether sources of different shapes can be encoded in one pass: on a CPU, where sound is
        encoded one by one."""
        return self._backend.sources_at_once is not None

    @property
    def statistics(self) -> Statistics:
        """Counters since the model was loaded, and its present load."""
        return self._require_batch().statistics

    def owns(self, encoded: EncodedSource) -> bool:
        """Whether this model encoded the source, and so can read it."""
        return self._batch is not None and self._batch.backend.owns(encoded)

    def null_source(self) -> EncodedSource:
        """The empty source that requests of a decoder-only model name.

        Raises:
            RequestError: The model has an encoder.
        """
        if not isinstance(self._source, NoSource):
            raise RequestError(f"{self.folder.name} has an encoder: encode a source for it")
        return self._run(lambda: self._backend.encode([None]))[0]

    def uncached(self) -> LoadedModel:
        """The same model without a cache: each step reads the whole sequence again."""
        return LoadedModel(
            UncachedBackend(self._backend), self._scheduler, self._require_batch().max_sequences
        )

    def encode(self, sources: Sequence[Any], priority: int = 0) -> list[EncodedSource]:
        """Encode sources in one pass; the caller chooses how many, and which together.

        On a CPU a pass over several audio windows is divided: between them come the steps of more
        urgent requests, and the passes of other callers.

        Args:
            sources: For audio models log-mel arrays or tensors [mels, frames], an even number of at
                most 2 × max_source_positions frames, on a GPU all of one length. For waveform
                models samples [n] at 16 kHz, of any lengths. For text models sequences of token
                ids, of any lengths. For wrapped models of other kinds one tensor a source, as
                their encoder takes it.
            priority: As of requests: a lower number goes first.

        Raises:
            RequestError: The model cannot encode such a source.
        """
        if not sources:
            return []
        self._scheduler.check_process()
        return self._encode_in_parts(
            self._checked_sources(sources), priority, lambda part: self._backend.encode(part)
        )

    def encode_ahead(self, source: Any, priority: int = 0) -> Future[EncodedSource] | None:
        """Begin to encode a source in the background, while this thread decodes others.

        Args:
            source: As for `encode`.
            priority: As for `encode`.

        Returns:
            The encoded source when it is there. None while there are more urgent requests, and
            where it would gain nothing: on a GPU, for texts, with one or many threads, or without
            compiled kernels.

        Raises:
            RequestError: The model cannot encode such a source.
        """
        self._scheduler.check_open()
        (checked,) = self._checked_sources([source])
        if self._scheduler.has_urgent(priority):
            return None
        future = self._backend.encode_ahead(checked)
        if future is not None:
            self._ahead.add(future)
            future.add_done_callback(self._ahead.discard)
        return future

    def stop_ahead(self) -> None:
        """Encode nothing in the background any more; return when that has ended."""
        for future in [*self._ahead]:
            if not future.cancel():
                wait([future])

    def _encode_in_parts(
        self, sources: Sequence[Any], priority: int, encode: Callable[[Sequence[Any]], list[T]]
    ) -> list[T]:
        """Run `encode` on as many sources at a time as the backend encodes side by side."""
        size = self._backend.sources_at_once or len(sources)
        encoded: list[T] = []
        for start in range(0, len(sources), size):
            if start:
                self._scheduler.give_way(priority)
            part = sources[start : start + size]
            encoded += self._run(lambda part=part: encode(part))  # type: ignore[misc]
        return encoded

    def encode_sharing(
        self, sources: Sequence[Any], drafter: LoadedModel, priority: int = 0
    ) -> list[tuple[EncodedSource, EncodedSource]]:
        """Encode sources for this model and for a draft model with the same encoder, run once.

        For draft models distilled with a frozen encoder. Only the shapes of the two encoders are
        compared: different weights lower the acceptance rate, but do not change the output.

        Args:
            sources: As for `encode`.
            drafter: The draft model.
            priority: As for `encode`.

        Returns:
            For each source (encoded for this model, encoded for the draft model).

        Raises:
            RequestError: The encoders differ in shape, or a source cannot be encoded.
        """
        self._sharing_backends(drafter)

        def encode(part: Sequence[Any]) -> list[tuple[EncodedSource, EncodedSource]]:
            own, other = self._sharing_backends(drafter)
            return own.encode_sharing(part, other)

        return self._encode_in_parts(self._checked_sources(sources), priority, encode)

    def reuse_source(self, encoded: EncodedSource, layers: Sequence[int]) -> EncodedSource:
        """A source for this model, made of the keys and values that another one has computed.

        Args:
            encoded: The source, encoded by a model with the same encoder.
            layers: For each decoder layer of this model the layer of the other one whose keys and
                values are projected by the same weights.
        """
        backend = self._backend
        assert isinstance(backend, NativeBackend), "only native models share their encoder"
        return backend.reuse_source(encoded, layers)

    def _sharing_backends(self, drafter: LoadedModel) -> tuple[NativeBackend, NativeBackend]:
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

    def _checked_sources(self, sources: Sequence[Any]) -> list[Any]:
        return self._source.check(sources, self.takes_any_shapes)

    def score(self, encoded: EncodedSource, tokens: Sequence[int]) -> Tensor:
        """Logits after each token of a given target, in one pass.

        Args:
            encoded: The source, encoded by this model.
            tokens: The target ids, the start token first.

        Returns:
            float32 [tokens, vocab].

        Raises:
            RequestError: The source is another model's, or the tokens do not fit the model.
        """
        return self.score_with_attention(encoded, tokens, ())[0]

    def score_with_attention(
        self, encoded: EncodedSource, tokens: Sequence[int], heads: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, Tensor]:
        """Logits and cross-attention weights for a given target, in one pass.

        Args:
            encoded: As for `score`.
            tokens: As for `score`.
            heads: (decoder layer, head) pairs.

        Returns:
            Logits as `score` returns them, and weights float32 [heads, tokens, source length] on
            the CPU.

        Raises:
            RequestError: As for `score`, or a head does not exist.
        """
        self._check_target(encoded, tokens)
        self._check_heads(heads)
        return self._run(lambda: self._score_with_attention(encoded, list(tokens), heads))

    def stream(self, request: Request) -> Stream:
        """Start a generation on a source that this model has encoded; see Engine.stream."""
        self._scheduler.check_process()
        self._check_target(request.encoded, request.prompt)
        for position, token in request.token_probs:
            if not (
                0 <= position < len(request.prompt) and 0 <= token < self.architecture.vocab_size
            ):
                raise RequestError(
                    f"token_probs ({position}, {token}) lies outside the prompt or vocabulary"
                )
        self._check_heads(request.attention)
        check_vocabulary(request.draft, self.architecture.vocab_size, "a draft")
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
            self._scheduler.submit(self._require_batch, state)
        return Stream(state, self._scheduler)

    def _run(self, job: Callable[[], T]) -> T:
        """Run a job between two steps, and again on the CPU when the GPU is out of memory."""
        self._scheduler.check_open()
        try:
            return self._scheduler.run(job)
        except torch.cuda.OutOfMemoryError as error:
            if not self._scheduler.recover(self._require_batch()):
                raise EngineError(f"out of memory: {error}") from error
        return self._scheduler.run(job)

    def _score_with_attention(
        self, encoded: EncodedSource, tokens: list[int], heads: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, Tensor]:
        caches = self._backend.caches()
        encoded = encoded.to(self._backend.plan.device, self._backend.source_dtype)
        caches.add_source(encoded)
        capture = AttentionCapture([encoded], [heads], len(tokens)) if heads else None
        hidden = caches.decode([tokens], slice(0, 1), [encoded], capture)
        weights = capture.weights[0] if capture is not None else torch.zeros(0, len(tokens), 0)
        return self._backend.logits(hidden[0]), weights.cpu()

    def uses(self, batch: Batch) -> bool:
        """Whether `batch` is this model's."""
        return self._batch is batch

    def replace_backend(self, backend: Backend, states: list[RequestState]) -> None:
        """Continue with another backend of the same weights.

        Args:
            backend: Such as the same model on the CPU.
            states: Requests of the former batch, which are prefilled again.
        """
        former = self._require_batch()
        with self._scheduler.without_submissions():
            self._batch = Batch(backend, former.max_sequences, former.budget)
        # Others may have been added while the backend was made.
        for state in [*states, *former.drain()]:
            self._scheduler.submit(self._require_batch, state)

    def unload(self) -> None:
        """Drop the weights and caches; requests that still run fail."""
        with self._scheduler.without_submissions():
            batch, self._batch = self._batch, None
        if batch is not None:
            batch.fail(EngineError(f"{self.folder.name} was unloaded"))
        self.stop_ahead()

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
        if not self._backend.owns(encoded):  # raises EngineError after `unload`
            raise RequestError("the source of this request was encoded by another model")
        if not tokens:
            raise RequestError("a prompt needs at least the start token")
        if len(tokens) > self.architecture.max_target_positions:
            raise RequestError(
                f"a prompt of {len(tokens)} tokens is longer than the model's "
                f"{self.architecture.max_target_positions} positions"
            )
        check_vocabulary(tokens, self.architecture.vocab_size, "a prompt")
