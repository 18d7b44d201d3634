"""Verification of drafted tokens: the output of the model alone, in fewer passes.

Greedily, a drafted token is accepted when it is the argmax. Sampling keeps the distribution p of
the model (Leviathan et al. 2023): a token drawn from the drafter's distribution q is accepted with
probability min(1, p / q), else another is drawn from max(0, p − q), normalized. Tokens that were
not sampled by the drafter are accepted when the model draws the same, which is that rule for a
one-hot q; so are all drafted tokens of a request whose own processor draws in its own way, which
need not follow q.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pipelines.engine.backends.base import Backend
from pipelines.engine.decoding.model_runner import (
    ModelRunner,
    make_attention_capture,
    record_attention,
)
from pipelines.engine.decoding.request import Proposal
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.sampler import (
    apply_suppression,
    next_token_distribution,
    record_last_token_probs,
    select_tokens,
)
from pipelines.engine.decoding.sampling.distributions import sample_from
from pipelines.engine.state.forward_batch import AttentionCapture

# Bytes of logits that are in memory at once. A step of 64 requests with drafts of 3 tokens is one
# call of the LM head; long drafts of many requests would need gigabytes.
_MOST_BYTES = 64 << 20


def verify_proposals(
    runner: ModelRunner, states: Sequence[RequestState], proposals: Sequence[Proposal]
) -> list[int]:
    """Run one step of all running requests with drafted tokens, in one pass; return how many of
    each request's drafted tokens were accepted.

    Shorter proposals are padded; the padding is cut from the cache afterwards. If padding would
    exceed the last position, the pass starts some tokens earlier instead and reads these again.
    """
    before = [state.accepted for state in states]
    num_tokens = 1 + max(len(proposal.tokens) for proposal in proposals)
    latest = runner.backend.architecture.max_target_positions - num_tokens
    ids: list[list[int]] = []
    last: list[int] = []  # for each sequence, the index of its last token in the pass
    for state, proposal in zip(states, proposals, strict=True):
        for sequence in state.sequences:
            tokens = state.all_token_ids(sequence)
            start = min(len(tokens) - 1, latest)
            last.append(len(tokens) - 1 - start)
            runner.cache.truncate(len(ids), start)
            ids.append((tokens[start:] + proposal.tokens + [0] * num_tokens)[:num_tokens])
    capture = make_attention_capture(states, num_tokens)
    hidden_states = runner.decode(states, ids, capture=capture)
    runner.cache.advance(slice(0, len(ids)), num_tokens)
    _choose(runner, states, proposals, hidden_states, last, 0, capture)
    return [state.accepted - own for state, own in zip(states, before, strict=True)]


def prefill_and_verify(
    runner: ModelRunner, states: Sequence[RequestState], first_source_slot: int, first_slot: int
) -> None:
    """Read equally long prompts with equally long drafts, and keep the accepted tokens.

    The token after the last accepted one is chosen too, as its logits are computed already.
    """
    proposals = [Proposal(state.pop_draft()) for state in states]
    prompts = [state.all_token_ids(state.sequences[0]) for state in states]
    ids = [prompt + proposal.tokens for prompt, proposal in zip(prompts, proposals, strict=True)]
    capture = make_attention_capture(states, len(ids[0]))
    hidden_states = runner.decode(states, ids, first_source_slot, first_slot, capture)
    runner.cache.advance(slice(first_slot, first_slot + len(ids)), len(ids[0]))
    for state, prompt, own in zip(states, prompts, hidden_states, strict=True):
        runner.record_prompt_probs(state, own[: len(prompt)])
    last = [len(prompt) - 1 for prompt in prompts]
    _choose(runner, states, proposals, hidden_states, last, first_slot, capture)


def _choose(
    runner: ModelRunner,
    states: Sequence[RequestState],
    proposals: Sequence[Proposal],
    hidden_states: Tensor,
    last: Sequence[int],
    first_slot: int,
    capture: AttentionCapture | None,
) -> None:
    """Append the accepted tokens and the one after them; cut the rest of the pass from the cache.

    Args:
        hidden_states: [sequences, tokens of the pass, d_model].
        last: The index in the pass of each sequence's last token; drafted tokens follow it.
        first_slot: Slot of the first sequence in the decoder cache.
    """
    drafted: list[tuple[RequestState, Proposal, int]] = []
    undrafted: list[RequestState] = []
    undrafted_rows: list[int] = []
    row = 0
    for state, proposal in zip(states, proposals, strict=True):
        if proposal.tokens:
            drafted.append((state, proposal, row))
        else:
            undrafted.append(state)
            undrafted_rows += range(row, row + len(state.sequences))
        row += len(state.sequences)
    wanted = [
        hidden_states[row, last[row] : last[row] + len(proposal.tokens) + 1]
        for _, proposal, row in drafted
    ]
    if undrafted:
        wanted.append(hidden_states[undrafted_rows, [last[row] for row in undrafted_rows]])
    logits = _logits_of(runner.backend, wanted)
    for state, proposal, row in drafted:
        sequence = state.sequences[0]
        length, generated = len(state.all_token_ids(sequence)), len(sequence.generated)
        own = next(logits)
        record_last_token_probs([state], own)
        _verify(state, proposal, own)
        new_tokens = len(sequence.generated) - generated
        runner.cache.truncate(first_slot + row, length + new_tokens - 1)
        if capture is not None and state.request.attention:
            # An interrupted step may have left weights behind.
            del sequence.attention[generated:]
            weights = capture.weights[row][:, last[row] : last[row] + new_tokens]
            sequence.attention.extend(weights.unbind(1))
    if undrafted:
        own = next(logits)
        record_last_token_probs(undrafted, own)
        apply_suppression(undrafted, own)
        for row in undrafted_rows:
            slot, padding = first_slot + row, hidden_states.shape[1] - last[row] - 1
            runner.cache.truncate(slot, runner.cache.lengths[slot] - padding)
        if capture is not None:
            record_attention(
                undrafted, [capture.weights[row][:, last[row] :] for row in undrafted_rows]
            )
        select_tokens(undrafted, own)


def _logits_of(backend: Backend, wanted: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the logits of each tensor of hidden states [n, d_model], computed for many at once."""
    start, most = 0, _MOST_BYTES // (4 * backend.architecture.vocab_size)
    while start < len(wanted):
        stop, rows = start + 1, len(wanted[start])
        while stop < len(wanted) and rows + len(wanted[stop]) <= most:
            rows += len(wanted[stop])
            stop += 1
        group = wanted[start:stop]
        logits = backend.logits(torch.cat(list(group)))
        yield from torch.split(logits, [len(each) for each in group])
        start = stop


def _verify(state: RequestState, proposal: Proposal, logits: Tensor) -> None:
    """Append the accepted tokens of a proposal, and the token that follows them.

    logits: [drafted tokens + 1, vocab], after the last token of the sequence and after each drafted
    one; changed in place.
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
        try:
            state.draft_session.on_verified(len(proposal.tokens), accepted)
        except Exception as error:  # of the drafter itself: it fails its own request
            state.fail_drafting(error)


def _accept_or_resample(
    state: RequestState, drafted: int, draft_probs: Tensor, logits: Tensor
) -> None:
    """Append a token that was drafted by sampling from draft_probs [vocab], or the token drawn in
    its place; logits [vocab] have had suppression, but no other filters."""
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
