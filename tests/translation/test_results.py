"""Results as values: they pickle, and print without their bulk."""

from __future__ import annotations

import pickle

import pytest

from pipelines.translation import (
    Alignment,
    SentenceDone,
    SentenceTranslation,
    Translation,
    TranslationDelta,
    TranslationDone,
    Translator,
)
from pipelines.translation.live import LiveTranslation

ALIGNMENT = Alignment(((0, 5),), ((0, 5),), ((0, 0),))
SENTENCE = SentenceTranslation("Hello", "Hallo", (5, 7, 0), -0.25, alignment=ALIGNMENT)
TRANSLATION = Translation("Hello", "Hallo", (SENTENCE,), ('"Hello": odd',), ALIGNMENT)


@pytest.mark.parametrize(
    "result",
    [
        ALIGNMENT,
        SENTENCE,
        TRANSLATION,
        TranslationDelta("Ha"),
        SentenceDone("Hello", "Hallo"),
        TranslationDone(TRANSLATION),
        LiveTranslation("Hello", "Hallo"),
    ],
    ids=lambda result: type(result).__name__,
)
def test_results_pickle(result: object) -> None:
    assert pickle.loads(pickle.dumps(result)) == result


def test_translations_of_a_model_pickle(demo: Translator) -> None:
    done = demo.translate("Good morning. I am tired.", word_alignments=True)
    assert pickle.loads(pickle.dumps(done)) == done


def test_repr_shows_texts_and_warnings() -> None:
    assert repr(TRANSLATION) == (
        "Translation(source='Hello', text='Hallo', warnings=('\"Hello\": odd',))"
    )
    assert repr(SENTENCE) == (
        "SentenceTranslation(source='Hello', text='Hallo', avg_logprob=-0.25, copied=False, "
        "truncated=False, warnings=())"
    )
    assert repr(TranslationDelta("Ha")) == "TranslationDelta(text='Ha')"
