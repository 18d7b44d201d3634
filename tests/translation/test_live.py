"""Live translation: complete sentences are final, the incomplete one has a stable beginning."""

from __future__ import annotations

import pytest

from pipelines.translation import Translator
from pipelines.translation.live import LiveTranslator

TALK = " I want to tell you about our new house. It is not big, but I like it."


@pytest.fixture(scope="module")
def translator(demo: Translator) -> Translator:
    return demo


def pieces(text: str) -> list[str]:
    return [f" {word}" for word in text.split()]


def test_sentences_are_complete_when_they_end(translator: Translator) -> None:
    live = LiveTranslator(translator)
    done = [live.add(piece) for piece in pieces(TALK + " And")]
    assert [s for sentences in done for s in sentences] == [
        "I want to tell you about our new house.",
        "It is not big, but I like it.",
    ]
    assert done[8] == ["I want to tell you about our new house."], "without waiting for more"
    assert live.running == "And"
    assert live.finish() == ["And"]
    assert live.running == ""
    assert live.finish() == []


def test_an_abbreviation_ends_no_sentence(translator: Translator) -> None:
    live = LiveTranslator(translator)
    done = [live.add(piece) for piece in pieces("I met Mr. Smith today.")]
    assert done[-1] == ["I met Mr. Smith today."]
    assert not any(done[:-1])


@pytest.mark.slow
def test_a_final_translation_is_that_of_the_sentence_alone(translator: Translator) -> None:
    live = LiveTranslator(translator)
    for piece in pieces(TALK):
        live.add(piece)
        live.partial()
    sentence = "It is not big, but I like it."
    assert live.final(sentence).text == translator.translate(sentence).text


@pytest.mark.slow
def test_the_running_translation_grows(translator: Translator) -> None:
    """Stable tokens are kept, and not decoded again."""
    live = LiveTranslator(translator)
    shown: list[tuple[str, int]] = []
    for piece in pieces("It is not very big, but it has a beautiful garden")[:11]:
        live.add(piece)
        now = live.partial()
        assert now is not None
        shown.append((now.text, len(live._stable)))
    stable = [count for _, count in shown]
    assert stable == sorted(stable)
    assert stable[-1] >= 4
    words = [text.split() for text, _ in shown]
    assert words[-1][:3] == words[-3][:3]


def test_the_uncommitted_tail_is_translated_but_not_kept(translator: Translator) -> None:
    live = LiveTranslator(translator)
    live.add(" I like")
    now = live.partial(" green apples")
    assert now is not None
    assert now.source == "I like green apples"
    assert live.running == "I like"


def test_without_a_sentence_there_is_no_translation(translator: Translator) -> None:
    live = LiveTranslator(translator)
    assert live.partial() is None
    assert live.partial("  ") is None
    assert live.add("") == []
