"""`edgeapp translate` as its users run it."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from edgeapp.console import counted
from tests.e2e.conftest import FRESH, Edgeapp


def test_three_lines_in_three_lines_out(edgeapp: Edgeapp) -> None:
    done = edgeapp(
        "translate", "-m", "demo-en-de",
        stdin="Where is the station?\n\nI would like a cup of coffee.\n",
    )  # fmt: skip
    assert done.returncode == 0
    first, second, third, end = done.stdout.split("\n")
    assert "Bahnhof" in first
    assert first.endswith("?")
    assert second == end == ""
    assert "Kaffee" in third
    assert done.stderr == "", "a model that was named needs no explanation"


def test_which_word_comes_from_which(edgeapp_here: Edgeapp) -> None:
    """After each line as marian-decoder writes it, in a column, and with all details in JSON."""
    command = ("translate", "-m", "demo-en-de", "--alignments")
    done = edgeapp_here(*command, stdin="Tom lives in Boston.\n\n")
    line, empty, end = done.stdout.split("\n")
    text, links = line.split(" ||| ")
    last = len(text.split()) - 1
    assert {"0-0", f"3-{last}"} <= set(links.split())
    assert (empty, end) == (" |||", "")
    done = edgeapp_here(*command, "--format", "tsv", stdin="Tom lives in Boston.\n")
    assert done.stdout == f"Tom lives in Boston.\t{text}\t{links}\n"
    done = edgeapp_here(*command, "--format", "json", stdin="Tom lives in Boston.\n")
    content = json.loads(done.stdout)
    assert (content["text"], content["alignment"]["pharaoh"]) == (text, links)
    assert content["alignment"]["target_words"][0] == {"text": "Tom", "start": 0, "end": 3}


def test_line_ends_damage_and_odd_characters(edgeapp_here: Edgeapp) -> None:
    raw = b"Good morning.\r\n\r\nb\xffd\n \t \n\x0b\x0c\x1c\xe2\x80\xa8\r.\n!?\nGood night."
    done = edgeapp_here("translate", "-m", "demo-en-de", stdin=raw)
    assert done.returncode == 0
    lines = done.stdout.split("\n")
    assert len(lines) == raw.count(b"\n") + 1
    assert [line.endswith("\r") for line in lines] == [True, True, *[False] * 5]
    assert "stdin: this is not UTF-8; it is read as Windows-1252" in done.stderr


def test_nothing_in_nothing_out(edgeapp_here: Edgeapp) -> None:
    done = edgeapp_here("translate", "-m", "demo-en-de")
    assert (done.returncode, done.stdout) == (0, "")


def test_one_bad_file_does_not_cost_the_others(edgeapp_here: Edgeapp, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("I am tired.\n")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "folder.txt").mkdir()
    names = ["binary.txt", "a.txt", "missing.txt", "folder.txt", "empty.txt"]
    done = edgeapp_here("translate", *names, "-m", "demo-en-de", "-o", "out")
    assert done.returncode == 1
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"a.de.txt", "empty.de.txt"}
    assert "müde" in (tmp_path / "out/a.de.txt").read_text()
    assert [line for line in done.stderr.splitlines() if "binary.txt" in line]
    assert [line for line in done.stderr.splitlines() if "missing.txt" in line]
    assert [line for line in done.stderr.splitlines() if "folder.txt" in line]


def test_document_joins_wrapped_lines(edgeapp_here: Edgeapp) -> None:
    done = edgeapp_here(
        "translate",
        "-m",
        "demo-en-de",
        "--document",
        stdin="Where is\nthe station?\n\nThank you.\n",
    )
    assert done.stdout.count("\n") == 3
    assert "Bahnhof" in done.stdout.split("\n")[0]


def test_another_pair_than_the_models_is_said(edgeapp_here: Edgeapp) -> None:
    done = edgeapp_here("translate", "-m", "demo-en-de", "-t", "fr", stdin="Hello.\n")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "opus-mt-en-fr" in done.stderr


def test_workers_write_what_one_process_writes(
    edgeapp: Edgeapp, edgeapp_here: Edgeapp, tmp_path: Path
) -> None:
    lines = [f"Tom has {n} green apples." for n in range(300)]
    (tmp_path / "long.txt").write_text("\n".join(lines) + "\n")
    command = ("translate", "long.txt", "-m", "demo-en-de", "--compute-type", "float32")
    alone, together = edgeapp_here(*command), edgeapp(*command, "--workers", "2")
    assert together.returncode == 0
    assert together.stdout == alone.stdout
    assert together.stderr == ""


def test_a_shortlist_where_there_is_one(
    edgeapp_here: Edgeapp, many_folder: Callable[..., Path]
) -> None:
    text = "Where is the station?\nI would like a cup of coffee.\n"
    command = ("translate", "-m", "demo-en-de", "--compute-type", "float32")
    short = edgeapp_here(*command, "--shortlist", stdin=text)
    assert short.stdout == edgeapp_here(*command, stdin=text).stdout
    folder = many_folder("m2m100_418M", seed=1)
    none = edgeapp_here("translate", "-m", str(folder), "-t", "de", "--shortlist", stdin=text)
    assert (none.returncode, none.stdout, none.stderr.count("\n")) == (2, "", 1)
    assert "no shortlist" in none.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_keeps_the_lines_and_the_next_run_goes_on(
    edgeapp: Edgeapp,
    program: list[str],
    tmp_path: Path,
    environment: dict[str, str],
    workers: str,
) -> None:
    count = 600 if workers == "1" else 1200
    lines = [f"Tom has {n} green apples and likes to eat them at home." for n in range(count)]
    (tmp_path / "long.txt").write_text("\n".join(lines) + "\n")
    environment["XDG_DATA_HOME"] = str(tmp_path / "data")
    command = [*(program if workers == "1" else FRESH), "translate", "long.txt"]
    command += ["-o", "long.de.txt", "-m", "demo-en-de", "--workers", workers]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 400
    while not _kept_lines(tmp_path):
        assert process.poll() is None, "it was done before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=400)
    assert process.returncode == 130
    assert b"Traceback" not in err
    kept = _kept_lines(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"long.txt", "data"}
    done = edgeapp("translate", "long.txt", "-o", "long.de.txt", "-m", "demo-en-de")
    assert done.returncode == 0
    assert f"resuming after {counted(len(kept), 'translated line')}" in done.stderr
    whole = (tmp_path / "long.de.txt").read_text("utf-8")
    assert whole.startswith("".join(kept))
    assert whole.count("\n") == count


def _kept_lines(folder: Path) -> list[str]:
    """The lines that the journal keeps of an ended run."""
    path = folder / "data" / "edgeapp" / "jobs.db"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as journal:
        try:
            rows = journal.execute("SELECT content FROM pieces ORDER BY number").fetchall()
        except sqlite3.OperationalError:  # it is being made
            return []
    return [line for (content,) in rows for line in json.loads(content)["lines"]]


def test_a_line_is_written_as_soon_as_it_is_done(
    environment: dict[str, str], program: list[str]
) -> None:
    command = [*program, "translate", "-m", "demo-en-de"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in (b"I am here.\n", b"\n", b"Good night.\n"):
            process.stdin.write(text)
            process.stdin.flush()
            # Would wait for ever if it took more input to get this line out.
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.wait(400) == 0


def test_a_pipe_that_looks_like_a_file(edgeapp: Edgeapp, tmp_path: Path) -> None:
    """As `edgeapp translate <(head -100 big.txt)` hands it over."""
    done = edgeapp("translate", "/dev/stdin", "-m", "demo-en-de", stdin="I am here.\n")
    assert (done.returncode, done.stdout) == (0, "Ich bin hier.\n"), done.stderr
    options = ("-m", "demo-en-de", "-o", "a.txt")
    done = edgeapp("translate", "/dev/stdin", *options, stdin="I am here.\n")
    assert (done.returncode, (tmp_path / "a.txt").read_text()) == (0, "Ich bin hier.\n")


def test_a_reader_who_has_had_enough(
    tmp_path: Path, read_one_line: Callable[[str], None], program: list[str]
) -> None:
    (tmp_path / "many.txt").write_text("I am here.\n" * 300)
    read_one_line(f"{' '.join(program)} translate -m demo-en-de many.txt")


def test_an_unwritable_output(edgeapp_here: Edgeapp, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = edgeapp_here("translate", "-m", "demo-en-de", "-o", "file/x.txt", stdin="Hello.\n")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
