"""A night that was interrupted: killed runs go on where they were, and end with equal files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.conftest import FRESH, Edgeapp

SAMPLES = Path(__file__).resolve().parents[2] / "assets" / "samples"


def _command(folder: Path, out: Path, *more: str) -> list[str]:
    return [
        *("transcribe", str(folder), "-o", str(out)),
        *("-f", "json,srt", "-m", "demo", "--compute-type", "int8", "--threads", "1", *more),
    ]


def _run(command: Sequence[str], home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=_environment(home), capture_output=True, text=True, check=False
    )


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "XDG_DATA_HOME": str(home)}


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    (folder / "day").mkdir()
    (folder / "talk.flac").symlink_to(SAMPLES / "talk.flac")
    (folder / "day" / "story.flac").symlink_to(SAMPLES / "story.flac")
    return folder


@pytest.fixture(scope="module")
def expected(
    recordings: Path, program: list[str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """What an uninterrupted run writes."""
    folder = tmp_path_factory.mktemp("whole")
    command = _command(recordings, folder / "out", "--translate-to", "de")
    done = _run([*program, *command], folder / "data")
    assert done.returncode == 0, done.stderr
    return _contents(folder / "out")


def test_a_run_that_is_killed_thrice_goes_on_and_ends_with_equal_files(
    recordings: Path, expected: dict[str, bytes], program: list[str], tmp_path: Path
) -> None:
    command = _command(recordings, tmp_path / "out", "--translate-to", "de", "--batch-size", "2")
    journal = tmp_path / "data" / "edgeapp" / "jobs.db"
    kills = 0
    for seed, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)):
        process = subprocess.Popen(
            [*FRESH, *command],
            env=_environment(tmp_path / "data"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and not (journal.exists() and journal.stat().st_size):
            time.sleep(0.05)
        time.sleep(random.Random(seed).uniform(0.2, 2.5))
        if process.poll() is None:
            process.send_signal(number)
            kills += 1
        process.wait()
    assert kills
    done = _run([*program, *command], tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert _contents(tmp_path / "out") == expected
    again = _run([*program, *command], tmp_path / "data")
    assert again.returncode == 0
    assert again.stderr.count("done already") == 2


def test_jobs_failures_and_plans(
    edgeapp_here: Edgeapp, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["XDG_DATA_HOME"] = str(tmp_path / "data")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good.flac").symlink_to(SAMPLES / "question.flac")
    (tmp_path / "in" / "bad.mp3").write_bytes(b"no sound at all")
    command = _command(tmp_path / "in", tmp_path / "out")
    plan = edgeapp_here(*command, "--dry-run")
    assert [line.split(": ")[-1] for line in plan.stdout.splitlines()] == ["transcribe"] * 2
    first = edgeapp_here(*command)
    assert first.returncode == 1
    assert "1 done, 1 failed; " in first.stderr
    plan = edgeapp_here(*command, "--dry-run")
    assert [line.split(": ")[-1] for line in plan.stdout.splitlines()] == [
        "try again, it has failed",
        "done already",
    ]
    retried = edgeapp_here(*command, "--retry-failed")
    assert retried.returncode == 1
    assert "good.flac" not in retried.stderr
    jobs = edgeapp_here("jobs")
    assert ["done" in line or "failed" in line for line in jobs.stdout.splitlines()] == [True] * 2
    # Other formats are written from what was decoded.
    (tmp_path / "out" / "good.srt").unlink()
    written = edgeapp_here(*command)
    assert "good.flac: done already" not in written.stderr
    assert (tmp_path / "out" / "good.srt").exists()
