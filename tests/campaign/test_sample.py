"""A few seconds of each part of the campaign, and all inputs that once failed."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.malloc import keep_freed_memory
from tests.campaign.child import run_limited
from tests.campaign.part import MB, Failed, Limits
from tests.campaign.sandbox import REPOSITORY, sandbox
from tests.campaign.shrink import shrink
from tests.campaign.worker import PARTS
from tests.fixtures.warm_program import warm_program

linux = pytest.mark.skipif(sys.platform != "linux", reason="limits of processes are Linux'")


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The command of `tests.campaign.worker`."""
    environment = sandbox(tmp_path_factory.mktemp("worker"))
    with warm_program(environment, "tests.campaign.worker") as command:
        yield command


@pytest.mark.slow
@linux
@pytest.mark.parametrize("part", [part for part in PARTS if part != "lowest"])
def test_sample(part: str, worker: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*worker, part, "--sample"],
        env=sandbox(tmp_path), cwd=REPOSITORY, capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    assert cases
    failed = [f"{case['label']}: {case['failure']}" for case in cases if case.get("failure")]
    assert not failed, "\n".join(failed)


@linux
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("work", "failure"),
    [
        (lambda folder: "fine", ""),
        (lambda folder: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda folder: os.abort(), "killed by SIGABRT"),
        (lambda folder: os._exit(3), "exit code 3"),
        pytest.param(
            lambda folder: exec("while True: pass"), "no answer within 1 s", marks=pytest.mark.slow
        ),
        (lambda folder: str(len(b"x" * (60 * MB))), "MB of memory, more than 20"),
        (lambda folder: bytes(900 * MB), "MemoryError"),
        (lambda folder: (_ for _ in ()).throw(Failed("wrong text")), "wrong text"),
    ],
)
def test_limits_of_a_case(work: object, failure: str, tmp_path: Path) -> None:
    """The forks do too little to wait for one of pytest's threads."""
    hangs = failure.startswith("no answer")  # the others may wait for a busy machine
    limits = Limits(20 * MB, 400 * MB, cpu_s=5, wall_s=1.0 if hangs else 60.0)
    result = run_limited(work, limits, tmp_path)  # type: ignore[arg-type]
    assert failure in result.failure
    assert bool(result.failure) == bool(failure)
    assert list(tmp_path.iterdir()) == []


@linux
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_memory_that_the_parent_has_freed_counts(tmp_path: Path) -> None:
    keep_freed_memory()  # as every engine does
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
    blocks = [libc.malloc(MB) for _ in range(80)]
    for block in blocks:
        ctypes.memset(block, 1, MB)
    for block in blocks:
        libc.free(block)
    limits = Limits(20 * MB, 400 * MB, cpu_s=5, wall_s=5.0)
    result = run_limited(lambda folder: str(len(b"x" * (60 * MB))), limits, tmp_path)
    assert "MB of memory, more than 20" in result.failure


def test_shrinking_keeps_what_matters() -> None:
    data = bytes(range(1, 200)) * 5
    small = shrink(data, lambda d: b"\x05\x06" in d and d.count(b"\x63") >= 2, lambda: True)
    assert len(small) == 4
    assert shrink(b"abc", lambda d: True, lambda: False) == b"abc"
