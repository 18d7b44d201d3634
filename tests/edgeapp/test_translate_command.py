"""`edgeapp translate`: text of the command line, languages, and what fails."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edgeapp.batch.texts.language_check import LanguageCheck
from edgeapp.cli import main
from edgeapp.documents.subtitle_file import subtitle_format

CPU = ("--device", "cpu", "--threads", "1")
SUBTITLES = "1\n00:00:01,000 --> 00:00:03,000\nI am here.\n\n"
GERMAN = "Das ist ein Test.\nWo ist der Bahnhof?\n"


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-models"))
    monkeypatch.chdir(tmp_path)


def run(*arguments: object, capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["translate", *map(str, arguments), *CPU])
    out, err = capfd.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.mark.slow
def test_text_of_the_command_line(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    expected = "Ich bin hier.\n"
    model = ("-m", "demo-en-de")
    assert run("I am here.", *model, capfd=capfd) == (0, expected, "")
    assert run("--text", "I am here.", *model, capfd=capfd) == (0, expected, "")
    two = ("--text", "I am here.", "--text", "I am here.")
    assert run(*two, *model, capfd=capfd) == (0, 2 * expected, "")
    assert run("I am here.", *model, "-o", "here.txt", capfd=capfd) == (0, "", "")
    assert (tmp_path / "here.txt").read_text("utf-8") == expected


def test_a_file_whose_name_has_a_space_is_a_file(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "my talk.txt").write_text("I am here.\n")
    assert run("my talk.txt", "-m", "demo-en-de", capfd=capfd) == (0, "Ich bin hier.\n", "")


def test_a_word_that_names_no_file_gives_a_hint(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("Hello", "-m", "demo-en-de", capfd=capfd)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "Hello: there is no such file; --text" in err
    assert "--text" in err


def test_words_that_are_not_quoted_give_a_hint(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("Good", "morning.", "-m", "demo-en-de", capfd=capfd)
    assert (code, out) == (2, "")
    assert err == (
        'edgeapp: no file is called Good; quote a text: edgeapp translate "Good morning."\n'
    )


@pytest.mark.slow
def test_two_texts_and_a_long_one(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run("I am here.", "I am and/or was here.", "-m", "demo-en-de", capfd=capfd)
    assert (code, out.count("\n")) == (0, 2)
    code, out, _ = run("I am here. " * 60, "-m", "demo-en-de", capfd=capfd)
    assert (code, out.count("\n")) == (0, 1)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("film.srt", ("--format", "json"), "film.srt is subtitles: --format is for text only"),
        ("film.srt", ("--document", "--alignments"), "--document, --alignments are for text only"),
        ("talk.txt", ("--bilingual",), "talk.txt is text: --bilingual is for subtitles only"),
        ("talk.txt", ("--subtitle-style", "bbc"), "--subtitle-style is for subtitles only"),
        (
            "film.srt",
            ("--bilingual", "--as-text"),
            "film.srt is text: --bilingual is for subtitles only",
        ),
    ],
)
def test_an_option_without_effect_is_refused_by_name(
    name: str,
    options: tuple[str, ...],
    said: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / name).write_text(SUBTITLES)
    code, out, err = run(name, "-m", "demo-en-de", *options, capfd=capfd)
    assert (code, out) == (2, "")
    assert err.startswith(f"edgeapp: {name} is ")
    assert said in err


@pytest.mark.slow
def test_subtitles_in_a_pipe_are_subtitles(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "film.srt").write_text(SUBTITLES)
    with (tmp_path / "film.srt").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        code, out, err = run("-m", "demo-en-de", capfd=capfd)
    assert (code, err) == (0, "")
    assert out.startswith("1\n00:00:01,000 --> 00:00:03,000\nIch bin hier.")
    with (tmp_path / "film.srt").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        code, out, _ = run("-m", "demo-en-de", "--as-text", capfd=capfd)
    assert (code, out.count("\n")) == (0, SUBTITLES.count("\n"))


def test_subtitles_under_the_name_of_a_text(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "film.txt").write_text(SUBTITLES)
    code, out, err = run("film.txt", "-m", "demo-en-de", capfd=capfd)
    assert (code, out) == (1, "")
    assert "film.txt holds srt subtitles: rename it to film.srt" in err


@pytest.mark.parametrize(
    ("head", "form"),
    [
        (SUBTITLES.encode(), "srt"),
        (SUBTITLES.replace("\n", "\r\n").encode("utf-8-sig"), "srt"),
        (SUBTITLES.encode("utf-16"), "srt"),
        (b"WEBVTT\n\n00:01.000 --> 00:02.000\nHi\n", "vtt"),
        (b"[Script Info]\n", "ass"),
        (b'<?xml version="1.0"?>\n<tt xmlns="http://www.w3.org/ns/ttml">', "ttml"),
        (b"1\nGood morning.\n", None),
        (b"WEBVTTs are files.\n", None),
        (b"", None),
    ],
)
def test_subtitles_are_known_by_their_beginning(head: bytes, form: str | None) -> None:
    assert subtitle_format(head) == form


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-f", "xx"), "--from xx: unknown language"),
        (("-t", "xx"), "--to xx: unknown language"),
        (("-t", "Klingon"), "--to Klingon: unknown language"),
        (("-f", "srt"), "srt is a format"),
        (("-f", "JSON"), "json is a format"),
        (("-t", "auto"), "--to auto: unknown language"),
    ],
)
def test_languages_are_checked_before_anything_else(
    arguments: tuple[str, str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run("missing.txt", "-m", "missing", *arguments, capfd=capfd)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert "opus-mt" not in err


def test_text_in_another_language_is_noticed_once(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "talk.txt").write_text(GERMAN)
    code, out, err = run("talk.txt", "-m", "demo-en-de", capfd=capfd)
    assert code == 0
    assert out.count("\n") == 2
    assert err == (
        "edgeapp: talk.txt: the text looks like German, but is translated from English; "
        "--from de, without a model, chooses a model for German\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", [("-f", "auto"), ("-f", "AUTO"), ()])
def test_the_language_is_detected(
    source: tuple[str, ...], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also where nothing is said but English, which needs no translation from English."""
    (tmp_path / "talk.txt").write_text(GERMAN)
    code, out, err = run("talk.txt", *source, "-t", "en", capfd=capfd)
    assert code == 0
    assert "test" in out.lower()
    assert out.count("\n") == 2
    assert "talk.txt: detected language: German" in err
    assert "demo-de-en" in err


