"""Language detection of texts: right where it answers, and silent where a text is ambiguous."""

from __future__ import annotations

import pytest

from pipelines.text_language import detect_text_language, text_language_other_than

TEXTS = {
    "en": "Where is the station? I would like a cup of coffee.",
    "de": "Das ist ein Test. Wo ist der Bahnhof?",
    "fr": "Je voudrais un café, s'il vous plaît.",
    "es": "¿Dónde está la estación?",
    "ru": "Где находится вокзал?",
    "ja": "これはテストです。",
    "zh": "这是一个测试。",
}


@pytest.mark.parametrize(("code", "text"), TEXTS.items())
def test_sentences_are_recognized(code: str, text: str) -> None:
    found = detect_text_language(text)
    assert found is not None
    assert found.code == code
    assert 0.5 < found.probability <= 1


@pytest.mark.parametrize("text", ["", " \n", "Hello", "12 34 5", "Tom", "!?", "\ud800"])
def test_ambiguous_texts_have_no_language(text: str) -> None:
    assert detect_text_language(text) is None
    assert text_language_other_than(text, "en") is None


def test_a_text_in_another_language_is_noticed() -> None:
    found = text_language_other_than(TEXTS["de"], "en")
    assert found is not None
    assert found.code == "de"
    assert text_language_other_than(TEXTS["en"], "en") is None
    assert text_language_other_than(TEXTS["en"], "eng_Latn") is None
    assert text_language_other_than(TEXTS["de"], "haw") is None, "it does not know this language"


@pytest.mark.parametrize(
    ("text", "expected", "found"),
    [
        ("Привет, как дела?", "en", "ru"),  # or Bulgarian, or Macedonian
        ("Добрий день", "en", "uk"),
        ("नमस्ते", "de", "sa"),
        ("Привет, как дела?", "bg", None),
        ("OK ♪ 5 №", "ru", None),
        ("Hello ♪ Привет", "en", None),
        ('He said "Привет, как дела?" to me.', "en", None),
        ("π ≈ 3.14, µ = 2", "en", None),
        ("NASA", "ja", None),
    ],
)
def test_a_short_text_in_another_script_is_in_another_language(
    text: str, expected: str, found: str | None
) -> None:
    other = text_language_other_than(text, expected)
    assert (None if other is None else other.code) == found


def test_near_languages_are_not_confused_with_a_mistake() -> None:
    croatian = "Dobar dan, kako ste? Gdje je kolodvor?"
    for code in ("hr", "bs"):
        assert text_language_other_than(croatian, code) is None


def test_long_texts_take_no_longer() -> None:
    found = detect_text_language(TEXTS["en"] * 100_000)
    assert found is not None
    assert found.code == "en"
