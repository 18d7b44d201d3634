"""Verifying drafts: what the model would have chosen anyway, in fewer passes.

Greedily a guess is kept when it is the likeliest token. Sampled tokens keep the distribution of
the model (Leviathan et al. 2023): a guess drawn from q is kept with probability min(1, p / q),
else another is drawn from what p has more than q. Guesses that were not drawn by chance are kept
when the model draws the same, which is that rule for a q that is sure of itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipelines.engine.decoding.request_state import Row
from pipelines.engine.decoding.sampler import chances_of, choose, suppress
from pipelines.engine.decoding.sampling.distributions import draw
from pipelines.engine.decoding.speculative.drafters import Proposal

__all__ = ["verify"]


def verify(row: Row, proposal: Proposal, logits: Tensor) -> int:
    """Let a row take what holds of a draft, and the token after it.

    logits [tokens + 1, vocab]: after the row's last token and after each guess. Returns how many
    guesses were kept.
    """
    lane, kept = row.lanes[0], 0
    suppress([row] * len(logits), logits)
    for index, guess in enumerate(proposal.tokens):
        if proposal.chances is None:
            choose([row], logits[index : index + 1])
        else:
            _accept_or_redraw(row, guess, proposal.chances[index], logits[index])
        kept += row.error is None and row.last(lane) == guess
        if row.done or row.last(lane) != guess:
            break
    else:
        choose([row], logits[-1:])
    row.accepted += kept
    row.drafted += len(proposal.tokens)
    if row.drafting is not None:
        row.drafting.judged(len(proposal.tokens), kept)
    return kept


def _accept_or_redraw(row: Row, guess: int, drawn_from: Tensor, logits: Tensor) -> None:
    """logits [vocab] before the rules other than suppression."""
    target = chances_of(row, logits)
    if target is None:
        return
    assert row.generator is not None, "guesses are drawn for sampled rows only"
    drawn_from = drawn_from.to(target.device)
    luck = torch.rand((), generator=row.generator, device=target.device)
    token = guess
    if luck * drawn_from[guess] >= target[guess]:
        rest = (target - drawn_from).clamp_min_(0.0)
        # No more than rounding is left where both agree.
        token = int(draw(rest if rest.sum() > 0 else target, row.generator))
    wanted = row.request.options.logprobs
    row.accept(token, float(logits.log_softmax(-1)[token]) if wanted else None)
