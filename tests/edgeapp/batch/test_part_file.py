"""An output that was cut off goes on where it stopped, and only when it is the same job."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from edgeapp.batch.part_file import PartFile, job_key
from pipelines.errors import OutputError


def interrupted(path: Path, key: str | None, *lines: str) -> None:
    with suppress(KeyboardInterrupt), PartFile(path, key) as part:
        for line in lines:
            part.write(line)
        raise KeyboardInterrupt


def test_goes_on_after_the_whole_lines(tmp_path: Path) -> None:
    out = tmp_path / "talk.de.txt"
    interrupted(out, "k", "eins\n", "zwei\n", "dr")
    assert not out.exists()
    with PartFile(out, "k") as part:
        assert part.done == 2
        part.write("drei\n")
        part.finish()
    assert out.read_text() == "eins\nzwei\ndrei\n"
    assert list(tmp_path.iterdir()) == [out]


def test_another_job_starts_anew(tmp_path: Path) -> None:
    out = tmp_path / "talk.de.txt"
    interrupted(out, "k", "eins\n")
    with PartFile(out, "other") as part:
        assert part.done == 0
        part.write("one\n")
        part.finish()
    assert out.read_text() == "one\n"


def test_lines_of_nobody_knows_what_stay(tmp_path: Path) -> None:
    """What came through a pipe cannot be told from another job."""
    out = tmp_path / "talk.de.txt"
    interrupted(out, None, "eins\n")
    with pytest.raises(OutputError, match=r"talk\.de\.txt\.part holds an earlier run's lines"):
        PartFile(out, None)
    assert (tmp_path / "talk.de.txt.part").read_text() == "eins\n"


def test_nothing_done_leaves_nothing(tmp_path: Path) -> None:
    interrupted(tmp_path / "a.txt", "k")
    assert list(tmp_path.iterdir()) == []


def test_an_old_result_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "a.txt"
    out.write_text("old\n")
    interrupted(out, "k", "new\n")
    assert out.read_text() == "old\n"


def test_a_damaged_note_means_a_new_start(tmp_path: Path) -> None:
    out = tmp_path / "a.txt"
    interrupted(out, "k", "eins\n")
    (tmp_path / "a.txt.part.json").write_text("[")
    with PartFile(out, "k") as part:
        assert part.done == 0


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        PartFile(tmp_path / "missing" / "a.txt", "k")


def test_the_key_depends_on_bytes_and_settings(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("one")
    key = job_key(source, model="m")
    assert key == job_key(source, model="m")
    assert key != job_key(source, model="n")
    source.write_text("two")
    assert key != job_key(source, model="m")
