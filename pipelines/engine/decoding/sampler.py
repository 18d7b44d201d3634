"""Choosing tokens: the rules of each row, greedy or sampled, and what to report of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.engine.decoding.request import GenerationOptions
from pipelines.engine.decoding.request_state import Row
from pipelines.engine.decoding.sampling.distributions import distribution, draw
from pipelines.engine.decoding.sampling.sequence_state import Lane
from pipelines.engine.model.lm_head import likeliest, logprobs_of
from pipelines.errors import EngineError, NumericalError

__all__ = [
    "chances_of",
    "choose",
    "go_on",
    "note_watched",
    "ruled_out",
    "suppress",
    "watch_last",
]


def suppress(rows: Sequence[Row], logits: Tensor) -> None:
    """Rule out suppressed ids, in one operation where all rows share them; logits [lanes, vocab]
    of the rows' lanes, one row's after the other's."""
    shared = ruled_out(rows)
    if shared is not None and not any(row.search for row in rows):
        for index in shared:
            logits.index_fill_(1, index, -torch.inf)
        return
    for row, own in zip(rows, _per_row(rows, logits), strict=True):
        if row.search is not None and row.search.scores_first:
            own.copy_(own.log_softmax(-1))
        for index in row.suppressed:
            own.index_fill_(1, index, -torch.inf)


def choose(rows: Sequence[Row], logits: Tensor) -> None:
    """Apply each lane's other rules to its logits [lanes, vocab], and go on by a token."""
    if not any(row.search for row in rows):
        _choose_one(rows, logits)
        return
    single: list[Row] = []
    parts: list[Tensor] = []
    for row, own in zip(rows, _per_row(rows, logits), strict=True):
        if row.search is None:
            single.append(row)
            parts.append(own)
        else:
            _branch(row, own)
    if single:
        _choose_one(single, torch.cat(parts))


def _per_row(rows: Sequence[Row], logits: Tensor) -> tuple[Tensor, ...]:
    return torch.split(logits, [len(row.lanes) for row in rows])


def _branch(row: Row, logits: Tensor) -> None:
    """Let a row's search go on; logits [its lanes, vocab]."""
    assert row.search is not None
    for lane, own in zip(row.lanes, logits, strict=True):
        _obey(row, lane, own)
    if row.error is not None:
        return
    each = logits.amax(-1)
    best = float(each.min() if row.search.each_goes_on else each.max())
    if math.isfinite(best):
        row.branch(row.search.advance(row.lanes, logits))
    else:
        _give_up(row, best)


def chances_of(row: Row, logits: Tensor) -> Tensor | None:
    """What a sampled row with a single lane draws its next token from, [vocab]; None when that is
    impossible, and the row has failed. Applies the row's rules to the logits."""
    _obey(row, row.lanes[0], logits)
    best = float(logits.max())
    if row.error is None and not math.isfinite(best):
        _give_up(row, best)
    return None if row.error is not None else _chances(logits, row.request.options)


def _choose_one(rows: Sequence[Row], logits: Tensor) -> None:
    """The next token of rows with a single lane; logits [rows, vocab]."""
    for index, row in enumerate(rows):
        _obey(row, row.lanes[0], logits[index])
    tokens, chosen = likeliest(logits)
    for index, row in enumerate(rows):
        if row.generator is not None:
            token = _sample(logits[index], row.request.options, row)
            tokens[index], chosen[index] = token, logits[index, token]
    if any(row.request.options.logprobs for row in rows):
        chosen = logprobs_of(chosen, logits)
    go_on(rows, tokens, chosen)


def go_on(rows: Sequence[Row], tokens: Tensor, chosen: Tensor) -> None:
    """Take these tokens [rows], a single lane each. chosen: their log-probabilities or, where
    nobody wants those, their logits, which tell as well whether there was anything to choose."""
    for row, token, logprob in zip(rows, tokens.tolist(), chosen.tolist(), strict=True):
        if row.error is not None:
            continue
        if not math.isfinite(logprob):
            _give_up(row, logprob)
            continue
        wanted = row.request.options.logprobs
        row.accept(token, logprob if wanted else None)


def ruled_out(rows: Sequence[Row]) -> list[Tensor] | None:
    """The ids that none of the rows may take; None where they differ in that."""
    shared = rows[0].suppressed
    alike = all(
        len(row.suppressed) == len(shared)
        and all(a is b for a, b in zip(row.suppressed, shared, strict=True))
        for row in rows
    )
    return shared if alike else None


def watch_last(rows: Sequence[Row], logits: Tensor) -> None:
    """Note what is watched at the last prompt position, once; logits [lanes, vocab]."""
    lane = 0
    for row in rows:
        last = len(row.request.prompt) - 1
        if not row.generated and any(p == last for p, _ in row.request.watch):
            note_watched(row, [last], logits[lane : lane + 1])
        lane += len(row.lanes)


def note_watched(row: Row, positions: Sequence[int], logits: Tensor) -> None:
    """Record the watched probabilities at these prompt positions; logits [positions, vocab]."""
    for position, probabilities in zip(positions, logits.softmax(-1), strict=True):
        for watched in row.request.watch:
            if watched[0] == position:
                row.watched[watched] = float(probabilities[watched[1]])


def _obey(row: Row, lane: Lane, logits: Tensor) -> None:
    try:
        for rule in lane.rules:
            rule(logits, lane.generated)
    except Exception as error:  # a caller's own rule may do anything; its neighbours go on
        row.fail(EngineError(f"a logits rule failed: {error!r}"))


def _sample(logits: Tensor, options: GenerationOptions, row: Row) -> Tensor:
    assert row.generator is not None
    if not torch.isfinite(logits.max()):
        return logits.argmax(dim=-1, keepdim=True)  # reported by the caller, as for greedy rows
    return draw(_chances(logits, options), row.generator)


def _chances(logits: Tensor, options: GenerationOptions) -> Tensor:
    return distribution(logits, options.temperature, options.top_k, options.top_p, options.min_p)


def _give_up(row: Row, best: float) -> None:
    """There is nothing to choose: the best logit is −∞ or no number at all."""
    at = len(row.generated)
    if best == -torch.inf:
        row.fail(
            EngineError(f"the rules leave no token to choose after {at} tokens; relax one of them")
        )
        return
    row.damaged = True
    row.fail(
        NumericalError(
            f"the model computed NaN after {at} tokens: its numbers overflow in this compute type, "
            "or its weights or its source are damaged; try compute type float32, else get the "
            "model anew"
        )
    )
