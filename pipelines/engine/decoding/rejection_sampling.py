"""Verifying drafts: what the model would have chosen anyway, in fewer passes.

Greedily a guess is kept when it is the likeliest token. Sampled tokens keep the distribution of
the model (Leviathan et al. 2023): a guess drawn from q is kept with probability min(1, p / q),
else another is drawn from what p has more than q. Guesses that were not drawn by chance are kept
when the model draws the same, which is that rule for a q that is sure of itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.sampler import (
    apply_suppression,
    next_token_distribution,
    select_tokens,
)
from pipelines.engine.decoding.sampling.distributions import sample_from
from pipelines.engine.decoding.speculative.drafters import Proposal

__all__ = ["verify_draft"]


def verify_draft(state: RequestState, proposal: Proposal, logits: Tensor) -> int:
    """Let a row take what holds of a draft, and the token after it.

    logits [tokens + 1, vocab]: after the row's last token and after each guess. Returns how many
    guesses were kept.
    """
    sequence, kept = state.sequences[0], 0
    apply_suppression([state] * len(logits), logits)
    for index, guess in enumerate(proposal.tokens):
        if proposal.probs is None:
            select_tokens([state], logits[index : index + 1])
        else:
            _accept_or_resample(state, guess, proposal.probs[index], logits[index])
        kept += state.error is None and state.last(sequence) == guess
        if state.done or state.last(sequence) != guess:
            break
    else:
        select_tokens([state], logits[-1:])
    state.accepted += kept
    state.drafted += len(proposal.tokens)
    if state.drafting is not None:
        state.drafting.on_verified(len(proposal.tokens), kept)
    return kept


def _accept_or_resample(
    state: RequestState, guess: int, drawn_from: Tensor, logits: Tensor
) -> None:
    """logits [vocab] before the rules other than suppression."""
    target = next_token_distribution(state, logits)
    if target is None:
        return
    assert state.generator is not None, "guesses are drawn for sampled rows only"
    drawn_from = drawn_from.to(target.device)
    luck = torch.rand((), generator=state.generator, device=target.device)
    token = guess
    if luck * drawn_from[guess] >= target[guess]:
        rest = (target - drawn_from).clamp_min_(0.0)
        # No more than rounding is left where both agree.
        token = int(sample_from(rest if rest.sum() > 0 else target, state.generator))
    wanted = state.request.options.logprobs
    state.accept(token, float(logits.log_softmax(-1)[token]) if wanted else None)
