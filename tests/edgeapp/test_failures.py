"""An input that fails is named, the others are done, and no empty result is left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from edgeapp.cli import main
from edgeapp.exit_codes import named
from pipelines.asr import DamagedAudio, transcriber
from pipelines.asr.audio import decode
from pipelines.hub import assets_folder
from pipelines.notices import notice
from pipelines.translation import Translation, Translator
from pipelines.translation.decode import SentenceDecoder, SentenceRequest

pytestmark = pytest.mark.usefixtures("kernels")

SAMPLES = assets_folder() / "samples"
CPU = ("--device", "cpu", "--threads", "1")


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-models"))
    monkeypatch.chdir(tmp_path)


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    return int(stop.value.code or 0)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def damaged(name: str, folder: Path) -> Path:
    """A bundled model with one NaN among its weights."""
    shutil.copytree(assets_folder() / "models" / name, folder)
    weights = load_file(folder / "model.safetensors")
    key = next(key for key in weights if "decoder" in key and key.endswith("layer_norm.bias"))
    weights[key] = weights[key].clone()
    weights[key][0] = torch.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the decoding of bad.flac raise an error."""
    decode_path = decode.decode_path

    def fail_with(error: BaseException) -> None:
        def failing(path: str, *limits: Any) -> Any:
            if "bad" in path:
                raise error
            return decode_path(path, *limits)

        monkeypatch.setattr(decode, "decode_path", failing)

    return fail_with


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (IndexError("tuple index out of range"), "IndexError: tuple index out of range"),
        (MemoryError(), "not enough memory (MemoryError)"),
        (RecursionError("maximum depth\nand more"), "RecursionError: maximum depth)"),
        (OSError(5, "Input/output error", "/var/secret"), "OSError: Input/output error)"),
        (TypeError(), "unexpected error (TypeError)"),
    ],
)
def test_a_failed_recording_does_not_stop_the_others(
    error: Exception, said: str, load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "bad", "c"):
        shutil.copy(SAMPLES / "question.flac", tmp_path / f"{name}.flac")
    load(error)
    files = ("a.flac", "bad.flac", "c.flac")
    assert run("transcribe", *files, "-m", "demo", "-f", "txt", "-o", "out", *CPU) == 1
    assert names_in(tmp_path / "out") == {"a.txt", "c.txt"}
    line, summary, named_again = capsys.readouterr().err.splitlines()
    assert line.startswith("edgeapp: bad.flac: ")
    assert said in line
    assert line.endswith("; --debug shows the traceback")
    assert "secret" not in line
    assert summary.startswith("edgeapp: 2 done, 1 failed; ")
    assert named_again == line.replace("edgeapp: ", "edgeapp: failed: ").partition("; --debug")[0]


