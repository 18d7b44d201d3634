"""Choosing tokens: logit filters, argmax or sampling, and the reported probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.sampling.distributions import draw, next_distribution
from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.engine.decoding.sampling.search import SequenceState
from pipelines.engine.model.lm_head import argmax, logprobs_of
from pipelines.errors import EngineError, NumericalError


def apply_suppression(states: Sequence[RequestState], logits: Tensor) -> None:
    """Set suppressed ids to −∞ in logits [sequences, vocab], in one operation where all requests
    suppress the same ids."""
    shared = shared_suppressed_ids(states)
    if shared is not None and not any(state.search for state in states):
        for index in shared:
            logits.index_fill_(1, index, -torch.inf)
        return
    for state, own in zip(states, _logits_by_request(states, logits), strict=True):
        if state.search is not None and state.search.scores_first:
            own.copy_(own.log_softmax(-1))
        for index in state.suppressed:
            own.index_fill_(1, index, -torch.inf)


def select_tokens(states: Sequence[RequestState], logits: Tensor) -> None:
    """Apply the logit filters other than suppression to logits [sequences, vocab], in place, and
    append a token to each sequence."""
    if not any(state.search for state in states):
        _select_single(states, logits)
        return
    single: list[RequestState] = []
    single_logits: list[Tensor] = []
    for state, own in zip(states, _logits_by_request(states, logits), strict=True):
        if state.search is None:
            single.append(state)
            single_logits.append(own)
        else:
            _advance_search(state, own)
    if single:
        _select_single(single, torch.cat(single_logits))


def _logits_by_request(states: Sequence[RequestState], logits: Tensor) -> tuple[Tensor, ...]:
    return torch.split(logits, [len(state.sequences) for state in states])


def _advance_search(state: RequestState, logits: Tensor) -> None:
    """Advance a search by one token; logits [the request's sequences, vocab]."""
    assert state.search is not None
    for sequence, own in zip(state.sequences, logits, strict=True):
        _apply_filters(state, sequence, own)
    if state.error is not None:
        return
    each = logits.amax(-1)
    best = float(each.min() if state.search.needs_all else each.max())
    if math.isfinite(best):
        try:
            candidates = state.search.advance(state.sequences, logits)
        except EngineError as error:  # of the caller's own processor
            state.fail(error)
            return
        state.branch(candidates)
    else:
        _fail_request(state, best)


def next_token_distribution(state: RequestState, logits: Tensor) -> Tensor | None:
    """The distribution [vocab] that a sampling request with a single sequence draws its next token
    from; None when no token can be chosen and the request has failed.

    logits: [vocab] after `apply_suppression`; the other filters are applied in place.
    """
    _apply_filters(state, state.sequences[0], logits)
    best = float(logits.max())
    if state.error is None and not math.isfinite(best):
        _fail_request(state, best)
    if state.error is not None:
        return None
    try:
        return next_distribution(logits, state.request.options)
    except EngineError as error:  # of the caller's own processor
        state.fail(error)
        return None


def _select_single(states: Sequence[RequestState], logits: Tensor) -> None:
    """Choose the next token of requests with a single sequence; logits [requests, vocab]."""
    for index, state in enumerate(states):
        _apply_filters(state, state.sequences[0], logits[index])
    tokens, chosen = argmax(logits)
    for index, state in enumerate(states):
        if state.generator is not None:
            token = _sample_token(logits[index], state.request.options, state)
            tokens[index], chosen[index] = token, logits[index, token]
    if any(state.request.options.logprobs for state in states):
        chosen = logprobs_of(tokens, logits)
    append_tokens(states, tokens, chosen)


def append_tokens(states: Sequence[RequestState], tokens: Tensor, chosen: Tensor) -> None:
    """Append chosen tokens to requests with a single sequence; fail those without a valid choice.

    chosen: the tokens' log-probabilities or, if none are requested, their logits; either is finite
    exactly when there was a token to choose.
    """
    for state, token, logprob in zip(states, tokens.tolist(), chosen.tolist(), strict=True):
        if state.error is not None:
            continue
        if not math.isfinite(logprob):
            _fail_request(state, logprob)
            continue
        state.append_token(token, logprob if state.request.options.logprobs else None)


def shared_suppressed_ids(states: Sequence[RequestState]) -> list[Tensor] | None:
    """The suppressed ids if all requests suppress the same, else None."""
    shared = states[0].suppressed
    alike = all(
        len(state.suppressed) == len(shared)
        and all(a is b for a, b in zip(state.suppressed, shared, strict=True))
        for state in states
    )
    return shared if alike else None


def record_last_token_probs(states: Sequence[RequestState], logits: Tensor) -> None:
    """Record requested probabilities at the last prompt position, in a request's first step, from
    logits [sequences, vocab] before they are filtered."""
    first = 0  # the request's first sequence
    for state in states:
        last = len(state.request.prompt) - 1
        if not state.generated and any(p == last for p, _ in state.request.token_probs):
            record_token_probs(state, [last], logits[first : first + 1])
        first += len(state.sequences)


def record_token_probs(state: RequestState, positions: Sequence[int], logits: Tensor) -> None:
    """Record requested probabilities at prompt positions; logits [positions, vocab]."""
    for position, probabilities in zip(positions, logits.softmax(-1), strict=True):
        for key in state.request.token_probs:
            if key[0] == position:
                state.token_probs[key] = float(probabilities[key[1]])


def _apply_filters(state: RequestState, sequence: SequenceState, logits: Tensor) -> None:
    try:
        for logit_filter in sequence.logit_filters:
            logit_filter(logits, sequence.generated)
    except Exception as error:  # a caller's own filter may raise; the other requests continue
        state.fail(EngineError(f"a logit filter failed: {error!r}"))


def _sample_token(logits: Tensor, options: GenerationOptions, state: RequestState) -> int:
    assert state.generator is not None
    if not torch.isfinite(logits.max()):
        return int(logits.argmax())  # `append_tokens` fails the request
    try:
        return draw(next_distribution(logits, options), options, state.generator)
    except EngineError as error:  # of the caller's own processor
        state.fail(error)
        return int(logits.argmax())  # `append_tokens` appends nothing


def _fail_request(state: RequestState, best: float) -> None:
    """Fail a request whose best logit is −∞ (all ids filtered out), +∞ or NaN."""
    count = len(state.generated)
    if best == -torch.inf:
        state.fail(
            EngineError(
                f"the logit filters leave no token to choose after {count} tokens; "
                "relax one of them"
            )
        )
        return
    state.has_nan = True
    state.fail(
        NumericalError(
            f"the model computed NaN after {count} tokens: its numbers overflow in this compute "
            "type, or its weights or its source are damaged; try compute type float32, or "
            "download the model again"
        )
    )
