"""Choosing tokens: the rules of each row, greedy or sampled, and what to report of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.sampling.distributions import sample_from, token_distribution
from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.engine.decoding.sampling.search import SequenceState
from pipelines.engine.model.lm_head import argmax, logprobs_of
from pipelines.errors import EngineError, NumericalError

__all__ = [
    "next_token_distribution",
    "select_tokens",
    "append_tokens",
    "record_token_probs",
    "shared_suppressed_ids",
    "apply_suppression",
    "record_last_token_probs",
]


def apply_suppression(states: Sequence[RequestState], logits: Tensor) -> None:
    """Rule out suppressed ids, in one operation where all rows share them; logits [lanes, vocab]
    of the rows' lanes, one row's after the other's."""
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
    """Apply each lane's other rules to its logits [lanes, vocab], and go on by a token."""
    if not any(state.search for state in states):
        _select_single(states, logits)
        return
    single: list[RequestState] = []
    parts: list[Tensor] = []
    for state, own in zip(states, _logits_by_request(states, logits), strict=True):
        if state.search is None:
            single.append(state)
            parts.append(own)
        else:
            _advance_search(state, own)
    if single:
        _select_single(single, torch.cat(parts))


def _logits_by_request(states: Sequence[RequestState], logits: Tensor) -> tuple[Tensor, ...]:
    return torch.split(logits, [len(state.sequences) for state in states])


def _advance_search(state: RequestState, logits: Tensor) -> None:
    """Let a row's search go on; logits [its lanes, vocab]."""
    assert state.search is not None
    for sequence, own in zip(state.sequences, logits, strict=True):
        _apply_filters(state, sequence, own)
    if state.error is not None:
        return
    each = logits.amax(-1)
    best = float(each.min() if state.search.each_goes_on else each.max())
    if math.isfinite(best):
        state.branch(state.search.advance(state.sequences, logits))
    else:
        _fail_request(state, best)


def next_token_distribution(state: RequestState, logits: Tensor) -> Tensor | None:
    """What a sampled row with a single lane draws its next token from, [vocab]; None when that is
    impossible, and the row has failed. Applies the row's rules to the logits."""
    _apply_filters(state, state.sequences[0], logits)
    best = float(logits.max())
    if state.error is None and not math.isfinite(best):
        _fail_request(state, best)
    return (
        None if state.error is not None else _filtered_distribution(logits, state.request.options)
    )


def _select_single(states: Sequence[RequestState], logits: Tensor) -> None:
    """The next token of rows with a single lane; logits [rows, vocab]."""
    for index, state in enumerate(states):
        _apply_filters(state, state.sequences[0], logits[index])
    tokens, chosen = argmax(logits)
    for index, state in enumerate(states):
        if state.generator is not None:
            token = _sample_token(logits[index], state.request.options, state)
            tokens[index], chosen[index] = token, logits[index, token]
    if any(state.request.options.logprobs for state in states):
        chosen = logprobs_of(chosen, logits)
    append_tokens(states, tokens, chosen)


def append_tokens(states: Sequence[RequestState], tokens: Tensor, chosen: Tensor) -> None:
    """Take these tokens [rows], a single lane each. chosen: their log-probabilities or, where
    nobody wants those, their logits, which tell as well whether there was anything to choose."""
    for state, token, logprob in zip(states, tokens.tolist(), chosen.tolist(), strict=True):
        if state.error is not None:
            continue
        if not math.isfinite(logprob):
            _fail_request(state, logprob)
            continue
        wanted = state.request.options.logprobs
        state.accept(token, logprob if wanted else None)


def shared_suppressed_ids(states: Sequence[RequestState]) -> list[Tensor] | None:
    """The ids that none of the rows may take; None where they differ in that."""
    shared = states[0].suppressed
    alike = all(
        len(state.suppressed) == len(shared)
        and all(a is b for a, b in zip(state.suppressed, shared, strict=True))
        for state in states
    )
    return shared if alike else None


def record_last_token_probs(states: Sequence[RequestState], logits: Tensor) -> None:
    """Note what is watched at the last prompt position, once; logits [lanes, vocab]."""
    sequence = 0
    for state in states:
        last = len(state.request.prompt) - 1
        if not state.generated and any(p == last for p, _ in state.request.token_probs):
            record_token_probs(state, [last], logits[sequence : sequence + 1])
        sequence += len(state.sequences)


def record_token_probs(state: RequestState, positions: Sequence[int], logits: Tensor) -> None:
    """Record the watched probabilities at these prompt positions; logits [positions, vocab]."""
    for position, probabilities in zip(positions, logits.softmax(-1), strict=True):
        for token_probs in state.request.token_probs:
            if token_probs[0] == position:
                state.token_probs[token_probs] = float(probabilities[token_probs[1]])


def _apply_filters(state: RequestState, sequence: SequenceState, logits: Tensor) -> None:
    try:
        for logit_filter in sequence.logit_filters:
            logit_filter(logits, sequence.generated)
    except Exception as error:  # a caller's own rule may do anything; its neighbours go on
        state.fail(EngineError(f"a logits rule failed: {error!r}"))


def _sample_token(logits: Tensor, options: GenerationOptions, state: RequestState) -> Tensor:
    assert state.generator is not None
    if not torch.isfinite(logits.max()):
        return logits.argmax(dim=-1, keepdim=True)  # reported by the caller, as for greedy rows
    return sample_from(_filtered_distribution(logits, options), state.generator)


def _filtered_distribution(logits: Tensor, options: GenerationOptions) -> Tensor:
    return token_distribution(
        logits, options.temperature, options.top_k, options.top_p, options.min_p
    )


def _fail_request(state: RequestState, best: float) -> None:
    """There is nothing to choose: the best logit is −∞ or no number at all."""
    at = len(state.generated)
    if best == -torch.inf:
        state.fail(
            EngineError(f"the rules leave no token to choose after {at} tokens; relax one of them")
        )
        return
    state.has_nan = True
    state.fail(
        NumericalError(
            f"the model computed NaN after {at} tokens: its numbers overflow in this compute type, "
            "or its weights or its source are damaged; try compute type float32, else get the "
            "model anew"
        )
    )