def test_debug_shows_the_traceback(
    load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(SAMPLES / "question.flac", tmp_path / "bad.flac")
    load(IndexError("oh"))
    assert run("transcribe", "bad.flac", "-m", "demo", "--debug", *CPU) == 1
    said = capsys.readouterr().err
    assert said.startswith("edgeapp: bad.flac: unexpected error (IndexError: oh)\n")
    assert "in load_audio" in said


def test_ctrl_c_ends_the_run(load: Any, tmp_path: Path) -> None:
    for name in ("bad", "c"):
        shutil.copy(SAMPLES / "question.flac", tmp_path / f"{name}.flac")
    load(KeyboardInterrupt())
    files = ("bad.flac", "c.flac")
    assert run("transcribe", *files, "-m", "demo", "-f", "txt", "-o", "out", *CPU) == 130
    assert names_in(tmp_path / "out") == set()


@pytest.mark.slow
@pytest.mark.parametrize("language", [(), ("-l", "en"), ("-l", "English")])
def test_speech_in_the_target_language_is_no_error(
    language: tuple[str, ...], tmp_path: Path
) -> None:
    arguments = ("-m", "demo", *language, "--translate-to", "en", "-f", "txt", "-o", "out", *CPU)
    assert run("transcribe", SAMPLES / "question.flac", *arguments) == 0
    original, translation = ((tmp_path / "out" / f"question.{end}") for end in ("txt", "en.txt"))
    assert translation.read_text().split() == original.read_text().split() != []


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_model_that_computes_nan_writes_nothing(
    batch_size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = damaged("demo", tmp_path / "model")
    options = ("-f", "all", "-o", "out", "-l", "en", "--batch-size", batch_size)
    assert run("transcribe", SAMPLES / "question.flac", "-m", model, *options, *CPU) == 1
    assert names_in(tmp_path / "out") == set()
    (line,) = capsys.readouterr().err.splitlines()
    assert "question.flac: the speech from 0.0 to 3." in line
    assert "computed NaN" in line
    assert "float32" in line


@pytest.mark.slow
def test_segments_before_an_error_are_kept_in_a_part_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pipelines.engine import LoadedModel

    encode, count = LoadedModel.encode, 0

    def nan_from_the_second_on(self: LoadedModel, sources: Any, priority: int = 0) -> Any:
        nonlocal count
        memories = encode(self, sources, priority)
        for memory in memories:
            count += 1
            if count > 1:
                with torch.inference_mode():
                    memory.values[0].fill_(torch.nan)
        return memories

    monkeypatch.setattr(LoadedModel, "encode", nan_from_the_second_on)
    assert (
        run("transcribe", SAMPLES / "story.flac", "-m", "demo", "-f", "txt", "-o", "o", *CPU) == 1
    )
    assert names_in(tmp_path / "o") == {"story.txt.part"}
    assert (tmp_path / "o" / "story.txt.part").read_text().strip()
    said = capsys.readouterr().err
    assert "edgeapp: story: what was finished is in o, in files that end with .part" in said
    assert "could not be recognized: the model computed NaN" in said
    assert "nor could the speech from" in said
    count = 0
    shutil.copy(SAMPLES / "story.flac", "story.flac")
    assert run("transcribe", "story.flac", "-m", "demo", "-f", "txt,srt", *CPU) == 1
    assert f"what was finished is in {tmp_path}, in files" in capsys.readouterr().err
    # Another recording of the same name neither replaces nor deletes what was finished.
    kept = (tmp_path / "o" / "story.txt.part").read_bytes()
    monkeypatch.setattr(LoadedModel, "encode", encode)
    (tmp_path / "other").mkdir()
    shutil.copy(SAMPLES / "question.flac", tmp_path / "other" / "story.flac")
    again = ("-m", "demo", "-f", "txt", "-o", "o", *CPU)
    assert run("transcribe", tmp_path / "other" / "story.flac", *again) == 1
    assert "story.txt.part holds the result of" in capsys.readouterr().err
    assert (tmp_path / "o" / "story.txt.part").read_bytes() == kept
    assert run("transcribe", SAMPLES / "story.flac", *again) == 0
    assert names_in(tmp_path / "o") == {"story.txt"}


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 8])
def test_warnings_of_a_recording_come_with_its_results(
    batch_size: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line without a source path on the command line; Python warnings for programs."""
    decode_path = decode.decode_path

    def damaged_path(path: str, *limits: Any) -> Any:
        notice(f"{Path(path).name} is damaged", DamagedAudio)
        return decode_path(path, *limits)

    monkeypatch.setattr(decode, "decode_path", damaged_path)
    shutil.copy(SAMPLES / "question.flac", tmp_path / "cut.flac")
    arguments = ("-m", "demo", "-f", "txt", "-o", "out", "--batch-size", batch_size, *CPU)
    assert run("transcribe", "cut.flac", *arguments) == 0
    assert capsys.readouterr().err == "edgeapp: cut.flac is damaged\n"
    with pytest.warns(DamagedAudio, match=r"^cut\.flac is damaged$"):
        found = transcriber.Transcriber("demo", device="cpu").transcribe(
            "cut.flac", batch_size=batch_size
        )
    assert found.warnings == ("cut.flac is damaged",)
    found.close()


@pytest.mark.slow
def test_a_text_for_which_nan_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = damaged("demo-en-de", tmp_path / "model")
    (tmp_path / "a.txt").write_text("\nI am tired.\n")
    (tmp_path / "b.txt").write_text("\n\n")
    assert run("translate", "a.txt", "b.txt", "-m", model, "-o", "out", "--no-journal", *CPU) == 1
    assert names_in(tmp_path / "out") == {"a.de.txt.part", "b.de.txt"}
    assert (tmp_path / "out" / "a.de.txt.part").read_text() == "\n"
    said = capsys.readouterr().err
    assert 'a.txt, line 2: "I am tired." could not be translated: the model computed NaN' in said


@pytest.fixture
def nan_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """For sentences with "bad" in them NaN is computed."""
    submit = SentenceDecoder.submit

    def with_nan(self: Any, request: SentenceRequest, encoded: Any) -> Any:
        if "bad" in request.source:
            with torch.inference_mode():
                encoded.values[0].fill_(torch.nan)
        return submit(self, request, encoded)

    monkeypatch.setattr(SentenceDecoder, "submit", with_nan)


@pytest.mark.slow
@pytest.mark.usefixtures("nan_lines")
def test_a_line_for_which_nan_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named by its number, and its line of the output is empty; the others are done."""
    lines = ["Good morning.", "", "A bad one.", "Good morning.", "Another bad one.", "I am tired."]
    (tmp_path / "a.txt").write_text("\n".join([*lines, ""]))
    arguments = ("translate", "a.txt", "-m", "demo-en-de", *CPU)
    assert run(*arguments, "-o", "a.de.txt") == 1
    found = (tmp_path / "a.de.txt").read_text()
    first, empty, failed, fourth, also_failed, last, end = found.split("\n")
    assert (first, fourth) == ("Guten Morgen!", "Guten Morgen!")
    assert last
    assert {empty, failed, also_failed, end} == {""}
    assert names_in(tmp_path) == {"a.txt", "a.de.txt"}
    third, fifth, summary = capsys.readouterr().err.splitlines()
    assert third.startswith('edgeapp: a.txt, line 3: "A bad one." could not be translated: ')
    assert fifth.startswith('edgeapp: a.txt, line 5: "Another bad one." could not be translated: ')
    assert summary == "edgeapp: a.txt: 2 lines could not be translated; empty in the output"
    assert run(*arguments) == 1
    assert capsys.readouterr().out == found
    assert run(*arguments, "--format", "json") == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["source"] for row in rows] == lines
    assert rows[2]["text"] == ""
    assert "computed NaN" in rows[2]["warnings"][0]


