"""Subtitle files: read, translated by sentences, written with everything else kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pysubs2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeapp.documents.subtitle_file import is_subtitle_file, parse, read, subtitle_format
from edgeapp.documents.subtitle_markup import plain_text, utterances
from edgeapp.documents.subtitle_translation import passages, translate_subtitles
from pipelines import InputError, TranslateOptions, Translation, Translator
from pipelines.translation import Alignment

pytestmark = pytest.mark.usefixtures("kernels")

_SRT = """1
00:00:01,000 --> 00:00:03,000
The weather is <i>very</i> nice today,

2
00:00:03,100 --> 00:00:05,000 X1:10 X2:20
but tomorrow it will
rain in the whole country.

3
00:00:06,000 --> 00:00:08,000
- Where are you going?
- <i>I am going home.</i>

4
00:00:09,000 --> 00:00:10,000
[door closes]

5
00:00:10,500 --> 00:00:12,000
♪ la la la ♪

6
00:00:13,000 --> 00:00:16,000
{\\an8}I have seen the old house. It was
empty when I came to the

7
00:00:16,100 --> 00:00:18,000
village last summer.
"""
_VTT = """WEBVTT - a film

STYLE
::cue { color: white }

NOTE by nobody

intro
00:01.000 --> 00:02.000 line:80% align:start
<v Mary>Tom &amp; I

