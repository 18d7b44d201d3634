"""`edgeapp translate` on subtitle files and on files with structure, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeapp.cli import app
from edgeapp.documents.subtitle_file import read

_FILM = (
    "1\n00:00:01,000 --> 00:00:03,000\n<i>The weather is very nice today,\n\n"
    "2\n00:00:03,100 --> 00:00:05,000\nbut tomorrow it will rain.</i>\n"
)


def _translate(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["translate", "-m", "demo-en-de", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.srt"
    path.write_text(_FILM, encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_translation_lies_beside_the_film(film: Path) -> None:
    code, out, err = _translate(str(film))
    assert (code, out) == (0, ""), err
    cues = read(film.with_name("film.de.srt")).cues
    assert [(cue.start, cue.end) for cue in cues] == [(1.0, 3.0), (3.1, 5.0)]
    assert "Wetter" in cues[0].text
    assert "regnen" in cues[1].text
    assert film.read_text(encoding="utf-8") == _FILM


@pytest.mark.slow
def test_two_languages_in_a_named_file(film: Path) -> None:
    target = film.with_name("both.srt")
    assert _translate(str(film), "--bilingual", "-o", str(target))[0] == 0
    assert "The weather is very nice today,\n" in read(target).cues[0].text
    assert "Wetter" in read(target).cues[0].text


@pytest.mark.slow
def test_as_text_it_is_lines(film: Path) -> None:
    target = film.with_name("lines.txt")
    assert _translate(str(film), "--as-text", "-o", str(target))[0] == 0
    assert len(target.read_text(encoding="utf-8").splitlines()) == len(_FILM.splitlines())


def test_a_structure_without_a_reader_is_refused(tmp_path: Path, film: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Hello", encoding="utf-8")
    code, _, err = _translate(str(page), str(film), "-o", str(tmp_path / "out"))
    assert code == 1
    assert "page.md" in err
    assert "--as-text" in err
    assert not (tmp_path / "out" / "page.de.md").exists()
    assert (tmp_path / "out" / "film.de.srt").exists()


@pytest.mark.slow
def test_pages_go_through_the_journal_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    page, target = tmp_path / "page.html", tmp_path / "page.de.html"
    page.write_text("<p>Good morning.</p><p>Where is the <b>station</b>?</p>", encoding="utf-8")
    target.write_text("my own work", encoding="utf-8")
    command = (str(page), "-o", str(target), "--from", "en")
    code, _, err = _translate(*command)
    assert code == 1
    assert "no run in the journal has written it" in err
    assert target.read_text(encoding="utf-8") == "my own work"
    assert _translate(*command, "--overwrite")[0] == 0
    translated = target.read_text(encoding="utf-8")
    assert "<b>Bahnhof</b>" in translated
    assert "done already" in _translate(*command)[2]
    target.unlink()

    monkeypatch.setattr("pipelines.Translator.translate_lines", lambda *a, **k: iter(()))
    assert _translate(*command)[0] == 0
    assert target.read_text(encoding="utf-8") == translated


_LYRICS = (
    "[ti:Song]\n[00:01.00]I like bread.\n[00:04.50][00:09.00]Where is the station?\n[00:12.00]\n"
)
_SAMI = (
    "<SAMI><HEAD><STYLE><!-- .ENCC {lang: en-US;} --></STYLE></HEAD><BODY>\n"
    "<SYNC Start=1000><P Class=ENCC>I like<br>bread.\n<P Class=KRCC>빵\n"
    "<SYNC Start=3000><P Class=ENCC>&nbsp;\n<sync start='4000'><p class=\"ENCC\"> I am here. </p>\n"
    "</BODY></SAMI>\n"
)


def test_lyrics_keep_their_times_and_names(tmp_path: Path) -> None:
    song = tmp_path / "song.lrc"
    song.write_text(_LYRICS, encoding="utf-8")
    assert _translate(str(song))[0] == 0
    german = _LYRICS.replace("I like bread", "Ich mag Brot")
    german = german.replace("Where is the station", "Wo ist der Bahnhof")
    assert (tmp_path / "song.de.lrc").read_text(encoding="utf-8") == german
    assert _translate(str(song), "--bilingual", "-o", str(tmp_path / "both.lrc"))[0] == 0
    assert "[00:01.00]I like bread.\n[00:01.00]Ich mag Brot.\n" in (
        tmp_path / "both.lrc"
    ).read_text(encoding="utf-8")


def test_sami_keeps_everything_but_what_is_said_in_one_language(tmp_path: Path) -> None:
    film = tmp_path / "film.smi"
    film.write_text(_SAMI, encoding="utf-8")
    code, _, err = _translate(str(film))
    assert (code, "only the cues of ENCC are used; those of KRCC stay" in err) == (0, True)
    german = _SAMI.replace("I like<br>bread", "Ich mag Brot").replace("I am", "Ich bin")
    german = german.replace(" here. ", " hier. ")
    assert (tmp_path / "film.de.smi").read_text(encoding="utf-8") == german


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"app{suffix}", "I like bread.\n") for suffix in (".arb", ".strings", ".properties")),
        *((f"app{suffix}", "I like bread.\n") for suffix in (".plist", ".resx", ".svg", ".py")),
        *((f"app{suffix}", "I like bread.\n") for suffix in (".ts", ".srv3", ".stl", ".adoc")),
        ("app.txt", '{"greeting": "I like bread."}'),
        ("app.txt", '[{"greeting": "I like bread."}]'),
        ("app.txt", '<?xml version="1.0"?>\n<a>I like bread.</a>'),
        ("app.txt", "<!DOCTYPE html>\n<p>I like bread."),
        ("app.txt", '/* Hello */\n"greeting" = "I like bread.";\n'),
        ("app.txt", '# a note\nmsgid "I like bread."\n'),
        ("app.txt", "---\ntitle: I like bread.\n---\n"),
        ("app.txt", "[ti:Song]\n[00:01.00]I like bread.\n"),
        ("app.txt", "{10}{20}I like bread.\n"),
        ("app.txt", "00:00:01:I like bread.\n00:00:04:I like milk.\n"),
        ("app.xyz", "<strings>\n<a>I like bread.</a></strings>"),
        ("app.xyz", "# a note\ngreeting = I like bread.\nfarewell = I like milk.\n"),
    ],
)
def test_a_structure_is_refused_by_name_and_by_content(
    name: str, content: str, tmp_path: Path
) -> None:
    path, target = tmp_path / name, tmp_path / f"out{Path(name).suffix}"
    path.write_text(content, encoding="utf-8")
    code, _, err = _translate(str(path), "-o", str(target))
    assert code != 0
    assert not target.exists()
    assert "--as-text" in err or "cannot be written" in err


@pytest.mark.parametrize(
    "content",
    [
        "{name} likes bread.\n",
        "[door] I like bread.\n",
        "<b>I like</b> bread.\n",
        '"Hello," he said.\n',
        "[12:30] Anna: I like bread.\n",
        "a = b\n",
    ],
)
def test_a_text_that_begins_with_a_mark_is_a_text(content: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.txt"
    path.write_text(content, encoding="utf-8")
    assert _translate(str(path))[0] == 0
