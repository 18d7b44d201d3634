"""Logit filters: bound once, in a row, refused; test_equals_transformers.py has their values."""

from __future__ import annotations

import pytest
import torch

from pipelines.engine import (
    AllowOnlyTokens,
    BadWords,
    ForcedPrefix,
    LogitFilter,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressAtBegin,
    SuppressTokens,
    apply_filters,
)
from pipelines.errors import OptionError, RequestError

VOCAB = 30
PROMPT = (7, 3)


def logits_for(seed: int) -> torch.Tensor:
    return torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("rule", [NoRepeatNgram(2), RepetitionPenalty(1.3), BadWords(((3, 4),))])
def test_a_filter_bound_once_equals_one_bound_at_each_step(rule: LogitFilter) -> None:
    bound = rule.bind(PROMPT, VOCAB, torch.device("cpu"))
    generated: list[int] = []
    for seed in range(20):
        logits = logits_for(seed)
        anew = apply_filters([rule], logits, PROMPT, generated)
        bound(logits, generated)
        torch.testing.assert_close(logits, anew)
        generated.append(int(logits.argmax()) % 6)


def test_forced_prefix_overrides_earlier_filters() -> None:
    logit_filters = [SuppressTokens((4,)), ForcedPrefix((4, 6))]
    assert int(apply_filters(logit_filters, logits_for(0), PROMPT, []).argmax()) == 4
    assert int(apply_filters(logit_filters, logits_for(0), PROMPT, [4]).argmax()) == 6
    free = apply_filters(logit_filters, logits_for(0), PROMPT, [4, 6])
    assert torch.isfinite(free).sum() == VOCAB - 1


def test_allow_only_tokens_rules_out_all_others() -> None:
    left = apply_filters([AllowOnlyTokens((3, 8))], logits_for(0), PROMPT, [])
    assert torch.isfinite(left).nonzero().flatten().tolist() == [3, 8]


def test_filters_do_not_change_the_callers_logits() -> None:
    logits = logits_for(0)
    before = logits.clone()
    apply_filters([SuppressTokens((1,)), RepetitionPenalty(2.0)], logits, PROMPT, [5])
    torch.testing.assert_close(logits, before)


@pytest.mark.parametrize(
    "rule", [SuppressTokens((VOCAB,)), SuppressAtBegin((-1,)), BadWords(((99,),))]
)
def test_ids_outside_the_vocabulary_are_refused(rule: LogitFilter) -> None:
    with pytest.raises(RequestError, match="outside the vocabulary"):
        rule.bind(PROMPT, VOCAB, torch.device("cpu"))


def test_impossible_filters_are_refused() -> None:
    with pytest.raises(OptionError):
        NoRepeatNgram(0)
    with pytest.raises(OptionError):
        RepetitionPenalty(0.0)
    with pytest.raises(OptionError):
        BadWords(((),))
