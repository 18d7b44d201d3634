"""Verifying drafts: what the model would have chosen anyway, in fewer passes.

Greedily a guess is kept when it is the likeliest token. Sampled tokens keep the distribution of
the model (Leviathan et al. 2023): a guess drawn from q is kept with probability min(1, p / q),
else another is drawn from what p has more than q. Guesses that were not drawn by chance are kept
when the model draws the same, which is that rule for a q that is sure of itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.engine.decoding.choosing import chances_of, choose, suppress
from pipelines.engine.decoding.drafting import Drafting, Proposal
from pipelines.engine.decoding.row import Row
from pipelines.engine.decoding.sampling import draw
from pipelines.errors import EngineError

__all__ = ["propose", "verify"]


def propose(rows: Sequence[Row], room: int) -> list[Proposal] | None:
    """What the rows' drafters guess, at most `room` tokens each; None where nobody guesses."""
    if room < 1 or not any(row.drafting is not None for row in rows):
        return None
    found = []
    for row in rows:
        # The last token is never guessed: it is chosen in the same pass anyway.
        most = min(room, row.left - 1)
        if row.drafting is None or most < 1:
            found.append(Proposal([]))
        else:
            found.append(_guess(row, row.drafting, most))
    return found if any(proposal.tokens for proposal in found) else None


def _guess(row: Row, drafting: Drafting, most: int) -> Proposal:
    try:
        guess = drafting.propose(row.sequence(row.lanes[0]), most)
    except Exception as error:  # a caller's own drafter may do anything; its neighbours go on
        row.fail(EngineError(f"a drafter failed: {error!r}"))
        return Proposal([])
    # Of a store that others feed, too: nothing that this model has no embedding for.
    fit = next((i for i, t in enumerate(guess.tokens) if not 0 <= t < row.vocab_size), most)
    return Proposal(guess.tokens[: min(fit, most)], guess.chances)


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