@pytest.mark.slow
def test_each_input_has_its_own_language(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(GERMAN)
    (tmp_path / "b.txt").write_text("Where is the station? I am here.\n")
    (tmp_path / "c.txt").write_text("12 34\n")
    code, _, err = run("a.txt", "b.txt", "c.txt", "-f", "auto", "-o", "out", capfd=capfd)
    assert code == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"a.en.txt", "b.de.txt"}
    assert "Bahnhof" in (tmp_path / "out/b.de.txt").read_text("utf-8")
    assert "c.txt: the language cannot be told" in err
    assert "edgeapp: 2 done, 1 failed; " in err
    assert "inputs failed" not in err, "the summary has said it"


def test_an_option_that_one_input_rejects_is_that_inputs_failure(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As in transcribe: code 1 for a failed input, and a count."""
    (tmp_path / "a.txt").write_text("I am here.\n")
    code, _, err = run("a.txt", "missing.txt", "-m", "demo-en-de", "-o", "out", capfd=capfd)
    assert code == 1
    assert "edgeapp: 1 done, 1 failed; " in err
    assert err.splitlines()[-1].startswith("edgeapp: failed: missing.txt")


def test_the_check_ends_with_the_first_lines() -> None:
    check = LanguageCheck("en")
    assert check.add("Tom") is None
    for _ in range(30):
        assert check.add("I would like a cup of coffee, and where is the station?") is None
    assert check.add("Das ist ein Test. Wo ist der Bahnhof, bitte?") is None
    assert LanguageCheck(None).add(GERMAN) is None
    assert "German" in (LanguageCheck("en").add(GERMAN) or "")


@pytest.mark.slow
def test_drafts(capfd: pytest.CaptureFixture[str]) -> None:
    """They change no line, and say what they did."""
    lines = ("--text", "I am here.") * 1 + ("--text", "I am here, I am here, I am here.") * 3
    model = ("-m", "demo-en-de", "--compute-type", "float32")
    _, plain, _ = run(*lines, *model, capfd=capfd)
    for drafts in (("--draft", "ngram"), ("--draft-model", "demo-en-de")):
        code, out, err = run(*lines, *model, *drafts, "--verbose", capfd=capfd)
        assert (code, out) == (0, plain)
        assert re.fullmatch(
            r"edgeapp: drafts: \d+ of \d+ tokens accepted.* s (saved|lost).*\n", err
        )
    both = ("--draft", "ngram", "--draft-model", "demo-en-de")
    code, _, err = run(*lines, *model, *both, capfd=capfd)
    assert (code, err.count("\n")) == (2, 1)
    assert "--draft-model and --draft exclude each other" in err
    code, _, err = run(*lines, *model, "--draft-model", "demo", capfd=capfd)
    assert (code, err.count("\n")) == (3, 1)
    assert "cannot translate text" in err


@pytest.mark.slow
def test_choices_of_decoding(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = ("-m", "demo-en-de", "--compute-type", "float32")
    code, out, err = run(
        "--text", "Where is the station?", *model, "--beam-size", "3", "--n-best", "2",
        "--format", "json", "--prefix", "Und", "--suppress-phrase", "Station",
        "--force-phrase", "bitte", "--repetition-penalty", "1.1", "--no-repeat-ngram-size", "3",
        capfd=capfd,
    )  # fmt: skip
    assert (code, err) == (0, "")
    (sentence,) = json.loads(out)["sentences"]
    assert sentence["text"].startswith("Und")
    assert "bitte" in sentence["text"]
    assert [a["text"] for a in sentence["alternatives"]][0] == sentence["text"]
    assert len(sentence["alternatives"]) == 2
    code, _, err = run("--text", "Yes.", *model, "--beam-size", "3", "--n-best", "2", capfd=capfd)
    assert (code, err) == (2, "edgeapp: --n-best is reported in JSON: --format json\n")
    # A setting that does not apply to this output is no error.
    settings = "[translate]\nbeam_size = 2\nn_best = 2\nword_alignments = true\n"
    (tmp_path / "none.toml").write_text(settings)
    assert run("--text", "Yes.", *model, capfd=capfd)[0] == 0
    (tmp_path / "film.srt").write_text(SUBTITLES)
    assert run("film.srt", *model, "-o", "film.de.srt", capfd=capfd)[0] == 0
    assert "|||" not in (tmp_path / "film.de.srt").read_text()


def test_a_cue_whose_times_are_not_understood_is_an_error(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "film.srt").write_text(f"{SUBTITLES}2\n00:00:xx --> 00:00:06\nHello.\n")
    code, out, err = run("film.srt", "-m", "demo-en-de", "-o", "film.de.srt", capfd=capfd)
    assert (code, out) == (1, "")
    assert "film.srt cannot be read as srt: line 6: its times are not understood" in err
    assert not (tmp_path / "film.de.srt").exists()


@pytest.mark.parametrize("name", ["text.txt", "film.srt", "page.html"])
@pytest.mark.parametrize("codec", ["cp1252", "utf-16", "utf-8-sig"])
def test_a_file_means_the_same_in_every_encoding(
    name: str, codec: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = "Die Tür ist grün."
    whole = {"text.txt": f"{said}\n", "film.srt": f"1\n00:00:01,000 --> 00:00:03,000\n{said}\n"}
    content, path = whole.get(name, f"<p>{said}</p>"), tmp_path / name
    path.write_bytes(content.encode(codec))
    assert run(path, "-m", "demo-de-en", "-o", f"out{path.suffix}", capfd=capfd)[0] == 0
    out = (tmp_path / f"out{path.suffix}").read_bytes()
    shown = out.decode(codec if path.suffix == ".html" else "utf-8-sig")
    assert shown == content.replace(said, "The door is green.")


def test_bytes_that_cannot_be_decoded_are_an_error_with_their_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mixed.txt").write_bytes("Grün.\nRot.\n".encode() + b"Gr\xfcn.\n")
    code, out, err = run("mixed.txt", "-m", "demo-de-en", capfd=capfd)
    assert (code, out) == (1, "")
    assert "mixed.txt, line 3: some bytes are not UTF-8 text" in err
    with (tmp_path / "mixed.txt").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        code, out, err = run("-m", "demo-de-en", "--as-text", capfd=capfd)
    assert (code, out.count("\n")) == (1, 2)  # what came before is translated
    assert "stdin, line 3: some bytes are not UTF-8 text" in err


def test_a_text_that_no_installed_model_translates_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text("<p>Bonjour tout le monde</p>", encoding="utf-8")
    for text in ("Bonjour tout le monde", "page.html"):
        code, out, err = run(text, "-t", "de", capfd=capfd)
        assert (code, out) == (3, "")
        assert "detected language: French" in err
        assert "`edgeapp models pull opus-mt-fr-de`" in err
    # In which language of a script a short text is may be open; English it is not.
    (tmp_path / "short.txt").write_text("Привет, как дела?\n", encoding="utf-8")
    for text in ("Привет, как дела?", "short.txt"):
        code, out, err = run(text, "-t", "de", capfd=capfd)
        assert (code, out) == (3, "")
        assert "detected language: Russian (perhaps; --from names another one)" in err
        assert "no translator from Russian into German is on this machine; download" in err
        assert "`edgeapp models pull m2m100-418m`" in err, "it knows all that it may be"
    (tmp_path / "two.txt").write_text("Where is it now?\nПривет!\n", encoding="utf-8")
    code, out, err = run("two.txt", "-t", "de", "-o", "-", capfd=capfd)
    assert (code, out.splitlines()[1]) == (0, "Привет!")
    assert 'line 2: "Привет!": not in the model\'s vocabulary' in err
    # What is not sure, is in English, or in the language of the translation, is taken as before.
    for text, expected in (("Where is it?", "Wo ist es?"), ("I am here.", "Ich bin hier.")):
        code, out, err = run(text, "-t", "de", capfd=capfd)
        assert (code, out.strip()) == (0, expected), err
    assert run("Das ist ein Test, und er ist gut.", "-t", "de", capfd=capfd)[0] == 0


def test_an_encoding_is_named_or_told_or_its_file_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    short, cue = "Привет!\n", "1\n00:00:01,000 --> 00:00:02,000\n"
    (tmp_path / "short.txt").write_bytes(short.encode("koi8-r"))
    (tmp_path / "short.srt").write_bytes((cue + short).encode("koi8-r"))
    (tmp_path / "short.html").write_bytes(f"<p>{short}</p>".encode("koi8-r"))
    for name in ("short.txt", "short.srt", "short.html"):
        code, out, err = run(name, "-m", "demo-en-de", capfd=capfd)
        assert (code, out) == (1, "")
        assert f"{name}, line {3 if '.srt' in name else 1}: some bytes are not UTF-8 text" in err
        assert "--encoding" in err
        named = ("--encoding", "KOI8-R", "-o", f"out{Path(name).suffix}")
        code, _, err = run(name, "-m", "demo-en-de", *named, capfd=capfd)
        assert code == 0, err
        codec = "koi8-r" if name.endswith(".html") else "utf-8"
        assert "Привет!" in Path(named[-1]).read_text(codec)
    code, _, err = run("short.txt", "-t", "de", "--encoding", "klingon", capfd=capfd)
    assert code == 2
    assert "--encoding klingon: there is no such encoding" in err

    long = "Дети приходят каждую неделю в школу и читают книги. Она живёт одна в доме.\n"
    (tmp_path / "long.txt").write_bytes(long.encode("koi8-r"))
    code, out, err = run("long.txt", "-t", "de", capfd=capfd)
    assert (code, out) == (3, "")
    assert "models pull opus-mt-ru-de" in err


def test_a_text_of_settings_is_refused_as_a_file_of_settings_is(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "app.txt").write_text(
        "# The app\ngreeting=I like bread.\nfood.milk = I like milk.\n"
    )
    (tmp_path / "talk.txt").write_text("Bread = I like bread.\nGood morning.\n")
    code, out, err = run("app.txt", "-m", "demo-en-de", capfd=capfd)
    assert (code, out) == (1, "")
    assert "app.txt holds settings, whose structure translation line by line would spoil" in err
    code, out, _ = run("talk.txt", "-m", "demo-en-de", capfd=capfd)
    assert (code, out.count("\n")) == (0, 2)
