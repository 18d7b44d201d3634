"""Generation as plain functions: token ids in, token ids out.

They take a transformers module in memory or a model of an engine. The signatures follow
romsto/Speculative-Decoding; the decoding is the engine's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from pipelines.engine.backends.transformers import TransformersBackend
from pipelines.engine.decoding.request import Drafter, DraftSession, Proposal, Request, Result
from pipelines.engine.decoding.sampling.logits_processors import GreedyProcessor, LogitsProcessor
from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.engine.decoding.scheduler import Scheduler
from pipelines.engine.decoding.speculative.drafters import NgramDrafter, NgramStore
from pipelines.engine.decoding.speculative.model_drafter import ModelDrafter
from pipelines.engine.loaded_model import LoadedModel
from pipelines.engine.model.sources import NoSource
from pipelines.engine.model.sources.tokens import TokenSource
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.errors import OptionError, RequestError


@dataclass(frozen=True)
class DebugEvent:
    """What happened to tokens.

    Attributes:
        kind: "token": chosen without a draft. "accept", "reject": drafted, and accepted or
            rejected. "resample": chosen in place of a rejected token.
        tokens: Token ids.
    """

    kind: Literal["token", "accept", "reject", "resample"]
    tokens: tuple[int, ...]


Debug = bool | Callable[[DebugEvent], None]
"""True writes debug events to stderr, in colours; a function is called with them instead."""

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
    """Generate the output of an encoder-decoder for one source.

    Args:
        inputs: Source ids.
        model: A transformers module, whose own forward is called, or an engine's LoadedModel.
        max_gen_len: Limit of new tokens.
        logits_processor: How tokens are sampled.
        eos_tokens_id: Any of these ids ends the output.
        pad_token_id: Ignored, since a single source is not padded; part of the original signature.
        use_cache: False reads the whole output again for every token. The source is encoded once.
        debug: True writes what happens to the tokens to stderr; a function is called with it.

    Returns:
        The ids from the start token up to and including eos.

    Raises:
        RequestError: Ids are outside the vocabulary, or the model is decoder-only.
        OptionError: An option is out of range.
    """
    target = _EncodedModel.of(model, use_cache, inputs, encoder_decoder=True)
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
    """Continue `inputs` with a decoder-only model.

    The arguments are those of autoregressive_generate_encoder_decoder.

    Returns:
        The new ids only, eos included.
    """
    target = _EncodedModel.of(model, use_cache, inputs, encoder_decoder=False)
    options = _options(logits_processor, max_gen_len, eos_tokens_id)
    return list(target.generate(options, None, debug).tokens)


def speculative_generate_encoder_decoder(
    inputs: Sequence[int],
    drafter: Any,
    target: Any,
    tokenizer: Any = None,
    gamma: int = 5,
    logits_processor: LogitsProcessor = _GREEDY,
    max_gen_len: int = 40,
    eos_tokens_id: int | Sequence[int] = 1,
    pad_token_id: int = 0,
    use_cache: bool = False,
    skip_sample_adjustment: bool = False,
    first_target: bool = True,
    debug: Debug = False,
) -> tuple[list[int], float]:
    """As autoregressive_generate_encoder_decoder with `target`, in fewer passes.

    Args:
        inputs: Source ids.
        drafter: A model with the same vocabulary (a module or an engine's), an NgramStore, or any
            Drafter.
        target: The model whose output is generated.
        tokenizer: Its `convert_ids_to_tokens` writes the tokens of debug=True; None writes ids.
        gamma: How many tokens are drafted at once.
        logits_processor, max_gen_len, eos_tokens_id, pad_token_id, use_cache, debug: As for
            autoregressive_generate_encoder_decoder.
        skip_sample_adjustment: True is refused: it would change the distribution.
        first_target: The target alone chooses the first token.

    Raises:
        OptionError: `skip_sample_adjustment` is True, `tokenizer` is not a tokenizer, or an option
            is out of range.
        RequestError: Ids are outside the vocabulary, or the models do not fit.

    Returns:
        The ids, and the share of drafted tokens that was accepted (0 if none was drafted).
    """
    _check_adjustment(skip_sample_adjustment)
    debug = _with_tokenizer(debug, tokenizer)
    model = _EncodedModel.of(target, use_cache, inputs, encoder_decoder=True)
    options = _options(logits_processor, max_gen_len, eos_tokens_id)
    made = _drafter(drafter, use_cache, inputs, gamma, True)
    result = model.generate(options, _FirstTarget(made) if first_target else made, debug)
    return [*model.prompt, *result.tokens], _acceptance_rate(result)


def speculative_generate(
    inputs: Sequence[int],
    drafter: Any,
    target: Any,
    tokenizer: Any = None,
    gamma: int = 5,
    logits_processor: LogitsProcessor = _GREEDY,
    max_gen_len: int = 40,
    eos_tokens_id: int | Sequence[int] = 1,
    pad_token_id: int = 0,
    use_cache: bool = False,
    skip_sample_adjustment: bool = False,
    first_target: bool = True,
    debug: Debug = False,
) -> tuple[list[int], float]:
    """As autoregressive_generate with `target`, in fewer passes.

    The arguments are those of speculative_generate_encoder_decoder.

    Returns:
        The new ids, and the share of drafted tokens that was accepted (0 if none was drafted).
    """
    _check_adjustment(skip_sample_adjustment)
    debug = _with_tokenizer(debug, tokenizer)
    model = _EncodedModel.of(target, use_cache, inputs, encoder_decoder=False)
    options = _options(logits_processor, max_gen_len, eos_tokens_id)
    made = _drafter(drafter, use_cache, inputs, gamma, False)
    result = model.generate(options, _FirstTarget(made) if first_target else made, debug)
    return list(result.tokens), _acceptance_rate(result)


@dataclass(frozen=True)
class _EncodedModel:
    """A model with its encoded source, and the prompt that its decoder starts from."""

    model: LoadedModel
    encoded: EncodedSource
    prompt: tuple[int, ...]

    @classmethod
    def of(
        cls, model: Any, use_cache: bool, inputs: Sequence[int], *, encoder_decoder: bool
    ) -> _EncodedModel:
        loaded = model if isinstance(model, LoadedModel) else _wrapped(model)
        loaded = loaded if use_cache else loaded.uncached()
        if not isinstance(loaded.source, TokenSource if encoder_decoder else NoSource):
            kind = "encoder-decoder that reads ids" if encoder_decoder else "decoder-only model"
            raise RequestError(f"{loaded.folder.name} is no {kind}")
        if encoder_decoder:
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
    threads = ComputeThreads(torch.get_num_threads())
    scheduler = Scheduler(threads, lambda batch: False)
    return LoadedModel(TransformersBackend(module, threads), scheduler, 64)


def _options(
    processor: LogitsProcessor, max_gen_len: int, eos: int | Sequence[int]
) -> GenerationOptions:
    ends = (eos,) if isinstance(eos, int) else tuple(eos)
    return processor.options(max_gen_len, ends)


def _drafter(
    drafter: Any, use_cache: bool, inputs: Sequence[int], gamma: int, encoder_decoder: bool
) -> Drafter:
    if isinstance(drafter, NgramStore):
        return NgramDrafter(drafter, gamma=gamma)
    if isinstance(drafter, Drafter):
        return drafter
    draft = _EncodedModel.of(drafter, use_cache, inputs, encoder_decoder=encoder_decoder)
    return ModelDrafter(draft.model, draft.encoded, gamma)


def _check_adjustment(skipped: bool) -> None:
    if skipped:
        raise OptionError(
            "skip_sample_adjustment=True is refused: a rejected draft would be replaced by a draw "
            "from the target's distribution unadjusted, and the output would no longer follow it"
        )


def _acceptance_rate(result: Result) -> float:
    return result.accepted / result.drafted if result.drafted else 0.0


def _with_tokenizer(debug: Debug, tokenizer: Any) -> Debug:
    if tokenizer is None:
        return debug
    if not callable(getattr(tokenizer, "convert_ids_to_tokens", None)):
        raise OptionError(
            "tokenizer, the fourth argument, has to have convert_ids_to_tokens; "
            f"{tokenizer!r} has not. Give gamma by its name"
        )
    return partial(_write, tokenizer=tokenizer) if debug is True else debug


def _listener(debug: Debug) -> Callable[[DebugEvent], None]:
    return _write if isinstance(debug, bool) else debug


def _write(event: DebugEvent, tokenizer: Any = None) -> None:
    ids = list(event.tokens)
    shown = " ".join(map(str, tokenizer.convert_ids_to_tokens(ids) if tokenizer else ids))
    sys.stderr.write(f"\x1b[{_COLOURS[event.kind]}m{event.kind} {shown}\x1b[0m\n")


class _FirstTarget:
    """Wraps a drafter so that the first token of a request is not drafted."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter

    def check(self, vocab_size: int) -> None:
        self._drafter.check(vocab_size)

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        return _AfterFirst(self._drafter.start(prompt, options), len(prompt))


class _AfterFirst(DraftSession):
    """A session that proposes nothing right after the prompt."""

    def __init__(self, session: DraftSession, prompt_length: int) -> None:
        self._session, self._prompt_length = session, prompt_length

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        if len(sequence) == self._prompt_length:
            return Proposal([])
        return self._session.propose(sequence, most)

    def on_verified(self, proposed: int, accepted: int) -> None:
        self._session.on_verified(proposed, accepted)


class _DebugDrafter(DraftSession):
    """Wraps a drafter and reports its drafted tokens, and which were accepted, to a listener.

    `start` returns the object itself, so one object serves one request.
    """

    def __init__(self, drafter: Drafter, listener: Callable[[DebugEvent], None]) -> None:
        self._drafter, self._listener = drafter, listener
        self._session: DraftSession | None = None
        self._num_reported = 0  # tokens of the sequence
        self._drafted: list[int] = []
        self._num_accepted = 0

    def check(self, vocab_size: int) -> None:
        self._drafter.check(vocab_size)

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        self._session = self._drafter.start(prompt, options)
        self._num_reported = len(prompt)
        return self

    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        assert self._session is not None, "propose needs a started session"
        self.report(sequence)
        proposal = self._session.propose(sequence, most)
        self._drafted, self._num_accepted = proposal.tokens[:most], 0
        return proposal

    def on_verified(self, proposed: int, accepted: int) -> None:
        assert self._session is not None, "on_verified needs a started session"
        self._session.on_verified(proposed, accepted)
        self._num_accepted = accepted

    def report(self, sequence: Sequence[int]) -> None:
        """Report which of the last drafted tokens were accepted, and the tokens after them."""
        new = list(sequence[self._num_reported :])
        count = self._num_accepted
        accepted, rejected = self._drafted[:count], self._drafted[count:]
        after = new[len(accepted) :]
        for event in (
            DebugEvent("accept", tuple(accepted)),
            DebugEvent("reject", tuple(rejected) if after else ()),
            DebugEvent("resample" if rejected else "token", tuple(after)),
        ):
            if event.tokens:
                self._listener(event)
        self._num_reported, self._drafted, self._num_accepted = len(sequence), [], 0
