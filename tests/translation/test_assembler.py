"""Assembly of a text from its sentences: white space, gaps, warnings."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.translation import (
    SentenceDone,
    SentenceTranslation,
    TranslationDelta,
    TranslationDone,
    Translator,
)
from pipelines.translation.assembler import TextAssembler
from tests.translation.scripted import scripted


def _assembled(*parts: tuple[str, str, str]) -> str:
    """Of (white space before, source, translation)."""
    reply = TextAssembler()
    for before, source, text in parts:
        reply.open(before, source)
        reply.add(text)
        reply.close(SentenceTranslation(source, text))
    return reply.text


def test_white_space_is_that_of_the_source() -> None:
    assert _assembled(("  ", "A.", "a."), ("\n\t", "B.", "b."), ("", "(C", "(c")) == "  a.\n\tb. (c"


def test_chinese_needs_spaces_in_german_and_korean_and_none_in_chinese() -> None:
    assert _assembled(("", "你好。", "Hallo."), ("", "我很好。", "Gut.")) == "Hallo. Gut."
    assert _assembled(("", "A,", "你，"), ("", "b", "好")) == "你，好"
    assert _assembled(("", "你好。", "Hallo。"), ("", "我", "Ich")) == "Hallo。Ich"
    assert (
        _assembled(("", "你好。", "안녕하세요."), ("", "我很好。", "좋아요."))
        == "안녕하세요. 좋아요."
    )


@pytest.mark.parametrize(
    ("text", "following", "space"),
    [
        ("Hello.", "￥100 is paid.", " "),
        ("Hello.", "＄5 please.", " "),
        ("안녕.", "㈜삼성입니다.", " "),
        ("안녕.", "ﾡﾢ", " "),
        ("Hello.", "﹁引﹂", ""),
        ("你好︒", "Ich", ""),
        ("Hello.", "\U0001b000", ""),
    ],
)
def test_signs_are_no_script_without_spaces(text: str, following: str, space: str) -> None:
    both = _assembled(("", "你好。", text), ("", "世界。", following))
    assert both == f"{text}{space}{following}"


@pytest.mark.parametrize("first", ["(", '"', "**", "word", "http://a.b/"])
def test_no_space_is_added_inside_a_word(first: str) -> None:
    assert _assembled(("", first, first), ("", "C", "c")) == f"{first}c"


def test_closing_marks_stay_where_they_were() -> None:
    assert _assembled(("", "Home.", "Heim."), ("", ")", ")"), ("", '"', '"')) == 'Heim.)"'


def test_a_sentence_in_several_deltas() -> None:
    reply = TextAssembler()
    reply.open("  ", "One")
    assert [reply.add(""), reply.add("Ei"), reply.add("ns")] == ["", "  Ei", "ns"]


def test_warnings_name_their_sentence_once() -> None:
    reply = TextAssembler()
    for source in ("Long " * 20, "Short.", "Short."):
        reply.open("", source)
        reply.close(SentenceTranslation(source, "", warnings=("odd",)))
    long = ("Long " * 20)[:39]
    assert reply.finish("all").warnings == (f'"{long}…": odd', '"Short.": odd')


@pytest.fixture(scope="module")
def echo(demo: Translator) -> Any:
    """The bundled model's two sides share their vocabulary: what comes in goes out."""
    return scripted(demo, lambda source, request: source)[0]


_TEXT = st.text(alphabet=st.sampled_from("abIÄ1  .,!?-*()\"'“”@/:🍕漢>#\n\r\t\u00a0\u2028"))
_WORDS = st.lists(
    st.sampled_from("Tom Mary? (yes) no. “Oh!” \n - 1. 漢字 🙂 www.a.org don't\n\n".split(" "))
)


@pytest.mark.slow
@settings(max_examples=250)
@given(st.one_of(_TEXT, _WORDS.map(" ".join), st.text()))
def test_a_model_that_repeats_its_source_gives_the_text_back(echo: Translator, text: str) -> None:
    """Every letter, every line, and the white space around them; control characters may go."""
    events = list(echo.stream(text))
    done = events[-1]
    assert isinstance(done, TranslationDone)
    translation = done.translation
    deltas = [event.text for event in events if isinstance(event, TranslationDelta)]
    assert "".join(deltas) == translation.text
    assert sum(isinstance(event, SentenceDone) for event in events) == len(translation.sentences)
    assert translation.text == echo.translate(text).text

    def outside(of: str) -> tuple[str, str]:
        body = of.strip()
        start = of.index(body)
        return of[:start], of[start + len(body) :]

    assert outside(translation.text) == outside(text)
    assert re.findall(r"[\n\r\u2028]", translation.text) == re.findall(r"[\n\r\u2028]", text)
    if not translation.warnings and text.isascii():
        invisible = r"[\s\x00-\x1f\x7f]"
        assert re.sub(invisible, "", translation.text) == re.sub(invisible, "", text)