@pytest.mark.slow
@pytest.mark.usefixtures("nan_lines")
def test_ten_failed_lines_in_a_row_end_an_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("Good morning.\n" + 40 * "A bad one.\n")
    (tmp_path / "b.txt").write_text("Good morning.\n")
    assert (
        run("translate", "a.txt", "b.txt", "-m", "demo-en-de", "-o", "out", "--no-journal", *CPU)
        == 1
    )
    assert names_in(tmp_path / "out") == {"a.de.txt.part", "b.de.txt"}
    assert (tmp_path / "out" / "a.de.txt.part").read_text() == "Guten Morgen!\n"
    said = capsys.readouterr().err.splitlines()
    assert sum('"A bad one." could not be translated' in line for line in said) == 10
    assert "edgeapp: a.txt: 10 lines in a row could not be translated" in said
    assert said[-2].startswith("edgeapp: 1 done, 1 failed; ")
    assert said[-1] == "edgeapp: failed: a.txt: 10 lines in a row could not be translated"
    assert said[9].startswith("edgeapp: a.txt, line 11: ")


@pytest.mark.slow
def test_a_failed_line_in_worker_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker fails with all its lines; the command finds the line among them."""
    model = damaged("demo-en-de", tmp_path / "model")
    (tmp_path / "a.txt").write_text("\nGood morning.\n")
    assert run("translate", "a.txt", "-m", model, "-o", "out.txt", "--workers", 2, *CPU) == 1
    said = capsys.readouterr().err
    assert 'a.txt, line 2: "Good morning." could not be translated: the model computed NaN' in said


@pytest.mark.slow
@pytest.mark.parametrize("error", [MemoryError(), RecursionError("deep"), IndexError("oh")])
def test_a_failed_text_does_not_stop_the_others(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    translate_lines = Translator.translate_lines

    def failing(
        self: Translator, lines: Iterable[str | None], options: Any
    ) -> Iterator[Translation]:
        for translation in translate_lines(self, lines, options):
            if translation.source == "Bad.":
                raise error
            yield translation

    monkeypatch.setattr(Translator, "translate_lines", failing)
    (tmp_path / "a.txt").write_text("Good morning.\nBad.\n")
    (tmp_path / "b.txt").write_text("Good morning.\n")
    assert (
        run("translate", "a.txt", "b.txt", "-m", "demo-en-de", "-o", "out", "--no-journal", *CPU)
        == 1
    )
    assert names_in(tmp_path / "out") == {"a.de.txt.part", "b.de.txt"}
    assert (tmp_path / "out" / "b.de.txt").read_text() == "Guten Morgen!\n"
    kept, line, summary, named_again = capsys.readouterr().err.splitlines()
    assert summary.startswith("edgeapp: 1 done, 1 failed; ")
    assert named_again.startswith("edgeapp: failed: a.txt: ")
    assert "the translated lines are in out/a.de.txt.part" in kept
    assert line.startswith("edgeapp: a.txt: ")
    assert type(error).__name__ in line
    assert line.endswith("; --debug shows the traceback")


@pytest.mark.slow
def test_a_text_that_failed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal has what was translated; no part of a result lies beside the others."""
    (tmp_path / "a.txt").write_text("Good morning.\nGood morning.\nBad.\n")
    arguments = ("translate", "a.txt", "-m", "demo-en-de", "-o", "out/", *CPU)
    with monkeypatch.context() as patch:
        translate_lines = Translator.translate_lines

        def failing(
            self: Translator, lines: Iterable[str | None], options: Any
        ) -> Iterator[Translation]:
            for translation in translate_lines(self, lines, options):
                if translation.source == "Bad.":
                    raise MemoryError
                yield translation

        patch.setattr(Translator, "translate_lines", failing)
        assert run(*arguments) == 1
    assert names_in(tmp_path / "out") == set()
    capsys.readouterr()
    assert run(*arguments) == 0
    assert "resuming after 2 translated lines" in capsys.readouterr().err
    lines = (tmp_path / "out" / "a.de.txt").read_text().splitlines()
    assert lines[:2] == ["Guten Morgen!"] * 2
    assert len(lines) == 3


def test_a_short_name_inside_a_word_does_not_count_as_named() -> None:
    assert named("the audio is damaged", "a") == "a: the audio is damaged"
    assert named("cannot read a: no audio", "a") == "cannot read a: no audio"
    assert named("bad.flac is damaged", "bad.flac") == "bad.flac is damaged"
