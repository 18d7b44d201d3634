"""Verification of drafted tokens: the output of the model alone, in fewer passes.

Greedily, a drafted token is accepted when it is the argmax. Sampling keeps the distribution p of
the model (Leviathan et al. 2023): a token drawn from the drafter's distribution q is accepted with
probability min(1, p / q), else another is drawn from max(0, p − q), normalized. Tokens that were
not sampled by the drafter are accepted when the model draws the same, which is that rule for a
one-hot q; so are all drafted tokens of a request whose own processor draws in its own way, which
need not follow q.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipelines.engine.decoding.request import Proposal
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.sampler import (
    apply_suppression,
    next_token_distribution,
    select_tokens,
)
from pipelines.engine.decoding.sampling.distributions import sample_from


def verify_draft(state: RequestState, proposal: Proposal, logits: Tensor) -> int:
    """Append the accepted tokens of a proposal, and the token that follows them.

    Args:
        state: A request with a single sequence.
        proposal: Drafted tokens.
        logits: [drafted tokens + 1, vocab], after the last token of the sequence and after each
            drafted one; changed in place.

    Returns:
        How many drafted tokens were accepted.
    """
    sequence, accepted = state.sequences[0], 0
    own = state.request.options.processor
    draft_probs = None if own is not None and own.overrides_sample else proposal.probs
    apply_suppression([state] * len(logits), logits)
    for index, token in enumerate(proposal.tokens):
        if draft_probs is None:
            select_tokens([state], logits[index : index + 1])
        else:
            _accept_or_resample(state, token, draft_probs[index], logits[index])
        accepted += state.error is None and state.last_token(sequence) == token
        if state.done or state.last_token(sequence) != token:
            break
    else:
        select_tokens([state], logits[-1:])
    state.accepted += accepted
    state.drafted += len(proposal.tokens)
    if state.draft_session is not None:
        state.draft_session.on_verified(len(proposal.tokens), accepted)
    return accepted


def _accept_or_resample(
    state: RequestState, drafted: int, draft_probs: Tensor, logits: Tensor
) -> None:
    """Append a sampled draft token, or the token drawn in its place.

    Args:
        state: A sampling request.
        drafted: The drafted token.
        draft_probs: q [vocab], what it was drawn from.
        logits: [vocab] of the model, with suppression but no other filters applied.
    """
    target_probs = next_token_distribution(state, logits)
    if target_probs is None:
        return
    assert state.generator is not None, "tokens are drafted by sampling for sampling requests only"
    draft_probs = draft_probs.to(target_probs.device)
    uniform = torch.rand((), generator=state.generator, device=target_probs.device)
    token = drafted
    if uniform * draft_probs[drafted] >= target_probs[drafted]:
        rest = (target_probs - draft_probs).clamp_min_(0.0)
        # Where p equals q up to rounding, the rest may sum to 0.
        token = int(sample_from(rest if rest.sum() > 0 else target_probs, state.generator))
    logprobs = state.request.options.logprobs
    state.append_token(token, float(logits.log_softmax(-1)[token]) if logprobs else None)
