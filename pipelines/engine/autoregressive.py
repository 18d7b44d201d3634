"""Generation as plain functions: ids in, ids out, on a transformers module in memory or on a model
of the engine. The signatures follow romsto/Speculative-Decoding; the decoding is the engine's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from pipelines.engine.backends.transformers import TransformersBackend
from pipelines.engine.decoding.request import Request, Result
from pipelines.engine.decoding.sampling.logits_processors import GreedyProcessor, LogitsProcessor
from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.engine.decoding.speculative.drafters import (
    Drafter,
    DraftSession,
    NgramDrafter,
    NgramStore,
    Proposal,
)
from pipelines.engine.decoding.speculative.model_drafter import ModelDrafter
from pipelines.engine.loaded_model import LoadedModel
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.errors import RequestError

__all__ = [
    "DebugEvent",
    "autoregressive_generate",
    "autoregressive_generate_encoder_decoder",
    "speculative_generate",
    "speculative_generate_encoder_decoder",
]


@dataclass(frozen=True)
class DebugEvent:
    """What happened to tokens: chosen by the model alone, guessed and kept, guessed and refused,
    or chosen in the place of a refused one."""

    kind: Literal["token", "accept", "reject", "resample"]
    tokens: tuple[int, ...]


Debug = bool | Callable[[DebugEvent], None]
"""True writes events to stderr, in colours; a function gets them instead."""

_GREEDY = GreedyProcessor()
_COLOURS = {"token": "0", "accept": "32", "reject": "31;9", "resample": "33"}


def autoregressive_generate_encoder_decoder(
    inputs: Sequence[int],
    model: Any,
    max_gen_len: int = 40,
    logits_processor: LogitsProcessor = _GREEDY,
    eos_tokens_id: int | Sequence[int] = 1,
    pad_token_id: int = 0,
    use_cache: bool = False,
    debug: Debug = False,
) -> list[int]:
    """The output of an encoder-decoder for one source.

    inputs: source ids. model: a transformers module, used as it is, or a Model of an engine.
    max_gen_len: at most so many new tokens. eos_tokens_id: any of these ends the output.
    pad_token_id: nothing is padded here; it is for callers that pass what they passed before.
    use_cache: False reads the whole output anew for every token. The source is read once.

    Returns the ids from the start token up to and including eos. Raises RequestError for ids
    outside the vocabulary or a model of the other kind, OptionError for impossible options.
    """
    target = _GenerationSide.of(model, use_cache, inputs, both=True)
    options = _options(logits_processor, max_gen_len, eos_tokens_id)
    return [*target.prompt, *target.generate(options, None, debug).tokens]


def autoregressive_generate(
    inputs: Sequence[int],
    model: Any,
    max_gen_len: int = 40,
    logits_processor: LogitsProcessor = _GREEDY,
    eos_tokens_id: int | Sequence[int] = 1,
    pad_token_id: int = 0,
    use_cache: bool = False,
    debug: Debug = False,
) -> list[int]:
    """What a decoder-only model adds to `inputs`; else as its encoder-decoder twin.

    Returns the new ids alone, eos included.
    """
    target = _GenerationSide.of(model, use_cache, inputs, both=False)
    options = _options(logits_processor, max_gen_len, eos_tokens_id)
    return list(target.generate(options, None, debug).tokens)


def speculative_generate_encoder_decoder(
    inputs: Sequence[int],
    drafter: Any,
    target: Any,
    gamma: int = 5,
    logits_processor: LogitsProcessor = _GREEDY,
    max_gen_len: int = 40,
    eos_tokens_id: int | Sequence[int] = 1,
    pad_token_id: int = 0,
    use_cache: bool = False,
    debug: Debug = False,
) -> tuple[list[int], float]:
    """As autoregressive_generate_encoder_decoder with `target`, in fewer passes.

    drafter: a model of the same vocabulary (a module or an engine's), an NgramStore, or any
    Drafter. gamma: how many tokens it guesses at once.

    Returns the ids, and which share of the guesses was kept (0 when there were none).
    """
    side = _GenerationSide.of(target, use_cache, inputs, both=True)
    options = _options(logits_processor, max_gen_len, eos_tokens_id)
    result = side.generate(options, _drafter(drafter, use_cache, inputs, gamma, True), debug)
    return [*side.prompt, *result.tokens], _share(result)


def speculative_generate(
    inputs: Sequence[int],
    drafter: Any,
    target: Any,
    gamma: int = 5,
    logits_processor: LogitsProcessor = _GREEDY,
    max_gen_len: int = 40,
    eos_tokens_id: int | Sequence[int] = 1,
    pad_token_id: int = 0,
    use_cache: bool = False,
    debug: Debug = False,
) -> tuple[list[int], float]:
    """As autoregressive_generate with `target`, in fewer passes; see its encoder-decoder twin."""
    side = _GenerationSide.of(target, use_cache, inputs, both=False)
    options = _options(logits_processor, max_gen_len, eos_tokens_id)
    result = side.generate(options, _drafter(drafter, use_cache, inputs, gamma, False), debug)
    return list(result.tokens), _share(result)


@dataclass(frozen=True)
class _GenerationSide:
    """A model with its source read, and what its decoder starts from."""

    model: LoadedModel
    encoded: EncodedSource
    prompt: tuple[int, ...]

    @classmethod
    def of(
        cls, model: Any, use_cache: bool, inputs: Sequence[int], *, both: bool
    ) -> _GenerationSide:
        loaded = model if isinstance(model, LoadedModel) else _wrapped(model)
        loaded = loaded if use_cache else loaded.uncached()
        source = loaded.architecture.source
        if source != ("tokens" if both else "none"):
            wanted = "encoder-decoder that reads ids" if both else "decoder-only model"
            raise RequestError(f"{loaded.folder.name} is no {wanted}")
        if both:
            encoded = loaded.encode([inputs])[0]
            return cls(loaded, encoded, (loaded.architecture.start_id,))
        return cls(loaded, loaded.null_source(), tuple(inputs))

    def generate(self, options: GenerationOptions, drafter: Drafter | None, debug: Debug) -> Result:
        if debug and drafter is not None:
            drafter = _DebugDrafter(drafter, _listener(debug))
        request = Request(self.encoded, self.prompt, options, drafter=drafter)
        with self.model.stream(request) as stream:
            for event in stream:
                if debug and drafter is None and event.tokens:
                    _listener(debug)(DebugEvent("token", event.tokens))
            result = stream.result()
        if isinstance(drafter, _DebugDrafter):
            drafter.report([*self.prompt, *result.tokens])
        return result


def _wrapped(module: Any) -> LoadedModel:
    return LoadedModel(
        TransformersBackend(module), Scheduler(torch.get_num_threads(), lambda batch: False), 64
    )


def _options(
    processor: LogitsProcessor, max_gen_len: int, eos: int | Sequence[int]
) -> GenerationOptions:
    ends = (eos,) if isinstance(eos, int) else tuple(eos)
    return processor.options(max_gen_len, ends)


def _drafter(
    drafter: Any, use_cache: bool, inputs: Sequence[int], gamma: int, both: bool
) -> Drafter:
    if isinstance(drafter, NgramStore):
        return NgramDrafter(drafter, gamma=gamma)
    if isinstance(drafter, Drafter):
        return drafter
    side = _GenerationSide.of(drafter, use_cache, inputs, both=both)
    return ModelDrafter(side.model, side.encoded, gamma)


def _share(result: Result) -> float:
    return result.accepted / result.drafted if result.drafted else 0.0


def _listener(debug: Debug) -> Callable[[DebugEvent], None]:
    return _write if isinstance(debug, bool) else debug


def _write(event: DebugEvent) -> None:
    ids = " ".join(map(str, event.tokens))
    sys.stderr.write(f"\x1b[{_COLOURS[event.kind]}m{event.kind} {ids}\x1b[0m\n")


class _DebugDrafter:
    """A drafter whose guesses, and what became of them, are told to a listener."""

    def __init__(self, drafter: Drafter, listener: Callable[[DebugEvent], None]) -> None:
        self._drafter, self._listener = drafter, listener
        self._drafting: DraftSession | None = None
        self._known = 0  # so much of the sequence has been reported
        self._guesses: list[int] = []
        self._kept = 0
        self.gamma = 0

    def check(self, vocab_size: int) -> None:
        self._drafter.check(vocab_size)

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        self._drafting = self._drafter.start(prompt, options)
        self._known, self.gamma = len(prompt), self._drafting.gamma
        return self

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        assert self._drafting is not None, "it has been started"
        self.report(sequence)
        proposal = self._drafting.propose(sequence, most)
        self._guesses, self._kept = proposal.tokens[:most], 0
        return proposal

    def on_verified(self, proposed: int, accepted: int) -> None:
        assert self._drafting is not None, "it has been started"
        self._drafting.on_verified(proposed, accepted)
        self.gamma, self._kept = self._drafting.gamma, accepted

    def report(self, sequence: Sequence[int]) -> None:
        """Tell what came of the last guesses."""
        new = list(sequence[self._known :])
        kept, refused = self._guesses[: self._kept], self._guesses[self._kept :]
        after = new[len(kept) :]
        for event in (
            DebugEvent("accept", tuple(kept)),
            DebugEvent("reject", tuple(refused) if after else ()),
            DebugEvent("resample" if refused else "token", tuple(after)),
        ):
            if event.tokens:
                self._listener(event)
        self._known, self._guesses, self._kept = len(sequence), [], 0
