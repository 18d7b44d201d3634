"""Characters that no reader sees change no translation, and come back where they belong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.translation import Translator
from pipelines.translation.text.invisible import visible
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
        ("\u2068I\u2069 like bread.", "Ich mag Brot."),
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
