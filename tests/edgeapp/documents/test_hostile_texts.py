"""Texts that repeat a piece of markup: the work grows with their length, not with its square.

Steps are counted, which are the same on every machine: lines of our code that run, and characters
that searches look at.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from edgeapp.documents.html import tokens as html_tokens
from edgeapp.documents.html.blocks import Block, parse
from edgeapp.documents.html.translation import html_text, translate_html
from edgeapp.documents.subtitle_file import parse as parse_subtitles
from edgeapp.documents.subtitle_markup import plain_text, utterances
from edgeapp.documents.subtitle_translation import passages, translate_subtitles
from edgeapp.subtitles.check import violations
from edgeapp.subtitles.line_breaks import break_cost, words_to_break
from pipelines import Translation
from pipelines.subtitles import Cue
from pipelines.translation import Alignment

ASS = """[Script Info]

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:01.00,0:00:02.00,D,,0,0,0,,"""
PIECES = {
    "html": [
        "<", "</", "<!--", "<![", "<![CDATA[", "<?", "<a ", "<a", "<a href='", "<a x='>' ", "<b>",
        "<b>x ", "<b>x</b>", "<i>a</i> ", "</p>x", "<script>", "<style", "<svg>", "&", "&#1", "(",
    ],
    "srt": ["<a ", "<b>x ", "<i>a</i> ", "a ", "(", "(a", "[", "- a\n", "MARY: ", "<br>\n",
            "{\\i1}", "中"],
    "vtt": ["&", "&#1", "<c.a>", "<00:01.000>a", "<v a>x "],
    "ass": ["{\\b1}x{\\b0} ", "{\\i1}{\\b1}", "\\N", "{", "{\\k1}a", "a. "],
}  # fmt: skip
CASES = [(form, piece) for form, pieces in PIECES.items() for piece in pieces]
SHORT, LONG = 1_000, 4_000  # characters


def same(texts: Iterable[str]) -> Iterator[Translation]:
    for text in texts:
        words = tuple(match.span() for match in re.finditer(r"\S+", text))
        links = tuple((i, i) for i in range(len(words)))
        yield Translation(text, text, alignment=Alignment(words, words, links))


def subtitles(form: str, text: str) -> None:
    header = {"vtt": "WEBVTT\n\n", "ass": ASS}.get(form, "")
    timing = "" if form == "ass" else "00:00:01.000 --> 00:00:03.000\n"
    file = parse_subtitles(f"{header}{timing}{text}\n".encode(), form, "x")
    for _ in translate_subtitles(file, same):
        pass
    cues = [Cue(cue.start, cue.end, plain_text(cue.text, form)) for cue in file.cues]
    list(violations(cues, form=form))


def lines_run(function: Callable[[], Any]) -> int:
    """The number of lines of documents and subtitles that run during a call."""
    count = 0

    def local(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def called(frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        return local if "/edgeapp/documents/" in name or "/edgeapp/subtitles/" in name else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(("form", "piece"), CASES)
def test_the_work_grows_with_the_length(form: str, piece: str) -> None:
    def work(length: int = SHORT) -> None:
        text = (piece * length)[:length]
        if form == "html":
            translate_html(text, same)
        else:
            subtitles(form, text)

    work()  # caches of small functions are filled
    short, long = lines_run(work), lines_run(partial(work, LONG))
    assert long <= 5 * short + 2_000


class Scanned:
    """A pattern, or a text, that counts the characters that its searches look at."""

    total = 0

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def _count(self, found: re.Match[str] | None, text: str, start: int) -> re.Match[str] | None:
        Scanned.total += (found.end() if found else len(text)) - start
        return found

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        found = self._pattern.match(text, start)
        Scanned.total += found.end() - start if found else 1
        return found

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._count(self._pattern.search(text, start), text, start)


class CountedText(str):
    def find(self, sub: str, start: Any = 0, end: Any = None) -> int:
        found = super().find(sub, start)
        Scanned.total += (found if found >= 0 else len(self)) - start
        return found

    def rfind(self, sub: str, start: Any = 0, end: Any = None) -> int:
        Scanned.total += len(self)
        return super().rfind(sub)


@pytest.mark.parametrize("piece", PIECES["html"])
def test_html_is_looked_at_once(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_NAME", "_TAG_STOP", "_UNQUOTED", "_SPACE", "_COMMENT_END"):
        monkeypatch.setattr(html_tokens, name, Scanned(getattr(html_tokens, name)))
    Scanned.total = 0
    text = CountedText(piece * 10_000)
    assert "".join(token.written for token in html_tokens.tokens(text)) == text
    assert Scanned.total <= 8 * len(text)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("one <b two", "one <b two"),
        ("a < b and <3", "a < b and <3"),
        ("<p>one<p title='two> three</p>", "one"),
        ("one <!-- two", "one"),
        ("one <![CDATA[two > three]]> four", "one\nfour"),
        ("<script>if (a</b>) </scripts></script >one", "one"),
        ("<a title='x > y'>one</a> <textarea><b>two", "one"),
        ("&lt;one&gt; &#65;&#x42; &nope; &" + "#" + "9" * 5_000 + ";", "<one> AB &nope; \ufffd"),
    ],
)
def test_broken_html_is_read_as_browsers_read_it(html: str, text: str) -> None:
    assert html_text(html) == text
    assert "".join(token.written for token in html_tokens.tokens(html)) == html


def test_a_paragraph_of_many_elements_is_several_blocks() -> None:
    html = "<p>" + "".join(f"<b>w{i}</b> " for i in range(250)) + "</p>"
    blocks = [part for part in parse(html) if isinstance(part, Block)]
    assert max(len(block.elements) for block in blocks) <= 100
    assert translate_html(html, same) == html


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("[sighs]", True), ("- (door slams) ...", True), ("((loud) music)", False),
        ("(a) b", False), ("a (b)", False),
        ("(a", False), ("a)", False), ("）（笑）", True), ("[a)", False),
        ("(((a)", True), ("(a]b)", True),
    ],
)  # fmt: skip
def test_sounds_are_not_translated(text: str, sound: bool) -> None:
    assert all(not each.text for each in utterances(text, "srt")) is sound


def test_breaks_after_many_marks() -> None:
    assert break_cost("end" + "." * 1_000 + '")', "x") == 0.0
    assert break_cost("." * 1_000 + "x,”", "x") == 0.5
    assert words_to_break("a b" + " " * 1_000) == ["a", " b"]


def test_passages_are_bounded() -> None:
    timing = "00:00:{:02}.{}00 --> 00:00:{:02}.{}50\n"
    cues = [
        timing.format(i // 5, 2 * (i % 5), i // 5, 2 * (i % 5)) + "and so\n" for i in range(100)
    ]
    cues.append("00:00:25.000 --> 00:00:26.000\n" + "so on " * 500 + "\n")
    file = parse_subtitles("\n".join(cues).encode(), "srt", "x")
    assert max(len(each.fragments) for each in passages(file)) == 16
    assert len(passages(file)[-1].fragments) == 1
