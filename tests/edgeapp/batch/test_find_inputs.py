"""Folders, patterns and lists stand for files."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeapp.batch.find_inputs import MEDIA_SUFFIXES, FoundInput, find_inputs, read_list
from edgeapp.batch.recordings.transcript_output import TranscriptOutput
from pipelines import InputError, OptionError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.mp3", "notes.txt", "day/b.WAV", "day/b.flac", ".hidden/c.mp3", "x[1].mp3"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_a_folder_stands_for_its_recordings(folder: Path) -> None:
    found = find_inputs([str(folder)], MEDIA_SUFFIXES)
    assert [(Path(each.path).relative_to(folder).as_posix(), each.name) for each in found] == [
        ("a.mp3", "a"),
        ("day/b.WAV", "day/b.WAV"),
        ("day/b.flac", "day/b.flac"),
        ("x[1].mp3", "x[1]"),
    ]


def test_patterns_and_repetitions(folder: Path) -> None:
    names = [str(folder / "*.mp3"), str(folder / "a.mp3"), "-", str(folder / "x[1].mp3")]
    found = find_inputs(names, MEDIA_SUFFIXES)
    assert [Path(each.path).name for each in found] == ["a.mp3", "x[1].mp3", "-"]


def test_names_that_stand_for_nothing(folder: Path) -> None:
    (folder / "empty").mkdir()
    names = [str(folder / "empty"), str(folder / "*.ogg"), str(folder / "a.mp3")]
    empty, unmatched, good = find_inputs(names, MEDIA_SUFFIXES)
    assert "no file in this folder" in (empty.problem or "")
    assert "no file matches" in (unmatched.problem or "")
    assert good.problem is None


def test_a_list_is_relative_to_its_folder(folder: Path) -> None:
    (folder / "list.txt").write_text("# tonight\na.mp3\n\nday/b.flac\n")
    names = read_list(folder / "list.txt")
    assert names == [str(folder / "a.mp3"), str(folder / "day/b.flac")]
    (folder / "list.txt").write_text("# nothing\n")
    with pytest.raises(InputError, match="names no file"):
        read_list(folder / "list.txt")


def test_results_of_a_folder_lie_as_its_recordings_do(folder: Path) -> None:
    found = find_inputs([str(folder)], MEDIA_SUFFIXES)
    output = TranscriptOutput.of(str(folder / "out"), "srt", found, None)
    output.prepare()
    paths = [file.path for name in output.names for file in output.files(name)]
    assert [path.relative_to(folder / "out").as_posix() for path in paths] == [
        "a.srt",
        "day/b.WAV.srt",
        "day/b.flac.srt",
        "x[1].srt",
    ]
    assert (folder / "out" / "day").is_dir()
    with pytest.raises(OptionError, match="name formats or a folder"):
        TranscriptOutput.of(None, None, found, None)
    assert TranscriptOutput.of(None, None, [FoundInput("a.mp3")], None).folder is None
