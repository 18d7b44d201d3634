"""Subtitle files of others: read, translated, and read back with the same cues, times and tags.

SUBTITLE_FILES names a folder with more files, such as those of pysubs2's and webvtt-py's tests.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from edgeapp.documents.subtitle_file import SUBTITLE_SUFFIXES, SubtitleFile, parse
from edgeapp.documents.subtitle_markup import plain_text
from edgeapp.documents.subtitle_translation import translate_subtitles
from pipelines import InputError, Translation

# Each with a trait of a file in those tests.
_FILES = {
    "nested.srt": "1\n00:00:00,000 --> 00:00:05,000\n<i><b>Tom</b> and Mary</i> are here.\n",
    "bad nesting.srt": (
        "1\n00:00:00,000 --> 00:00:05,000\n"
        '<i><font color="red" >Elephant\'s Dream</i> Is Long</font> And Badly Nested</xyz>\n'
    ),
    "no number.srt": "00:00:01,000 --> 00:00:02,000\nOne.\n\n00:00:03,000 --> 00:00:04,000\nTwo.\n",
    "empty cue.srt": (
        "1\n00:00:01,000 --> 00:00:02,000\n\n2\n00:00:03,000 --> 00:00:04,000\nTwo words.\n"
    ),
    "latin.srt": b"1\r\n00:00:01,000 --> 00:00:02,000\r\nGr\xfc\xdfe aus K\xf6ln.\r\n",
    "mark.vtt": "\ufeffWEBVTT\n\n00:00.500 --> 00:07.000\nCaption text #1\n",
    "unpadded.vtt": "WEBVTT\n\n0:0.500 --> 0:7.000\nCaption\n\n0:7.000 --> 0:9.0\nMore of it\n",
    "headers.vtt": (
        "WEBVTT - Title\nKind: captions\nX-TIMESTAMP-MAP=LOCAL:00:00:00.000,MPEGTS:0\n\n"
        "STYLE\n::cue(b) {\n  color: peachpuff;\n}\n\nREGION\nid:fred width:40%\n\n"
        "NOTE two\nlines\n\nid one\n00:00:01.000 --> 00:00:02.000 region:fred align:left\n"
        "<v.loud Fred>Hi, my name is <b>Fred</b>\n"
    ),
    "karaoke.ass": (
        "[Script Info]\nScriptType: v4.00+\n\n[Events]\n"
        "Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
        "Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,a note\n"
        "Dialogue: 0,0:00:01.00,0:00:05.00,Default,,0,0,0,,{\\k100}{\\k33}Sun{\\k42}day, and so\n"
        "Dialogue: 0,0:00:06.00,0:00:07.00,Default,,0,0,0,,{\\an8\\pos(1,2)}Up\\Nand down\n"
    ),
    "rate.sub": "{1}{1}23.976\n{10}{20}Hello there!\n{30}{60}{Y:i}Two lines|of words.\n",
    "no rate.sub": "{10}{20}Hello, {c:$0000FF}world!\n",
    "spaces.sub": " { 1 } { 1 }  1000.0 \n\n{    10 }{    20}   Hello!   \n",
    "deciseconds.mpl": "[10][20]Hello there.\n[30][45]Two lines|of words.\n",
}
_EXACT = ("srt", "vtt", "ass", "ssa", "sub")  # of which all but the texts stays as it is


def _files() -> list[tuple[str, bytes]]:
    files = [(n, c if isinstance(c, bytes) else c.encode()) for n, c in _FILES.items()]
    if folder := os.environ.get("SUBTITLE_FILES"):
        found = sorted(p for p in Path(folder).iterdir() if p.suffix in SUBTITLE_SUFFIXES)
        files += [(path.name, path.read_bytes()) for path in found]
    return files


@pytest.mark.filterwarnings("ignore::RuntimeWarning:pysubs2")
@pytest.mark.parametrize(("name", "content"), [pytest.param(*f, id=f[0]) for f in _files()])
def test_a_file_is_translated_and_read_back(name: str, content: bytes) -> None:
    form = name.rpartition(".")[2]
    try:
        file = parse(content, form, name)
    except InputError:
        if name in _FILES:
            raise
        return
    if form in _EXACT and _is_utf8(content):
        assert file.render([cue.text for cue in file.cues]) == content
    *_, translated = translate_subtitles(file, _mirrored)
    assert isinstance(translated, bytes)
    again = parse(translated, form, name)
    assert [(c.start, c.end) for c in again.cues] == [(c.start, c.end) for c in file.cues]
    assert again.between == file.between
    assert _letters(again) == _letters(file)
    if form in _EXACT:
        assert [_tags(c.text) for c in again.cues] == [_tags(c.text) for c in file.cues]
    for before, after in zip(file.cues, again.cues, strict=True):
        assert bool(plain_text(before.text, form)) == bool(plain_text(after.text, form))


def test_tags_stay_in_each_other() -> None:
    file = parse(str(_FILES["nested.srt"]).encode(), "srt", "nested.srt")
    *_, translated = translate_subtitles(file, _mirrored)
    assert isinstance(translated, bytes)
    assert b"<i><b>moT</b> dna yraM</i> era ereh." in translated


def test_a_frame_rate_is_no_cue() -> None:
    file = parse(str(_FILES["rate.sub"]).encode(), "sub", "rate.sub")
    assert [round(cue.start, 3) for cue in file.cues] == [0.417, 1.251]
    *_, translated = translate_subtitles(file, _mirrored)
    assert translated == b"{1}{1}23.976\n{10}{20}olleH ereht!\n{30}{60}{Y:i}owT senil fo sdrow.\n"


def _mirrored(texts: Iterable[str]) -> Iterator[Translation]:
    """A translation whose words have the letters of the source's."""
    for text in texts:
        yield Translation(text, re.sub(r"[^\W\d_]+", lambda word: word[0][::-1], text))


