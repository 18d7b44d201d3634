"""Logit filters, distributions and named processors equal those of transformers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pipelines.engine import (
    BadWords,
    LogitFilter,
    LogitsProcessor,
    MinNewTokens,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressAtBegin,
    SuppressTokens,
    apply_filters,
)
from pipelines.engine.decoding.sampling.distributions import token_distribution
from tests.engine.decoding.sampling.test_distributions import SETTINGS
from tests.engine.decoding.sampling.test_logit_filters import PROMPT, VOCAB, logits_for
from tests.engine.decoding.sampling.test_logits_processors import PROCESSORS

pytestmark = pytest.mark.oracle

TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=12)
TWINS = [
    (SuppressTokens((1, 5, 9)), SuppressTokensLogitsProcessor([1, 5, 9])),
    (SuppressAtBegin((2, 4)), SuppressTokensAtBeginLogitsProcessor([2, 4], len(PROMPT))),
    (NoRepeatNgram(2), NoRepeatNGramLogitsProcessor(2)),
    (NoRepeatNgram(3), NoRepeatNGramLogitsProcessor(3)),
    (RepetitionPenalty(1.3), RepetitionPenaltyLogitsProcessor(1.3)),
    (RepetitionPenalty(0.7), RepetitionPenaltyLogitsProcessor(0.7)),
    (MinNewTokens(5, (0,)), MinNewTokensLengthLogitsProcessor(len(PROMPT), 5, 0)),
    (BadWords(((8,), (3, 4), (1, 2, 3))), NoBadWordsLogitsProcessor([[8], [3, 4], [1, 2, 3]], 0)),
]


@pytest.mark.parametrize(("rule", "twin"), TWINS, ids=lambda x: type(x).__name__)
@given(generated=TOKENS, seed=st.integers(0, 1000))
@settings(max_examples=60)
def test_filter_equals_its_transformers_counterpart(
    rule: LogitFilter, twin: object, generated: list[int], seed: int
) -> None:
    logits = logits_for(seed)
    ids = torch.tensor([[*PROMPT, *generated]])
    theirs = twin(ids, logits[None].clone())[0]  # type: ignore[operator]
    torch.testing.assert_close(apply_filters([rule], logits, PROMPT, generated), theirs)


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), [*SETTINGS, (1.0, 50, 0.01)])
def test_distribution_equals_transformers(temperature: float, top_k: int, top_p: float) -> None:
    for seed in range(20):
        logits = torch.randn(12, generator=torch.Generator().manual_seed(seed)) * 2
        before = logits.clone()
        theirs = (logits / temperature)[None]
        if top_k:
            theirs = TopKLogitsWarper(min(top_k, 12))(None, theirs)
        if top_p < 1:
            theirs = TopPLogitsWarper(top_p)(None, theirs)
        ours = token_distribution(logits, temperature, top_k, top_p)
        torch.testing.assert_close(ours, theirs.softmax(-1)[0])
        torch.testing.assert_close(logits, before)


def top_a(logits: torch.Tensor, ratio: float, power: float) -> torch.Tensor:
    """x-transformers' top_a."""
    probs = logits.softmax(-1)
    limit = probs.amax(-1, keepdim=True) ** power * ratio
    return logits.masked_fill(probs < limit, -torch.inf)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_probabilities_equal_those_of_others(processor: LogitsProcessor) -> None:
    logits = torch.randn(4, 3, 12, generator=torch.Generator().manual_seed(0)) * 2
    before = logits.clone()
    theirs = logits.reshape(12, 12) / processor.temperature
    options = processor.options(1)
    if options.top_k:
        theirs = TopKLogitsWarper(options.top_k)(None, theirs)
    if options.top_p < 1:
        theirs = TopPLogitsWarper(options.top_p)(None, theirs)
    if options.min_p:
        theirs = MinPLogitsWarper(options.min_p)(None, theirs)
    if options.top_a:
        theirs = top_a(theirs, options.top_a, options.top_a_pow)
    torch.testing.assert_close(processor(logits), theirs.softmax(-1).view(4, 3, 12))
    assert torch.equal(logits, before), "the logits are left as they are"
