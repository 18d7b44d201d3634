"""Malformed and unusual texts: binary data, control characters, other scripts, very long lines."""

from __future__ import annotations

import random
import time

import pytest

from pipelines.translation import Translator
from tests.translation.corpus import random_texts
from tests.translation.scripted import scripted


def _binary(seed: int, size: int = 600) -> str:
    data = random.Random(seed).randbytes(size)
    return data.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    "text",
    [
        _binary(1),
        _binary(2).encode("utf-8", "surrogateescape").decode("latin-1"),
        "".join(map(chr, range(256))),
        "\x00" * 50 + "Good morning.\x1b[31m\x07",
        "caf\udce9 \ud83c Good morning.",
        "\ufeffGood morning.",
        "Z\u0351\u036b\u0343\u036a\u0302a\u0342l\u0338\u0321g\u0322o\u0321",
        "PK\x03\x04\x14\x00\x00\x00 \n%PDF-1.4\n%\xe2\xe3",
        "<html><body class='x'>&nbsp;</body></html>",
        '{"a": [1, 2, {"b": null}]}',
        "0123456789abcdef" * 40,
        "a" * 1500,
        "\u202e\u200b\u2060\u00ad",
    ],
    ids=range(13),
)
def test_garbage_gives_some_translation(demo: Translator, text: str) -> None:
    translation = demo.translate(text)
    assert translation.source == text
    assert translation.text.strip()
    assert translation.text.count("\n") == text.count("\n")
    assert len(translation.text) < 10 * len(text) + 200


@pytest.mark.slow
def test_random_texts(demo: Translator) -> None:
    texts = random_texts(60, seed=5)
    done = demo.translate(texts)
    assert [translation.source for translation in done] == texts
    for translation in done:
        assert bool(translation.text.strip()) is bool(translation.source.strip())


def test_text_without_words_is_copied(demo: Translator) -> None:
    texts = [
        "...",
        "?!",
        "—",
        "🙂🍕👩‍👩‍👧",
        "12:30",
        "* * *",
        "-----",
        "\x00\x01",
        "€ 5",
        "+49 30 123",
    ]
    translations = demo.translate(texts)
    assert [translation.text for translation in translations] == texts
    assert not any(translation.warnings for translation in translations)


def test_other_scripts_are_kept_and_reported(demo: Translator) -> None:
    for text in ("你好，世界。", "Привет, мир!", "مرحبا", "สวัสดี"):
        translation = demo.translate(text)
        assert translation.text == text
        assert "not in the model's vocabulary" in translation.warnings[0]


def test_smileys_stay_where_they_were(demo: Translator) -> None:
    translation = demo.translate("Good morning. 🙂 I am tired 🍕")
    assert translation.text.startswith("Guten Morgen! 🙂 ")
    assert translation.text.endswith(" 🍕")
    assert not translation.warnings


def test_accents_that_the_model_lacks_do_not_hide_a_word(demo: Translator) -> None:
    translation = demo.translate("She bought a new dre\u015bs yesterday.")
    assert "Kleid" in translation.text
    assert "ś" in translation.warnings[0]


@pytest.mark.slow
def test_a_line_of_a_hundred_thousand_characters(demo: Translator) -> None:
    """Cut into parts that the model can take, without its taking minutes to find them."""
    translator, engine = scripted(demo, lambda source, request: source)
    start = time.process_time()
    for text in (
        "x" * 100_000,
        "blue " * 20_000,
        "漢" * 100_000,
        "one, " * 20_000,
        "ab;" * 33_333,
        "a" * 99_999 + "漢",
    ):
        translation = translator.translate(text)
        kept = translation.text.replace(" ", "")
        assert len(kept) >= 0.9 * len(text.replace(" ", "")) or translation.warnings
    assert time.process_time() - start < 30