def _letters(file: SubtitleFile) -> Counter[str]:
    texts = "".join(plain_text(cue.text, file.format) for cue in file.cues)
    return Counter(character for character in texts if character.isalnum())


def _tags(text: str) -> Counter[str]:
    """The tags of a text, but for the times of its words, which hold for the source only."""
    return Counter(re.findall(r"</?[a-zA-Z][^<>\n]*>|\{(?!\\k)[^{}\n]*\}", text))


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_a_line_without_an_end_is_shown_until_the_next_one() -> None:
    content = "{25}{}One.\n{100}{}Two.\n{200}{250}Three.\n{400}{}Four.\n"
    file = parse(content.encode(), "sub", "film.sub")
    times = [(cue.start, cue.end) for cue in file.cues]
    assert times == [(1.0, 4.0), (4.0, 8.0), (8.0, 10.0), (16.0, 21.0)]
    assert file.render([cue.text for cue in file.cues]) == content.encode()


def test_the_other_languages_of_sami_stay(capsys: pytest.CaptureFixture[str]) -> None:
    content = (
        "<SAMI><BODY>\n<SYNC Start=0><P Class=ENCC>Hello.<P Class=FRCC>Bonjour.\n"
        "<SYNC Start=2000><P Class=ENCC>Bye.</P><P Class=FRCC>Salut.</P>\n"
        "<SYNC Start=4000><P Class=FRCC>Seul.\n</BODY></SAMI>\n"
    )
    file = parse(content.encode(), "smi", "film.smi")
    assert [cue.text for cue in file.cues] == ["Hello.", "Bye."]
    *_, translated = translate_subtitles(file, _mirrored)
    assert isinstance(translated, bytes)
    expected = content.replace("Hello", "olleH").replace("Bye", "eyB")
    assert translated.decode() == expected
    assert "those of FRCC stay" in capsys.readouterr().err
