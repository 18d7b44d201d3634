"""What a caller can choose about decoding; where transformers can too, with the same ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.utils import GenerationMixin

from edgeapp.batch.texts.line_formats import as_json
from pipelines.errors import OptionError
from pipelines.translation import TranslateOptions, Translator
from pipelines.translation.decode import SentenceRequest
from tests.engine.oracle import encoded, reference

TEXT = "I would like a cup of coffee, please."


def generate(translator: Translator, **settings: Any) -> Any:
    """transformers' `generate` for TEXT."""
    oracle = reference(translator.model.folder)
    defaults = translator._decoder.defaults
    (job,) = translator._preprocessor(TranslateOptions(), {}).requests(TEXT)
    assert isinstance(job, SentenceRequest)
    begun = settings.pop("begun", [])
    with torch.inference_mode():
        return GenerationMixin.generate(
            oracle,
            encoder_outputs=encoded(oracle, torch.tensor(job.source_ids)),
            decoder_input_ids=torch.tensor([[defaults.decoder_start_id, *begun]]),
            max_new_tokens=40,
            bad_words_ids=[[defaults.decoder_start_id], *settings.pop("bad", [])],
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **settings,
        )


def ids(row: Tensor) -> list[int]:
    """Without the start token and the padding, which is the same."""
    start, *rest = row.tolist()
    return [token for token in rest if token != start]


@pytest.mark.oracle
def test_n_best_equals_transformers(demo: Translator) -> None:
    theirs = generate(demo, num_beams=4, num_return_sequences=3)
    (sentence,) = demo.translate(TEXT, beam_size=4, n_best=3).sentences
    assert [list(a.tokens) for a in sentence.alternatives] == list(map(ids, theirs.sequences))
    scores = [a.score for a in sentence.alternatives]
    assert scores == pytest.approx(theirs.sequences_scores.tolist(), abs=1e-4)
    assert sentence.alternatives[0].text == sentence.text
    assert len({a.text for a in sentence.alternatives}) == 3


@pytest.mark.oracle
@pytest.mark.parametrize(
    "choices",
    [{"repetition_penalty": 1.5}, {"no_repeat_ngram_size": 1}, {"repetition_penalty": 0.6}],
    ids=str,
)
def test_penalties_equal_transformers(demo: Translator, choices: dict[str, Any]) -> None:
    theirs = generate(demo, num_beams=2, **choices)
    (sentence,) = demo.translate(TEXT, beam_size=2, **choices).sentences
    assert list(sentence.tokens) == ids(theirs.sequences[0])


@pytest.mark.oracle
def test_prefix_and_suppressed_phrases_equal_transformers(demo: Translator) -> None:
    begun = demo.tokenizer.encode_target("Eine Tasse")
    (found,) = demo.translate(TEXT, prefix="Eine Tasse").sentences
    assert found.text.startswith("Eine Tasse")
    assert list(found.tokens) == ids(generate(demo, begun=begun).sequences[0])
    plain = demo.translate(TEXT).text
    phrase = "Tasse"
    assert phrase in plain
    bad = [demo.tokenizer.encode_target(phrase)]
    (other,) = demo.translate(TEXT, suppress_phrases=(phrase,)).sentences
    assert list(other.tokens) == ids(generate(demo, bad=bad).sequences[0])
    assert phrase not in other.text


def test_a_prefix_and_a_forced_phrase_are_for_the_first_sentence(demo: Translator) -> None:
    text = "Where is the station? Where is the train?"
    found = demo.translate(text, prefix="Und wo", forced_phrases=("heute",))
    first, second = found.sentences
    assert first.text.startswith("Und wo")
    assert "heute" in first.text
    assert second.text == demo.translate(text).sentences[1].text
    beams = demo.translate(text, forced_phrases=("heute",), beam_size=3)
    assert "heute" in beams.sentences[0].text


def test_ones_own_filter(demo: Translator) -> None:
    banned = demo.tokenizer.encode_target("Bahnhof")

    class Own:
        def bind(
            self, prompt: Sequence[int], vocab_size: int, device: object
        ) -> Callable[[Tensor, Sequence[int]], None]:
            def edit(logits: Tensor, generated: Sequence[int]) -> None:
                logits[banned[0]] = -torch.inf

            return edit

    plain = demo.translate("Where is the station?").text
    assert "Bahnhof" in plain
    assert "Bahnhof" not in demo.translate("Where is the station?", logit_filters=(Own(),)).text


def test_alternatives_are_in_json_where_asked_for(demo: Translator) -> None:
    (sentence,) = json.loads(as_json(demo.translate("Yes.", beam_size=2, n_best=2)))["sentences"]
    texts = [each["text"] for each in sentence["alternatives"]]
    assert texts[0] == sentence["text"]
    assert sentence["alternatives"][0]["score"] >= sentence["alternatives"][1]["score"]
    (sentence,) = json.loads(as_json(demo.translate("Yes.")))["sentences"]
    assert "alternatives" not in sentence


def test_values_out_of_range_are_refused(demo: Translator) -> None:
    for wrong, said in (
        ({"n_best": 2}, "needs a beam_size of 2"),
        ({"n_best": 0}, "n_best must be 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must be 0"),
        ({"suppress_phrases": (" ",)}, "at least one character"),
        ({"forced_phrases": ("猫",)}, "not in the model's vocabulary"),
    ):
        with pytest.raises(OptionError, match=said):
            demo.translate(TEXT, **wrong)  # type: ignore[arg-type]
