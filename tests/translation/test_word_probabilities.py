"""How certain the model is of each word of a translation."""

from __future__ import annotations

import math

from pipelines.translation import Translator
from pipelines.translation.alignment import word_probabilities
from pipelines.translation.live import LiveTranslator
from pipelines.translation.results import SentenceTranslation, Translation

PIECES = {1: "Gu", 2: "ten ", 3: "Tag", 4: ". ", 5: "Ja", 6: ".", 0: ""}


def test_a_word_has_the_mean_probability_of_its_tokens() -> None:
    one = SentenceTranslation(
        "Hello.",
        "Guten Tag.",
        (1, 2, 3, 4, 0),
        logprobs=tuple(map(math.log, (0.4, 0.8, 1, 0.5, 1))),
    )
    copied = SentenceTranslation("42", "42", copied=True)
    last = SentenceTranslation("Yes.", "Ja.", (5, 6, 0), logprobs=(math.log(0.2), 0.0, 0.0))
    text = Translation("Hello. 42 Yes.", "Guten Tag. 42 Ja.", (one, copied, last))
    words = word_probabilities(text, lambda ids: "".join(PIECES[i] for i in ids).strip())
    assert [(text.text[slice(*span)], round(probability, 2)) for span, probability in words] == [
        ("Guten", 0.6), ("Tag.", 0.75), ("Ja.", 0.6),
    ]  # fmt: skip


def test_a_model_doubts_a_word_that_it_does_not_know(demo: Translator) -> None:
    text = "Good morning. The floccinaucinihilipilification is at home."
    done = demo.translate(text)
    words = dict(demo.word_probabilities(done))
    certain = {done.text[slice(*span)]: probability for span, probability in words.items()}
    assert set(done.text.split()) == set(certain)
    assert certain["Guten"] > 0.5 > min(certain.values()) >= 0
    live = LiveTranslator(demo)
    sentence = live.final("  Good morning.")
    assert [sentence.text[slice(*span)] for span, _ in sentence.words] == sentence.text.split()