00:02.000 --> 00:03.500
are at home.
"""
_ASS = """[Script Info]
Title: x

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,do not touch
Dialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,{\\pos(10,20)}Good morning,\\Nmy friend.
Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,{\\p1}m 0 0 l 10 10{\\p0}
"""


def _upper(lines: Iterable[str]) -> Iterator[Translation]:
    """A translator that writes capitals: word by word, in the same order."""
    for line in lines:
        spans = []
        at = 0
        for word in line.split():
            at = line.index(word, at)
            spans.append((at, at + len(word)))
            at += len(word)
        links = tuple((i, i) for i in range(len(spans)))
        yield Translation(
            line, line.upper(), alignment=Alignment(tuple(spans), tuple(spans), links)
        )


def _translated(content: str, format: str, **options: bool) -> str:
    file = parse(content.encode(), format, "film")
    *_, rendered = translate_subtitles(file, _upper, **options)
    assert isinstance(rendered, bytes)
    return rendered.decode()


@pytest.mark.parametrize(("content", "format"), [(_SRT, "srt"), (_VTT, "vtt"), (_ASS, "ass")])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_file_with_its_own_texts_is_the_same_bytes(
    content: str, format: str, newline: str, mark: bytes
) -> None:
    raw = mark + content.replace("\n", newline).encode()
    file = parse(raw, format, "film")
    assert file.render([cue.text for cue in file.cues]) == raw


def test_times_numbers_and_positions_stay() -> None:
    shown = _translated(_SRT, "srt").splitlines()
    kept = [line for line in shown if "-->" in line or line.isdigit()]
    assert kept == [line for line in _SRT.splitlines() if "-->" in line or line.isdigit()]
    assert "THE WEATHER IS <i>VERY</i> NICE TODAY," in shown
    assert "{\\an8}I HAVE SEEN THE OLD HOUSE." in shown
    assert "- <i>I AM GOING HOME.</i>" in shown
    assert "[door closes]" in shown
    assert "♪ la la la ♪" in shown


def test_a_sentence_over_cues_is_translated_as_one() -> None:
    file = parse(_SRT.encode(), "srt", "film")
    assert [passage.text for passage in passages(file)] == [
        "The weather is very nice today, but tomorrow it will rain in the whole country.",
        "Where are you going?",
        "I am going home.",
        "I have seen the old house. It was empty when I came to the village last summer.",
    ]


def test_comments_styles_settings_and_entities_of_webvtt_stay() -> None:
    shown = _translated(_VTT, "vtt")
    assert shown == _VTT.replace("Tom &amp; I", "TOM &amp; I").replace(
        "are at home.", "ARE AT HOME."
    )


def test_comments_drawings_and_positions_of_ass_stay() -> None:
    shown = _translated(_ASS, "ass")
    assert shown == _ASS.replace("Good morning,\\Nmy friend.", "GOOD MORNING, MY FRIEND.")


def test_bilingual_cues_have_the_original_above() -> None:
    shown = _translated(_VTT, "vtt", bilingual=True)
    assert "<v Mary>Tom &amp; I\n<v Mary>TOM &amp; I\n" in shown


def test_words_go_to_the_cue_that_they_come_from() -> None:
    """A translation with another word order: the attention decides, not the position."""
    source = "He gave the book that I had lost to my sister."
    target = "Meiner Schwester gab er das Buch, das ich verloren hatte."

    def translate(lines: Iterable[str]) -> Iterator[Translation]:
        for line in lines:
            assert line == source
            yield Translation(source, target, alignment=_alignment(source, target))

    content = (
        "1\n00:00:01,000 --> 00:00:02,000\nHe gave the book\n\n"
        "2\n00:00:02,000 --> 00:00:04,000\nthat I had lost to my sister.\n"
    )
    file = parse(content.encode(), "srt", "film")
    *_, rendered = translate_subtitles(file, translate)
    assert isinstance(rendered, bytes)
    cues = parse(rendered, "srt", "film").cues
    assert [cue.text.replace("\n", " ") for cue in cues] == [
        "Meiner Schwester gab er das Buch,",
        "das ich verloren hatte.",
    ]


def test_words_that_do_not_fit_go_to_the_next_cue() -> None:
    def translate(lines: Iterable[str]) -> Iterator[Translation]:
        yield from (Translation(line, " ".join(["Vogelhaus"] * 15)) for line in lines)

    content = (
        "1\n00:00:01,000 --> 00:00:07,000\nten words are to go here\n\n"
        "2\n00:00:07,000 --> 00:00:13,000\nfive go there.\n"
    )
    *_, rendered = translate_subtitles(parse(content.encode(), "srt", "film"), translate)
    assert isinstance(rendered, bytes)
    lines = [cue.text.splitlines() for cue in parse(rendered, "srt", "film").cues]
    assert [len(each) for each in lines] == [2, 2]
    assert all(len(line) <= 42 for each in lines for line in each)


def _alignment(source: str, target: str) -> Alignment:
    def spans(text: str) -> tuple[tuple[int, int], ...]:
        found, at = [], 0
        for word in text.split():
            at = text.index(word, at)
            found.append((at, at + len(word)))
            at += len(word)
        return tuple(found)

    # he gave the book that I had lost to my sister -> my sister gave he the book that I lost had
    pairs = [(9, 0), (10, 1), (1, 2), (0, 3), (2, 4), (3, 5), (4, 6), (5, 7), (7, 8), (6, 9)]
    return Alignment(spans(source), spans(target), tuple(sorted(pairs)))


_CUE_TEXT = st.lists(
    st.sampled_from(
        [
            "Hello",
            "world.",
            "<i>we</i>",
            "-",
            "- go",
            "\n",
            "[x]",
            "♪",
            "…",
            "house,",
            "1",
            "{\\an8}",
        ]
    ),
    max_size=8,
).map(" ".join)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(_CUE_TEXT, min_size=1, max_size=6))
def test_no_word_is_lost_and_no_cue(texts: list[str]) -> None:
    # Long enough to be read: of a cue that is not, words go to its neighbors.
    blocks = [
        f"{n}\n00:0{n}:00,000 --> 00:0{n}:59,000\n{text}\n" for n, text in enumerate(texts, 1)
    ]
    file = parse("\n".join(blocks).encode(), "srt", "film")
    *_, rendered = translate_subtitles(file, _upper)
    assert isinstance(rendered, bytes)
    result = parse(rendered, "srt", "film")
    assert [(c.start, c.end) for c in result.cues] == [(c.start, c.end) for c in file.cues]
    for before, after in zip(file.cues, result.cues, strict=True):
        words = plain_text(before.text, "srt").upper().split()
        assert plain_text(after.text, "srt").upper().split() == words


def test_every_source_sentence_is_in_the_translation() -> None:
    file = parse(_SRT.encode(), "srt", "film")
    said = " ".join(u.text for cue in file.cues for u in utterances(cue.text, "srt") if u.text)
    done = [r for r in translate_subtitles(file, _upper) if isinstance(r, Translation)]
    assert " ".join(translation.source for translation in done) == said


def test_real_translation_reads_back_with_pysubs2(tmp_path: Path) -> None:
    """With the bundled model, whose attention places words."""
    path = tmp_path / "film.srt"
    path.write_text(_SRT, encoding="utf-8")
    with Translator("demo-en-de") as translator:
        options = TranslateOptions(word_alignments=True)
        *_, rendered = translate_subtitles(
            read(path), lambda lines: translator.translate_lines(lines, options)
        )
    assert isinstance(rendered, bytes)
    before = pysubs2.SSAFile.from_string(_SRT)
    after = pysubs2.SSAFile.from_string(rendered.decode())
    assert [(e.start, e.end) for e in before] == [(e.start, e.end) for e in after]
    assert "sehr" in after[0].text
    assert "regnen" in after[1].text
    assert after[3].plaintext == "[door closes]"


@pytest.mark.parametrize(
    ("content", "suffix", "message"),
    [
        (b"no times at all", ".srt", "no subtitle with a time"),
        (b"\0\1\2\3", ".srt", "binary data"),
        (b"<tt><broken", ".ttml", "cannot be read as ttml"),
    ],
)
def test_what_is_no_subtitle_file_is_refused(
    tmp_path: Path, content: bytes, suffix: str, message: str
) -> None:
    path = tmp_path / f"film{suffix}"
    path.write_bytes(content)
    assert is_subtitle_file(str(path))
    with pytest.raises(InputError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("line", "times"),
    [
        ("00:00:04 --> 00:00:06", (4, 6)),
        ("00:04 --> 00:06,5", (4, 6.5)),
        ("-00:00:01,500 --> 00:00:03,000", (-1.5, 3)),
        ("-01:00:00,000 --> -00:59:58,000", (-3600, -3598)),
        ("1234:00:04,000 --> 1234:00:06,000", (4442404, 4442406)),
        ("00:00:04,0 --> 00:00:06,", (4, 6)),
        ("00:00:04,000 –> 00:00:06,000", (4, 6)),
        ("0:00:04.000 → 0:00:06.000 X1:10", (4, 6)),
    ],
)
@pytest.mark.parametrize("form", ["srt", "vtt"])
def test_times_are_read_as_people_and_programs_write_them(
    line: str, times: tuple[float, float], form: str
) -> None:
    head = "WEBVTT\n\n" if form == "vtt" else "1\n"
    content = f"{head}00:00:01,000 --> 00:00:02,000\nOne.\n\n{line}\nTwo.\n"
    file = parse(content.encode(), form, "film")
    assert [(cue.start, cue.end) for cue in file.cues] == [(1, 2), times]
    *_, rendered = translate_subtitles(file, _upper)
    assert rendered == content.replace("One", "ONE").replace("Two", "TWO").encode()


_OTHER_TIMINGS = [
    ("srt", "1\n00:00:01,000 --> 00:00:02,000\nOne.\n\n2\n{}\nTwo.\n", "00:00:0x,000 --> 0:6", 6),
    ("srt", "1\n00:00:01,000 --> 00:00:02,000\nOne.\n\n2\n{}\nTwo.\n", "start --> end", 6),
    ("srt", "1\n00:00:01,000 --> 00:00:02,000\nOne.\n\n2\n{}\nTwo.\n", "00:00:03,0 -> 4s", 6),
    ("srt", "{}\nTwo.\n", "00:00:01,000 - 00:00:02,000", 1),
    ("srt", "{}\nTwo.\n", f"{'9' * 5000}:00:01,000 --> 00:00:02,000", 1),
    ("smi", "<sami>\n{}<p>Two.", f"<sync start={'9' * 5000}>", 2),
    ("srt", "1\n00:00:01,000 --> 00:00:02,000\nOne.\n{}\nTwo.\n", "1.5s --> 2.5s", 4),
    ("vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nOne.\n\nid\n{}\nTwo.\n", "a --> b", 7),
    ("ass", "[Events]\n{}\n", "Dialogue: 0,0:00:xx,0:00:02.00,Default,,0,0,0,,Hello.", 2),
    ("ass", "[Events]\n{}\n", "Dialogue: 0,0:00:01.00,Default,Hello.", 2),
    ("sub", "{{10}}{{20}}One.\n{}\n", "{x}{30}Two.", 2),
    ("mpl", "[10][20]One.\n{}\n", "[x][30]Two.", 2),
]


@pytest.mark.parametrize(("form", "content", "line", "number"), _OTHER_TIMINGS)
def test_a_line_whose_times_are_not_understood_is_an_error_with_its_number(
    form: str, content: str, line: str, number: int
) -> None:
    with pytest.raises(InputError, match=rf"^film cannot be read as {form}: line {number}: ") as it:
        parse(content.format(line).encode(), form, "film")
    assert line[:80] in str(it.value)


@pytest.mark.parametrize("line", ["Paris --> London", "Chapter 5 --> Chapter 6", "v1.2 --> 1.3"])
def test_an_arrow_that_is_said_is_text(line: str) -> None:
    for before in ("", "From A\n"):
        content = f"1\n00:00:01,000 --> 00:00:02,000\n{before}{line}\n"
        assert len(parse(content.encode(), "srt", "film").cues) == 1


def test_sami_without_paragraphs_is_translated() -> None:
    content = (
        "<SAMI><BODY>\n<SYNC Start=1000><i>Hello.</i>\n<SYNC Start=2000>&nbsp;\n</BODY></SAMI>"
    )
    *_, rendered = translate_subtitles(parse(content.encode(), "smi", "film"), _upper)
    assert rendered == content.replace("Hello", "HELLO").encode()


@pytest.mark.parametrize(
    ("form", "content"),
    [
        (
            "smi",
            "<SAMI><SYNC Start=1000><P>Hello.<SYNC Start=2000><P>&nbsp;\n<SYNC Start=9000><P>You.",
        ),
        ("lrc", "[00:01.00]Hello.\n[00:02.00]\n[00:09.00]You.\n"),
    ],
)
def test_an_empty_text_ends_the_cue_before(form: str, content: str) -> None:
    file = parse(content.encode(), form, "film")
    assert [(cue.start, cue.end) for cue in file.cues] == [(1, 2), (9, 14)]
    *_, rendered = translate_subtitles(file, _upper)
    assert rendered == content.replace("Hello", "HELLO").replace("You", "YOU").encode()


@pytest.mark.parametrize("head", ["[12:30] Anna: Hello.", "[12:30:15] Anna: Hello.", "[1] Hello."])
def test_the_times_of_a_chat_are_no_lyrics(head: str) -> None:
    assert subtitle_format(head.encode()) is None
    assert subtitle_format(b"[ti:Song]\n[00:01.00]Hello.") == "lrc"


def test_times_of_ass_before_zero_are_read() -> None:
    content = "[Events]\nDialogue: 0,-0:00:01.50,100:00:02,Default,,0,0,0,,Hello.\n"
    (cue,) = parse(content.encode(), "ass", "film").cues
    assert (cue.start, cue.end) == (-1.5, 360002)


def test_old_encodings_are_understood() -> None:
    content = "1\n00:00:01,000 --> 00:00:02,000\nCafé\n"
    for encoding in ("cp1252", "utf-16"):
        assert parse(content.encode(encoding), "srt", "film").cues[0].text == "Café"
