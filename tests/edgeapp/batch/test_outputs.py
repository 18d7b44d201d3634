"""Output files: unique names, written completely or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeapp.batch.outputs import (
    check_no_collisions,
    output_names,
    prepare_folder,
    write_atomically,
)
from pipelines.errors import OptionError, OutputError


def test_names_are_unique() -> None:
    assert output_names(["a/talk.mp3", "b.wav", "-"]) == ["talk", "b", "stdin"]
    assert output_names(["talk.mp3", "talk.wav"]) == ["talk.mp3", "talk.wav"]
    same = output_names(["a/talk.mp3", "b/talk.mp3"])
    assert len(set(same)) == 2


def test_collisions_with_outputs_and_inputs_are_refused(tmp_path: Path) -> None:
    a, b = tmp_path / "talk.de.txt", tmp_path / "talk.txt"
    check_no_collisions([a, b], ["-", str(tmp_path / "other.txt")])
    with pytest.raises(OptionError, match=r"two inputs would be written to .*talk\.de\.txt"):
        check_no_collisions([a, b, a])
    b.write_text("")
    (tmp_path / "link.txt").symlink_to(b)
    with pytest.raises(OptionError, match="is the input itself"):
        check_no_collisions([a, b], [str(tmp_path / "link.txt")])


def test_a_link_to_itself_is_no_collision(tmp_path: Path) -> None:
    """Reading it fails later, as an error of that input only."""
    loop = tmp_path / "loop.txt"
    loop.symlink_to(loop)
    check_no_collisions([tmp_path / "talk.de.txt", loop.with_suffix(".de.txt")], [str(loop)])


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.srt"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="a.srt cannot be written"):
        write_atomically(path, "new")
    assert path.read_text() == "old"


def test_a_failed_write_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutputError, match="No space left"):
        write_atomically(tmp_path / "a.srt", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match="cannot be created"):
        prepare_folder(tmp_path / "out")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="choose another"):
        prepare_folder(tmp_path)


def test_what_a_killed_run_has_left_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "talk.srt"
    (tmp_path / ".talk.srt.0.tmp").write_text("a part of a longer file")
    write_atomically(path, "whole")
    assert path.read_text("utf-8") == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_two_runs_that_write_the_same_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "talk.srt"

    def slowly() -> Iterator[bytes]:
        yield b"first "
        write_atomically(path, "second")  # as another process would meanwhile
        assert path.read_text("utf-8") == "second"
        yield b"run"

    write_atomically(path, slowly())
    assert path.read_text("utf-8") == "first run"
    assert list(tmp_path.iterdir()) == [path]


def test_files_are_written_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeapp.batch.outputs.try_lock", lambda file: False)
    write_atomically(tmp_path / "talk.srt", "whole")
    assert (tmp_path / "talk.srt").read_text("utf-8") == "whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "talk.srt"]
