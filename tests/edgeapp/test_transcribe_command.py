"""`edgeapp transcribe`: what is printed and written, with the bundled model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgeapp.cli import main
from edgeapp.exit_codes import InputFailures
from pipelines import InputError, ModelError, OptionError
from pipelines.hub import assets_folder, bundled_folder

QUESTION = assets_folder() / "samples" / "question.flac"
CPU = ("-m", "demo", "-l", "en", "--device", "cpu", "--threads", "1")


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.chdir(tmp_path)


def run(
    *arguments: str, audio: Path = QUESTION, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["transcribe", str(audio), *arguments, *CPU])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.mark.slow
def test_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`-o a.srt` is a file, not a folder of that name."""
    assert run("-o", "a.srt", capsys=capsys) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["a.srt"]
    assert (tmp_path / "a.srt").read_text("utf-8").startswith("1\n00:00:0")


@pytest.mark.slow
def test_files_beside_the_recording_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "talks"
    folder.mkdir()
    audio = Path(shutil.copy(QUESTION, folder))
    code, out, err = run("-f", "srt,words.tsv", audio=audio, capsys=capsys)
    assert (code, out) == (0, "")
    srt, words = folder / "question.srt", folder / "question.words.tsv"
    assert err == f"edgeapp: results go to {srt}, {words}; -o names another folder\n"
    assert {path.name for path in folder.iterdir()} == {audio.name, srt.name, words.name}
    first = words.read_text("utf-8").splitlines()[1].split("\t")
    assert int(first[0]) < int(first[1])
    assert 0 < float(first[3]) <= 1


@pytest.mark.slow
def test_recordings_of_a_folder_have_results_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(QUESTION, tmp_path)
    assert run("-f", "docx", audio=tmp_path, capsys=capsys)[:2] == (0, "")
    assert (tmp_path / "question.docx").read_bytes().startswith(b"PK")
    code, _, err = run(audio=tmp_path, capsys=capsys)
    assert (code, "-f txt writes beside them" in err) == (2, True)


@pytest.mark.slow
def test_text_with_times_beside_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("--verbose", "-o", "a.json", "-p", capsys=capsys)
    assert (code, err) == (0, "")
    assert out.startswith("[00:00.")
    assert "train to Boston" in out
    content = (tmp_path / "a.json").read_text("utf-8")
    assert content.startswith('{\n    "text"')
    assert json.loads(content)["language"] == "en"


@pytest.mark.slow
def test_text_with_and_without_times(capsys: pytest.CaptureFixture[str]) -> None:
    _, timed, _ = run("--verbose", "True", capsys=capsys)
    _, plain, _ = run("--verbose", "False", capsys=capsys)
    _, default, _ = run(capsys=capsys)
    assert timed.partition("] ")[2] == plain == default
    assert timed.startswith("[")


@pytest.mark.slow
def test_lyrics_and_tables_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-f", "LRC", capsys=capsys)[1].startswith("[00:00.")
    assert run("-f", "Csv", capsys=capsys)[1].startswith("start,end,text\n")


@pytest.mark.parametrize(
    ("errors", "code", "count"),
    [
        ([None, None], 0, ""),
        ([OptionError("no"), None], 1, "edgeapp: 1 of 2 inputs failed\n"),
        ([InputError("no"), ValueError("no")], 1, "edgeapp: 2 of 2 inputs failed\n"),
        ([ModelError("no"), OptionError("no")], 3, "edgeapp: 2 of 2 inputs failed\n"),
        ([OptionError("no")], 1, ""),
    ],
)
def test_failed_inputs_are_counted_and_have_one_code(
    errors: list[Exception | None], code: int, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """transcribe and translate share this: an option that an input rejects is not a usage error."""
    failures = InputFailures(len(errors), debug=False)
    for number, error in enumerate(errors):
        with failures.catch(f"{number}.mp3"):
            if error is not None:
                raise error
    assert failures.exit_code() == code
    assert capsys.readouterr().err.endswith(count)


def test_a_closed_pipe_ends_all_inputs() -> None:
    with pytest.raises(BrokenPipeError), InputFailures(2, debug=False).catch("a.mp3"):
        raise BrokenPipeError


@pytest.mark.slow
def test_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    _, plain, _ = run("--verbose", "True", capsys=capsys)
    code, out, err = run("--verbose", "True", "--draft", "ngram", capsys=capsys)
    assert (code, out) == (0, plain)
    assert err.startswith("edgeapp: drafts: ")
    code, _, err = run("--draft-model", "demo-en-de", capsys=capsys)
    assert (code, err.count("\n")) == (3, 1)
    assert "cannot recognize speech" in err


@pytest.mark.slow
def test_choices_of_decoding(capsys: pytest.CaptureFixture[str]) -> None:
    flags = (
        "--beam-size", "3", "--n-best", "2", "--repetition-penalty", "1.1",
        "--no-repeat-ngram-size", "3", "--suppress-phrase", "Boston", "--force-phrase", "my friend",
    )  # fmt: skip
    code, out, err = run("-f", "json", *flags, capsys=capsys)
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert "Boston" not in content["text"]
    assert "my friend" in content["text"]
    assert len(content["segments"][0]["alternatives"]) == 2
    code, _, err = run("--beam-size", "3", "--n-best", "2", capsys=capsys)
    assert (code, err) == (2, "edgeapp: --n-best is reported in JSON: -f json\n")


@pytest.mark.slow
def test_an_english_only_model_says_so_once_if_no_language_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(bundled_folder("demo"), tmp_path / "mine.en")
    shutil.copy(QUESTION, tmp_path / "other.flac")
    note = "understands English only; for other languages choose a multilingual model, such as base"
    command = ["other.flac", "-m", "./mine.en", "--no-journal", "-o", "out", "-f", "txt"]
    for language, count in ((), 1), (("-l", "en"), 0):
        with pytest.raises(SystemExit) as stop:
            main(["transcribe", str(QUESTION), *command, "--overwrite", *language])
        assert stop.value.code == 0
        assert capsys.readouterr().err.count(note) == count
