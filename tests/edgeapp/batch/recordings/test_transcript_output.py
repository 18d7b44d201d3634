"""Where results go: stdout, a folder, or the one file that was named."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeapp.batch.find_inputs import FoundInput
from edgeapp.batch.recordings.transcript_output import TranscriptOutput
from edgeapp.documents.transcript_formats import ALL
from pipelines import OptionError, OutputError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files(
    output: str | None, formats: str | None, *inputs: str, target: str | None = None
) -> list[str]:
    destination = TranscriptOutput.of(output, formats, list(map(FoundInput, inputs)), target)
    return [str(file.path) for name in destination.names for file in destination.files(name)]


@pytest.mark.parametrize(
    ("output", "formats", "inputs", "expected"),
    [
        ("a.srt", None, ["talk.mp3"], ["a.srt"]),
        ("a.SRT", None, ["talk.mp3"], ["a.SRT"]),
        ("a.srt", "srt", ["talk.mp3"], ["a.srt"]),
        ("out/a.v2.vtt", None, ["-"], ["out/a.v2.vtt"]),
        ("out", "srt", ["talk.mp3", "b/talk.ogg"], ["out/talk.mp3.srt", "out/talk.ogg.srt"]),
        ("out", "lrc,csv", ["talk.mp3"], ["out/talk.lrc", "out/talk.csv"]),
        ("out.d", "srt", ["talk.mp3"], ["out.d/talk.srt"]),
        ("a.srt/", "srt", ["talk.mp3"], ["a.srt/talk.srt"]),
        ("a.pdf/", "srt", ["talk.mp3"], ["a.pdf/talk.srt"]),
        (".", None, ["talk.mp3"], [f"talk.{fmt}" for fmt in ALL]),
        (None, "srt,json", ["talk.mp3"], ["talk.srt", "talk.json"]),
        (None, "srt,json", ["a/talk.mp3"], ["a/talk.srt", "a/talk.json"]),
        (None, "srt,txt", ["-"], ["stdin.srt", "stdin.txt"]),
        (None, "docx", ["a/talk.mp3"], ["a/talk.docx"]),
        (None, "srt", ["a/x.mp3", "b/x.mp3"], ["a/x.srt", "b/x.srt"]),
        (None, "srt", ["a/x.mp3", ""], ["a/x.srt", ".srt"]),  # the empty name fails by itself
        (None, "srt", ["a/x.mp3", "a/x.ogg", "-"], ["a/x.mp3.srt", "a/x.ogg.srt", "stdin.srt"]),
        (None, None, ["a/x.mp3", "b/x.mp3"], []),
        ("-", "srt", ["a/x.mp3", "b/x.mp3"], []),
        ("a.words.tsv", None, ["talk.mp3"], ["a.words.tsv"]),
        ("a.md", None, ["talk.mp3"], ["a.md"]),
        (None, "srt", ["talk.mp3"], []),
        (None, None, ["talk.mp3"], []),
    ],
)
def test_files(
    output: str | None, formats: str | None, inputs: list[str], expected: list[str]
) -> None:
    assert files(output, formats, *inputs) == expected


def test_an_existing_folder_is_a_folder_whatever_its_name_is(tmp_path: Path) -> None:
    (tmp_path / "a.srt").mkdir()
    assert files("a.srt", "vtt", "talk.mp3") == ["a.srt/talk.vtt"]


def test_a_translation_has_a_file_of_its_own_beside_the_named_one() -> None:
    assert files("x/a.srt", None, "talk.mp3", target="de") == ["x/a.srt", "x/a.de.srt"]
    assert files(".", "srt,json", "talk.mp3", target="de") == [
        "talk.srt", "talk.de.srt", "talk.json",
    ]  # fmt: skip
    assert files("a.words.TSV", None, "talk.mp3", target="de") == ["a.words.TSV", "a.de.words.TSV"]
    assert files(None, "json", "talk.mp3", target="de") == []


def test_results_of_a_folder_lie_beside_its_recordings() -> None:
    found = [FoundInput("in/x.mp3", "x"), FoundInput("in/deep/y.mp3", "deep/y")]
    output = TranscriptOutput.of(None, "srt", found, None)
    paths = [file.path for name in output.names for file in output.files(name)]
    assert paths == [Path("in/x.srt"), Path("in/deep/y.srt")]
    assert output.listing() == f"{paths[0]}, {paths[1]}"
    many = TranscriptOutput.of(None, "all", found, None).listing()
    assert many == f"{2 * len(ALL)} files beside their recordings"


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("no folder")
    output = TranscriptOutput.of(None, "srt", [FoundInput("in/x.mp3", "x")], None)
    with pytest.raises(OutputError, match="in cannot be created"):
        output.prepare()


@pytest.mark.parametrize(
    ("output", "formats", "inputs", "target", "said"),
    [
        ("a.srt", None, ["x.mp3", "y.mp3"], None, "one file for 2 recordings"),
        ("a.pdf", None, ["x.mp3"], None, ".pdf files cannot be written; the formats are txt, vtt"),
        ("a.MP3", None, ["x.mp3"], None, "a folder of that name is a.MP3/"),
        ("a.sbv", "srt", ["x.mp3", "y.mp3"], None, ".sbv files cannot be written"),
        ("a.srt", "vtt", ["x.mp3"], None, "different formats"),
        ("a.srt", "srt,vtt", ["x.mp3"], None, "different formats"),
        ("talk.txt", None, ["talk.txt"], None, "is the input itself"),
        (".", "txt", ["talk.txt"], None, "is the input itself"),
        (None, "txt,srt", ["a/talk.txt"], None, "is the input itself"),
        ("-", "srt,vtt", ["x.mp3"], None, "stdout takes one text"),
        ("-", "docx", ["x.mp3"], None, "stdout takes one text"),
        (None, "srt", ["x.mp3"], "de", "stdout takes one"),
        (None, "txt", ["x.mp3"], "de", "stdout takes one"),
    ],
)
def test_what_cannot_be(
    output: str | None, formats: str | None, inputs: list[str], target: str | None, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        TranscriptOutput.of(output, formats, list(map(FoundInput, inputs)), target)


@pytest.mark.parametrize(
    ("formats", "target", "said"),
    [
        ("srt", None, "needs the language of the second text: --translate-to"),
        ("txt,json", "de", "is for subtitles"),
    ],
)
def test_two_languages_in_one_file_need_both_and_subtitles(
    formats: str, target: str | None, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        TranscriptOutput.of("out", formats, [FoundInput("x.mp3")], target, bilingual=True)


def test_stdout_takes_subtitles_with_both_languages() -> None:
    output = TranscriptOutput.of(None, "vtt", [FoundInput("x.mp3")], "de", bilingual=True)
    assert (output.folder, output.bilingual) == (None, True)
