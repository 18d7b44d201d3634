"""An interrupted output is resumed where it stopped, if it is the same job."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from edgeapp.batch.journal.part_file import PartFile
from pipelines.errors import OutputError


def interrupted(path: Path, key: str | None, *lines: str) -> None:
    with suppress(KeyboardInterrupt), PartFile(path, key) as part:
        for line in lines:
            part.write(line)
        raise KeyboardInterrupt


def test_resumes_after_the_complete_lines(tmp_path: Path) -> None:
    out = tmp_path / "talk.de.txt"
    interrupted(out, "k", "eins\n", "zwei\n", "dr")
    assert not out.exists()
    with PartFile(out, "k") as part:
        assert part.done == 2
        part.write("drei\n")
        part.finish()
    assert out.read_text() == "eins\nzwei\ndrei\n"
    assert list(tmp_path.iterdir()) == [out]


def test_a_line_is_in_the_file_as_soon_as_it_is_written(tmp_path: Path) -> None:
    """`kill -9` loses none of them."""
    with PartFile(tmp_path / "talk.de.txt", "k") as part:
        part.write("eins\n")
        assert part.part.read_text() == "eins\n"
        part.write("zwei\n")
        assert part.part.read_text() == "eins\nzwei\n"


def test_another_job_starts_again(tmp_path: Path) -> None:
    out = tmp_path / "talk.de.txt"
    interrupted(out, "k", "eins\n")
    with PartFile(out, "other") as part:
        assert part.done == 0
        part.write("one\n")
        part.finish()
    assert out.read_text() == "one\n"


def test_lines_of_an_unknown_job_are_not_overwritten(tmp_path: Path) -> None:
    """A job that reads a pipe has no key."""
    out = tmp_path / "talk.de.txt"
    interrupted(out, None, "eins\n")
    with pytest.raises(OutputError, match=r"talk\.de\.txt\.part holds an earlier run's lines"):
        PartFile(out, None)
    assert (tmp_path / "talk.de.txt.part").read_text() == "eins\n"


def test_no_lines_leave_no_file(tmp_path: Path) -> None:
    interrupted(tmp_path / "a.txt", "k")
    assert list(tmp_path.iterdir()) == []


def test_an_old_result_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "a.txt"
    out.write_text("old\n")
    interrupted(out, "k", "new\n")
    assert out.read_text() == "old\n"


@pytest.mark.parametrize("known", ["[", "[]", '{"key": "k"}'])
def test_lines_of_an_unknown_input_are_not_overwritten(tmp_path: Path, known: str) -> None:
    """A damaged file of the key, and one of an earlier version."""
    out = tmp_path / "a.txt"
    interrupted(out, "k", "eins\n")
    (tmp_path / "a.txt.part.json").write_text(known)
    with pytest.raises(OutputError, match=r"a\.txt\.part holds lines of another input"):
        PartFile(out, "other", "/b/a.txt")
    assert (tmp_path / "a.txt.part").read_text() == "eins\n"
    with PartFile(out, "other", "/b/a.txt", overwrite=True) as part:
        assert part.done == 0


def test_lines_of_another_input_are_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "a.txt"
    with suppress(KeyboardInterrupt), PartFile(out, "k", "/monday/a.txt") as part:
        part.write("eins\n")
        raise KeyboardInterrupt
    with pytest.raises(OutputError, match=r"holds lines of /monday/a\.txt: --overwrite"):
        PartFile(out, "other", "/tuesday/a.txt")
    with PartFile(out, "k", "/friday/a.txt") as part:  # the same input under another name
        assert part.done == 1
    with PartFile(out, "changed", "/monday/a.txt") as part:
        assert part.done == 0


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        PartFile(tmp_path / "missing" / "a.txt", "k")
