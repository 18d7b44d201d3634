"""`edgeapp translate` over many files: the journal, folders, and files that are not replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from edgeapp.batch.outputs import reserved
from edgeapp.cli import app
from pipelines import TranslateOptions, Translation, Translator

_FILM = "".join(
    f"{n}\n00:00:{2 * n:02},000 --> 00:00:{2 * n + 1:02},500\nThe weather is nice {word}.\n\n"
    for n, word in enumerate(("today", "here", "now", "again"), start=1)
)
_LINES = "Good morning.\nWhere is the station?\n\nI am tired.\n"


@pytest.fixture(autouse=True)
def _own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "in" / "deep"
    inside.mkdir(parents=True)
    (inside / "film.srt").write_text(_FILM, encoding="utf-8")
    (tmp_path / "in" / "talk.txt").write_text(_LINES, encoding="utf-8")
    (tmp_path / "in" / "picture.png").write_bytes(b"\0")
    return tmp_path / "in"


def translate(*arguments: str) -> tuple[int, str, str]:
    command = ["translate", "-m", "demo-en-de", "--compute-type", "int8", "--threads", "1"]
    result = CliRunner().invoke(app, [*command, *arguments])
    return result.exit_code, result.stdout, result.stderr


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


class Interrupted:
    """A translator that is interrupted after some texts of each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, texts: int) -> None:
        self.translated = 0
        whole = Translator.translate_lines

        def some(
            translator: Translator,
            lines: Iterable[str | None],
            options: TranslateOptions | None = None,
        ) -> Iterator[Translation]:
            for number, translation in enumerate(whole(translator, lines, options)):
                if number == texts:
                    raise KeyboardInterrupt
                self.translated += 1
                yield translation

        monkeypatch.setattr(Translator, "translate_lines", some)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["talk.txt", "deep/film.srt"])
def test_an_ended_run_goes_on_and_ends_with_equal_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source = str(folder / name)
    assert translate(source, "-o", "whole/", "--no-journal")[0] == 0
    with monkeypatch.context() as patch:
        run = Interrupted(patch, texts=2)
        assert translate(source, "-o", "out/")[0] == 130
        assert contents(tmp_path / "out") == {}, "an output appears as a whole"
        code, _, err = translate(source, "-o", "out/")
        assert "resuming after 2" in err
        assert translate(source, "-o", "out/")[0] in (0, 130)
        assert run.translated <= 5, "each text was translated once"
    assert translate(source, "-o", "out/")[0] == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    code, _, err = translate(source, "-o", "out/")
    assert code == 0
    assert "done already" in err


@pytest.mark.slow
def test_folders_plans_and_failures(folder: Path, tmp_path: Path) -> None:
    (folder / "empty.srt").write_text("no cue\n")
    _, plan, _ = translate("in", "-o", "out", "--dry-run")
    assert [line.rpartition(": ")[2] for line in plan.splitlines()] == ["translate"] * 3
    code, _, err = translate("in", "-o", "out")
    assert code == 1
    assert set(contents(tmp_path / "out")) == {"talk.de.txt", "deep/film.de.srt"}
    assert "empty.srt" in err
    (folder / "empty.srt").write_text(_FILM.replace("nice", "bad"))
    code, _, err = translate("in", "-o", "out", "--retry-failed")
    assert code == 0
    assert (tmp_path / "out" / "empty.de.srt").exists()
    assert "talk" not in err
    (tmp_path / "list").write_text("in/talk.txt\n")
    assert translate("--from-list", "list", "-o", "out")[0] == 0


@pytest.mark.slow
def test_translations_beside_their_films_are_no_inputs(folder: Path) -> None:
    assert translate(str(folder / "deep"))[0] == 0
    code, _, err = translate(str(folder / "deep"))
    assert code == 0
    assert err.count("done already") == 1
    assert set(contents(folder / "deep")) == {"film.srt", "film.de.srt"}


