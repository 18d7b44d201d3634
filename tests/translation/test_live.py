"""Live translation: complete sentences are final, the incomplete one has a stable beginning."""

from __future__ import annotations

from itertools import pairwise

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
def test_a_running_translation_takes_no_word_back(translator: Translator) -> None:
    live = LiveTranslator(translator)
    shown: list[list[str]] = []
    for piece in pieces("It is not very big, but it has a beautiful garden")[:11]:
        live.add(piece)
        if (now := live.partial()) is not None:
            shown.append(now.text.split())
    assert len(shown[-1]) >= 4
    for before, after in pairwise(shown):
        assert after[: len(before)] == before


def test_a_running_translation_begins_with_the_third_word(translator: Translator) -> None:
    live = LiveTranslator(translator)
    live.add(" We live")
    assert live.partial() is None
    assert live.partial(" in") is None, "nothing is agreed upon yet"
    now = live.partial(" in a small")
    assert now is not None
    assert now.text.split()[0] == "Wir"


@pytest.mark.parametrize("copied", ["- ", "#42: "])
def test_a_running_translation_keeps_what_is_copied_at_its_beginning(
    translator: Translator, copied: str
) -> None:
    live = LiveTranslator(translator)
    live.add(f" {copied}We live")
    live.partial(" in")
    now = live.partial(" in a small")
    assert now is not None
    assert now.text.startswith(f"{copied}Wir")


def test_the_uncommitted_tail_is_translated_but_not_kept(translator: Translator) -> None:
    live = LiveTranslator(translator)
    live.add(" I like")
    live.partial(" green")
    now = live.partial(" green apples")
    assert now is not None
    assert now.source == "I like green apples"
    assert live.running == "I like"


def test_without_a_sentence_there_is_no_translation(translator: Translator) -> None:
    live = LiveTranslator(translator)
    assert live.partial() is None
    assert live.partial("  ") is None
    assert live.add("") == []


@pytest.mark.slow
def test_of_text_that_may_be_corrected_only_the_incomplete_sentence_runs(
    translator: Translator,
) -> None:
    """The running translation is that of a translator to which the text was added."""
    words = pieces(TALK + " My friend has a new house, too.")[:-1]
    added, corrected = LiveTranslator(translator), LiveTranslator(translator)
    for count in range(1, len(words)):
        added.add(words[count - 1])
        unsettled = "".join(words[:count])
        assert corrected.running_after(unsettled) == added.running
        tail = words[count]
        assert corrected.partial(tail, unsettled) == added.partial(tail)
    assert corrected.running == ""


def test_a_sentence_ends_with_its_utterance(translator: Translator) -> None:
    live = LiveTranslator(translator)
    assert live.running_after(" how are you\n") == ""
    assert live.running_after(" how are you\n what is") == "what is"
    live.add(" and")
    assert live.running_after(" how are") == "and how are"
