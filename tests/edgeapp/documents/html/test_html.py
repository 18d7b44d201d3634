"""HTML is translated by blocks, and its markup stays byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeapp.cli import main
from edgeapp.documents.html.blocks import Block, parse
from edgeapp.documents.html.translation import html_text, translate_html
from pipelines import Translation
from pipelines.translation import Alignment

TAG = re.compile(r"<[^<>]*>")


def reversed_words(texts: Iterable[str]) -> Iterator[Translation]:
    """A language with the words of English in reverse order, in capitals."""
    for text in texts:
        words = [m.span() for m in re.finditer(r"\S+", text)]
        translated = " ".join(text[a:b].upper() for a, b in reversed(words))
        targets = tuple(m.span() for m in re.finditer(r"\S+", translated))
        links = tuple((i, len(words) - 1 - i) for i in range(len(words)))
        yield Translation(text, translated, alignment=Alignment(tuple(words), targets, links))


def same(texts: Iterable[str]) -> Iterator[Translation]:
    """No change, and no alignment."""
    for text in texts:
        yield Translation(text, text)


def test_blocks() -> None:
    html = "<h1>A title</h1><p>One <b>two</b>\n  three.<br>Four</p><td>five"
    assert html_text(html) == "A title\nOne two three.\nFour\nfive"
    blocks = [part for part in parse(html) if isinstance(part, Block)]
    (bold,) = blocks[1].elements
    assert blocks[1].text[bold.start : bold.end] == "two"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>one <b>two</b> three</p>", "<p>THREE <b>TWO</b> ONE</p>"),
        ("<p><i>one two</i> three</p>", "<p>THREE <i>TWO ONE</i></p>"),
        ("<p><a href='/x'>one <b>two</b></a> three</p>",
         "<p>THREE <a href='/x'><b>TWO</b> ONE</a></p>"),
        ("one <img src=x> two", "<img src=x>TWO ONE"),
        ("<b>one &amp; two</b>", "<b>TWO &amp; ONE</b>"),
        ("a &lt;b&gt; c", "C &lt;B&gt; A"),
        ("one <code>ls -l</code> two", "TWO <code>ls -l</code> ONE"),
        ('one <span translate="no">two</span>', '<span translate="no">two</span> ONE'),
        ("one <code>two</code>!", "<code>two</code>! ONE"),
        ("one <code>f()</code>.", "<code>f()</code>. ONE"),
        ("one <code>two.</code>", "<code>two.</code> ONE"),
        ("<b><code>two</code>?</b>", "<b><code>two</code>?</b>"),
        ("<b><code>two</code></b>?", "<b><code>two</code></b>?"),
        ('<p translate="no">one two</p><p>one two</p>',
         '<p translate="no">one two</p><p>TWO ONE</p>'),
        ("<div class='x notranslate'>one <div>two</div> <b>a</b> b</div><br>one two",
         "<div class='x notranslate'>one <div>two</div> <b>a</b> b</div><br>TWO ONE"),
        ("<div translate=no>a b<p translate=yes>one two</p>c d</div>one two",
         "<div translate=no>a b<p translate=yes>TWO ONE</p>c d</div>TWO ONE"),
        ('<div translate=no>a b <b translate="">one two</b> c d</div>',
         '<div translate=no>a b <b translate="">TWO ONE</b> c d</div>'),
        ("<div translate=no><p translate=yes>one two<p>a b</div>one two",
         "<div translate=no><p translate=yes>TWO ONE<p>a b</div>TWO ONE"),
        ("<div translate=no><p translate=yes>one two</div>one two",
         "<div translate=no><p translate=yes>TWO ONE</div>TWO ONE"),
        ("<div translate=no><ul translate=yes><li>one two<li translate=no>a b<li>one two</ul>a b"
         "</div>", "<div translate=no><ul translate=yes><li>TWO ONE<li translate=no>a b<li>TWO ONE"
         "</ul>a b</div>"),
        ("<div translate=no><div translate=yes><div>one two</div>one two</div>a b</div>one two",
         "<div translate=no><div translate=yes><div>TWO ONE</div>TWO ONE</div>a b</div>TWO ONE"),
        ("<div translate=no><div translate=yes><div translate=no><p translate=yes>one two</div>"
         "one two</div>a b</div>", "<div translate=no><div translate=yes><div translate=no>"
         "<p translate=yes>TWO ONE</div>TWO ONE</div>a b</div>"),
        ("<div translate=no><pre translate=yes>a b</pre>a b</div>one two",
         "<div translate=no><pre translate=yes>a b</pre>a b</div>TWO ONE"),
        ("<p translate=NO>one two<p>one two", "<p translate=NO>one two<p>TWO ONE"),
        ("<ul><li translate=no>a b<ul><li>c d</ul><li>one two</ul>one two",
         "<ul><li translate=no>a b<ul><li>c d</ul><li>TWO ONE</ul>TWO ONE"),
        ("<ul><li translate=no>a b</ul>one two", "<ul><li translate=no>a b</ul>TWO ONE"),
        ("<table><tr><td translate=no>a b<td>one two</table>",
         "<table><tr><td translate=no>a b<td>TWO ONE</table>"),
        ("<li class=notranslate><p>a b</p><p>c <div>d</div></p> e</li>one two",
         "<li class=notranslate><p>a b</p><p>c <div>d</div></p> e</li>TWO ONE"),
        ("<tr><td translate=no><div>a b</div> c d</td><td>one two</td>",
         "<tr><td translate=no><div>a b</div> c d</td><td>TWO ONE</td>"),
        ("<li translate=no><p>a b<ul><li>c</ul>d</li>one two",
         "<li translate=no><p>a b<ul><li>c</ul>d</li>TWO ONE"),
        ("<li translate=no><p>a b<li>one two", "<li translate=no><p>a b<li>TWO ONE"),
        ("<p translate=no>a b<section>one two</section>",
         "<p translate=no>a b<section>TWO ONE</section>"),
        ("<hr translate=no>one two", "<hr translate=no>TWO ONE"),
        ("<script>one two</script><style>p {a: b}</style>",
         "<script>one two</script><style>p {a: b}</style>"),
        ("<pre>one  two</pre>", "<pre>one  two</pre>"),
        ("<!DOCTYPE html>\n<!-- one --><br/>  one two\n",
         "<!DOCTYPE html>\n<!-- one --><br/>  TWO ONE\n"),
        ("<p>&nbsp;</p> <hr>", "<p>&nbsp;</p> <hr>"),
        ("", ""),
    ],
)  # fmt: skip
def test_elements_follow_their_words(html: str, expected: str) -> None:
    assert translate_html(html, reversed_words) == expected


@given(
    st.lists(
        st.sampled_from(
            ["<b>", "</b>", "<i x='1'>", "</i>", "<p>", "</p>", "<br>", "one ", "two. "]
        ),
        max_size=25,
    ).map("".join)
)  # fmt: skip
def test_every_tag_comes_back_once(html: str) -> None:
    for translate in (reversed_words, same):
        result = translate_html(html, translate)
        assert sorted(TAG.findall(result)) == sorted(TAG.findall(html))
        words = re.findall(r"\w+", TAG.sub(" ", result).lower())
        assert sorted(words) == sorted(re.findall(r"\w+", TAG.sub(" ", html)))


@given(st.text(alphabet="<>/&;!-ab \n\"'=", max_size=60))
def test_broken_markup_raises_nothing(html: str) -> None:
    translate_html(html, reversed_words)


@pytest.mark.slow
def test_the_command_line_reads_html(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    page.write_text("<title>Good morning.</title><p>Where is the <b>station</b>?</p>\r\n", "utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["translate", "--from", "en", "--to", "de", str(page), "-o", str(tmp_path / "d.html")])
    assert ended.value.code == 0, capsys.readouterr().err
    result = (tmp_path / "d.html").read_bytes().decode()
    assert "<b>Bahnhof</b>?</p>\r\n" in result
    capsys.readouterr()
    with pytest.raises(SystemExit) as refused:
        main(["translate", "--to", "de", "--bilingual", str(page)])
    assert refused.value.code == 2
    assert "--bilingual is for text or subtitles only" in capsys.readouterr().err


def test_soft_hyphens_change_no_translation(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>Die Kin&shy;der <b>kom&#173;men</b> je&shy;de Wo&shy;che.</p>\n", "utf-8")
    with pytest.raises(SystemExit) as stop:
        main(["translate", str(page), "-m", "demo-de-en", "-o", "-"])
    out = capfd.readouterr().out
    assert (stop.value.code or 0) == 0
    assert TAG.sub("", out) == "The children are coming every week.\n"
    assert "<b>coming</b>" in out or "<b>are coming</b>" in out