@pytest.mark.slow
def test_another_style_is_written_without_translating(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = str(folder / "deep" / "film.srt")
    assert translate(film)[0] == 0
    Interrupted(monkeypatch, texts=0)
    assert translate(film, "--bilingual")[0] == 0
    written = (folder / "deep" / "film.de.srt").read_text("utf-8")
    assert "The weather is nice today." in written


@pytest.mark.slow
def test_a_file_of_other_origin_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    source, target = str(folder / "talk.txt"), tmp_path / "mine.txt"
    target.write_text("my own work\n")
    code, _, err = translate(source, "-o", str(target))
    assert code == 1
    assert "mine.txt exists, and no run in the journal has written it: --overwrite" in err
    assert target.read_text() == "my own work\n"
    assert translate(source, "-o", str(target), "--overwrite")[0] == 0
    written = target.read_bytes()
    # Another result for the same file: it is ours, and replaced; edited, it is not.
    assert translate(source, "-o", str(target), "--format", "tsv")[0] == 0
    assert target.read_bytes() != written
    target.write_text(target.read_text("utf-8") + "corrected\n", "utf-8")
    code, _, err = translate(source, "-o", str(target), "--format", "json")
    assert code == 1
    assert "mine.txt was edited since it was written: --overwrite" in err
    assert target.read_text("utf-8").endswith("corrected\n")


def test_a_full_disk_is_found_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    Interrupted(monkeypatch, texts=0)
    code, _, err = translate(str(folder / "talk.txt"), "-o", "out.txt")
    assert code == 1
    assert "has 1 MB left" in err


@pytest.mark.slow
def test_an_edited_result_of_a_done_job_fails_by_name(folder: Path, tmp_path: Path) -> None:
    (folder / "page.html").write_text("<p>Good morning.</p>", encoding="utf-8")
    names = {"talk.txt": "talk.de.txt", "deep/film.srt": "film.de.srt", "page.html": "page.de.html"}
    for name, written in names.items():
        command = (str(folder / name), "-o", "out/")
        assert translate(*command)[0] == 0
        result = tmp_path / "out" / written
        content = result.read_bytes()
        result.write_bytes(content + b" ")
        code, _, err = translate(*command)
        assert (code, "done already" in err) == (1, False)
        assert f"{written} was edited since it was written: --overwrite replaces it" in err
        _, out, _ = translate(*command, "--dry-run")
        assert f"refused: out/{written} was edited since" in out
        assert result.read_bytes() == content + b" "
        assert translate(*command, "--overwrite")[0] == 0
        assert result.read_bytes() == content
        result.write_bytes(b"")  # An empty file is replaced.
        assert translate(*command)[0] == 0
        assert result.read_bytes() == content


@pytest.mark.slow
def test_without_a_journal_no_existing_file_is_replaced(folder: Path) -> None:
    for name in ("talk.txt", "deep/film.srt"):
        command = (str(folder / name), "-o", "out/", "--no-journal")
        assert translate(*command)[0] == 0
        code, _, err = translate(*command)
        assert code == 1
        assert f"{Path(name).stem}.de{Path(name).suffix} exists" in err


def test_a_result_of_another_text_of_the_same_name_is_kept(tmp_path: Path) -> None:
    for day, said in (("monday", "Good morning."), ("tuesday", "Where is the station?")):
        (tmp_path / day).mkdir()
        (tmp_path / day / "talk.txt").write_text(f"{said}\n", encoding="utf-8")
    assert translate("monday/talk.txt", "-o", "out/")[0] == 0
    code, _, err = translate("tuesday/talk.txt", "-o", "out/")
    assert code == 1
    assert f"talk.de.txt holds the result of {tmp_path}/monday/talk.txt: --overwrite" in err
    assert (tmp_path / "out" / "talk.de.txt").read_text("utf-8") == "Guten Morgen!\n"
    assert translate("tuesday/talk.txt", "-o", "out/", "--no-journal")[0] == 1
    assert translate("tuesday/talk.txt", "-o", "out/", "--overwrite")[0] == 0


def test_a_text_whose_result_another_run_writes_fails_at_once(tmp_path: Path) -> None:
    (tmp_path / "talk.txt").write_text("Good morning.\n", encoding="utf-8")
    with reserved([tmp_path / "talk.de.txt"]):
        for more in ((), ("--no-journal",)):
            code, _, err = translate("talk.txt", "-o", "talk.de.txt", *more)
            assert code == 1
            assert "talk.de.txt is being written by another run" in err
    name = "ж" * 124 + "y.srt"
    (tmp_path / name).write_text("1\n00:00:01,000 --> 00:00:02,000\nGood morning.\n")
    assert translate(name)[0] == 0
    (written,) = tmp_path.glob("*.de.srt")
    assert len(written.name.encode()) <= 255


def test_lines_of_another_text_are_kept_without_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day, said in (("monday", "Good morning.\nGood night."), ("tuesday", "Thank you.")):
        (tmp_path / day).mkdir()
        (tmp_path / day / "talk.txt").write_text(f"{said}\n", encoding="utf-8")
    with monkeypatch.context() as patch:
        Interrupted(patch, texts=1)
        translate("monday/talk.txt", "-o", "out/", "--no-journal")
    part = tmp_path / "out" / "talk.de.txt.part"
    assert part.read_text("utf-8") == "Guten Morgen!\n"
    code, _, err = translate("tuesday/talk.txt", "-o", "out/", "--no-journal")
    assert code == 1
    assert f"{part.name} exists, and no run in the journal has written it: --overwrite" in err
    assert part.read_text("utf-8") == "Guten Morgen!\n"
    assert translate("tuesday/talk.txt", "-o", "out/", "--no-journal", "--overwrite")[0] == 0


def test_texts_of_the_command_line_replace_only_themselves(tmp_path: Path) -> None:
    for said, code in (("Good morning.", 0), ("Good morning.", 0), ("Thank you.", 1)):
        assert translate("--text", said, "-o", "out.txt")[0] == code
    assert (tmp_path / "out.txt").read_text("utf-8") == "Guten Morgen!\n"
