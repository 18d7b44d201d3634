"""Forced phrases occur in the output, where the model nearly says them or else before its end."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipelines.engine import (
    Engine,
    FinishReason,
    ForcedPhrases,
    GenerationOptions,
    LoadedModel,
    Request,
    SuppressTokens,
    apply_filters,
)
from pipelines.errors import OptionError, RequestError
from tests.engine.conftest import token_sources

EOS = 9


def logits(**best: float) -> torch.Tensor:
    """Ten logits, −20 but for those named t0 to t9."""
    values = torch.full((10,), -20.0)
    for name, value in best.items():
        values[int(name[1:])] = value
    return values


def chosen(phrases: tuple[tuple[int, ...], ...], values: torch.Tensor, *generated: int) -> int:
    return int(apply_filters([ForcedPhrases(phrases, (EOS,))], values, (0,), generated).argmax())


def test_a_phrase_begins_where_it_is_nearly_chosen() -> None:
    assert chosen(((3, 4),), logits(t5=5.0, t3=4.0)) == 3
    assert chosen(((3, 4),), logits(t5=5.0, t3=1.0)) == 5, "a fiftieth of the best is too little"


def test_a_begun_phrase_is_completed_and_then_left_alone() -> None:
    assert chosen(((3, 4, 6),), logits(t5=5.0), 1, 3) == 4
    assert chosen(((3, 4, 6),), logits(t5=5.0), 1, 3, 4) == 6
    assert chosen(((3, 4, 6),), logits(t5=5.0, t3=4.9), 1, 3, 4, 6) == 5


def test_the_output_does_not_end_before() -> None:
    assert chosen(((3, 4),), logits(t9=5.0, t1=4.0), 1) == 3
    assert chosen(((3, 4), (7,)), logits(t9=5.0, t1=4.0), 3, 4) == 7
    assert chosen(((3, 4), (7,)), logits(t9=5.0, t1=4.0), 3, 4, 7) == EOS


def test_a_phrase_waits_until_it_may_begin_and_is_given_up_if_it_never_may() -> None:
    bound = ForcedPhrases(((3,),), (EOS,)).bind((0,), 10, torch.device("cpu"))
    forbidden = logits(t9=5.0, t1=4.0)
    forbidden[3] = -torch.inf
    ends = []
    for _ in range(5):
        values = forbidden.clone()
        bound(values, (1,))
        ends.append(int(values.argmax()))
    assert ends == [1, 1, 1, 1, EOS]
    bound = ForcedPhrases(((3,),), (EOS,)).bind((0,), 10, torch.device("cpu"))
    bound(forbidden.clone(), (1,))
    allowed = logits(t5=5.0)
    bound(allowed, (1, 1))
    assert int(allowed.argmax()) == 3, "overdue"


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_phrases_occur_in_every_hypothesis(
    engine: Engine, marian: LoadedModel, beam_size: int
) -> None:
    encoded = marian.encode(token_sources(marian, [7]))[0]
    options = GenerationOptions(max_new_tokens=30, beam_size=beam_size, n_best=beam_size)
    request = Request(encoded, (marian.architecture.start_id,), options)
    plain = engine.generate([request])[0].tokens
    eos = plain[10]
    filters = (SuppressTokens((5,)), ForcedPhrases(((21, 22, 23), (31,)), (eos,)))
    options = replace(options, logit_filters=filters, eos_ids=(eos,))
    result = engine.generate([replace(request, options=options)])[0]
    found = [h.tokens for h in result.hypotheses] or [result.tokens]
    assert len(found) == beam_size
    for tokens in found:
        text = " ".join(map(str, tokens))
        assert "21 22 23" in text
        assert 31 in tokens
    assert result.reason in (FinishReason.EOS, FinishReason.LENGTH)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError, match="at least 1 token"):
        ForcedPhrases(((),), (EOS,))
    with pytest.raises(OptionError, match="share"):
        ForcedPhrases(((1,),), (EOS,), share=0)
    with pytest.raises(RequestError, match="outside the vocabulary"):
        chosen(((30,),), logits(t1=1.0))
