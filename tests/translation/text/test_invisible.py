"""Characters that no reader sees change no translation, and come back where they belong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.translation import Alignment, Translator
from pipelines.translation.isolates import with_isolates
from pipelines.translation.text.invisible import Isolate, visible
from pipelines.translation.text.sentences import split_sentences

_DROPPED = (
    "\u00ad\u034f\u180e\u200b\u2060\u2061\ufeff\ufff9\u200c\u200d\u200e\u200f\u202a\u2069\ufe0e"
)


@pytest.mark.parametrize("char", _DROPPED)
def test_in_words_and_between_them_they_change_nothing(demo: Translator, char: str) -> None:
    expected = demo.translate("I like bread.")
    for text in (f"I li{char}ke br{char}ead.", f"I {char}like{char} bread."):
        result = demo.translate(text)
        assert (result.text, result.warnings, result.source) == (expected.text, (), text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u2068I like bread.\u2069", "\u2068Ich mag Brot.\u2069"),
        ("\u202bI like bread.\u202c I am here.", "\u202bIch mag Brot.\u202c Ich bin hier."),
        ("\u200fI like bread.\u200e", "\u200fIch mag Brot.\u200e"),
        ("\u2068I\u2069 like bread.", "\u2068Ich\u2069 mag Brot."),
        ("\u202bI like\u202c \u2068bread\u2069.", "\u202bIch mag\u202c \u2068Brot\u2069."),
        ("I like \u2068\u2067bread\u2069\u2069.", "Ich mag \u2068\u2067Brot\u2069\u2069."),
        (
            "I \u2068like \u2067bread\u2069\u2069 and \u2067milk\u2069.",
            "Ich \u2068mag \u2067Brot\u2069\u2069 und \u2067Milch\u2069.",
        ),
        ("Tom and \u2068Tom\u2069 like bread.", "Tom und \u2068Tom\u2069 mögen Brot."),
        ("I \u2068did not\u2069 see him.", "Ich habe ihn \u2068nicht\u2069 gesehen."),
        ("\u2068I like bread.", "Ich mag Brot."),  # never closed
        ("\u2068{name}\u2069: I like bread.", "\u2068{name}\u2069: Ich mag Brot."),
    ],
)
def test_controls_of_direction_come_back_in_pairs(
    demo: Translator, text: str, expected: str
) -> None:
    assert demo.translate(text).text == expected
    streamed = "".join(getattr(event, "text", "") for event in demo.stream(text))
    assert streamed


_ALIGNED = Alignment(
    source_words=((0, 2), (3, 6), (7, 11)), target_words=((0, 4), (5, 8), (9, 12)), links=()
)


@pytest.mark.parametrize(
    ("isolates", "links", "expected"),
    [
        ([(3, 6)], [(0, 0), (1, 2), (2, 1)], "drei und (zwo)."),
        ([(3, 6)], [(1, 0), (2, 1), (1, 2)], "drei und zwo."),  # two runs of words
        ([(3, 6)], [(0, 1), (1, 1)], "drei und zwo."),  # a word that has another's meaning, too
        ([(3, 6)], [(0, 0)], "drei und zwo."),  # no word has its meaning
        ([(3, 6)], [(1, 0), (1, 1), (1, 2)], "drei und zwo."),  # too many words for one
        ([(3, 6), (0, 6)], [(0, 1), (1, 2)], "drei (und (zwo))."),
        ([(0, 6), (3, 10)], [(0, 0), (1, 1), (2, 2)], "(drei und) zwo."),  # they crossed
    ],
)
def test_a_pair_comes_back_where_its_words_are_certain(
    isolates: list[tuple[int, int]], links: list[tuple[int, int]], expected: str
) -> None:
    text = with_isolates(
        "of two xyz.",
        "drei und zwo.",
        [Isolate("(", ")", *span) for span in isolates],
        lambda: replace(_ALIGNED, links=tuple(links)),
    )
    assert text == expected


def test_without_attention_only_words_that_stay_are_isolated() -> None:
    isolates = [Isolate("(", ")", 0, 4), Isolate("(", ")", 9, 12)]
    text = with_isolates("Anna has two.", "Anna hat zwei.", isolates, lambda: None)
    assert text == "(Anna) hat zwei."


def test_a_sentence_that_is_translated_again_has_each_pair_once(demo: Translator) -> None:
    for text in (
        "THIS IS \u2068TOM\u2069 AND \u2068MARY\u2069!",
        "NO \u2068NO\u2069 NO NO NO NO NO!",
    ):
        result = demo.translate(text).text
        assert result.count("\u2068") == result.count("\u2069") <= 2
        assert visible(result).text == demo.translate(visible(text).text).text


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # a family
        "\u2764\ufe0f",
        "1\ufe0f\u20e3",
        "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # Scotland
        "\U0001f44d\U0001f3fd\u200d\u2642\ufe0f",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
        "\u0915\u094d\u200d\u0937",  # Hindi
        "\u1797\u17b6\u179f\u17b6\u200b\u1781\u17d2\u1798\u17c2\u179a",  # Khmer
    ],
)
def test_what_a_script_or_an_emoji_needs_stays(text: str) -> None:
    assert visible(text).text == text


def test_words_of_an_alignment_are_those_of_the_text_as_it_was_given(demo: Translator) -> None:
    text = "I li\u00adke \u2068bread\u2069."
    alignment = demo.translate(text, word_alignments=True).alignment
    assert alignment is not None
    words = [text[start:end] for start, end in alignment.source_words]
    assert words == ["I", "li\u00adke", "bread\u2069."]


@given(st.text(alphabet="ab. \n\u00ad\u200b\u2066\u2069\u202b\u202c\u200f", max_size=40))
def test_no_visible_character_is_lost_or_moved(text: str) -> None:
    seen = visible(text)
    spans = [span for span, _ in seen.with_marks(split_sentences(seen.text, "en"))]
    joined = "".join(span.leading_space + span.text for span in spans)
    assert visible(joined).text == seen.text
    for opening, closing in ("\u2066\u2069", "\u202b\u202c"):
        if text.count(opening) == text.count(closing) == 1 and text.find(opening) < text.find(
            closing
        ):
            assert joined.count(opening) == joined.count(closing)
