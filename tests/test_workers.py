"""Which files a run of some tests does not even import, and how many processes run the others."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import workers
from tests.conftest import REPOSITORY
from tests.workers import (
    pytest_ignore_collect,
    pytest_xdist_auto_num_workers,
    sort_longest_first,
)

WHOLE = "not (campaign)"
FAST = "not (campaign or e2e or browser or real or oracle or slow)"


def ignored(file: Path, expression: str) -> bool | None:
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
    return pytest_ignore_collect(file, config)


@pytest.mark.parametrize("mark", ["pytest.mark.slow", "[\n    pytest.mark.slow,\n    other]"])
def test_a_file_with_a_mark_that_is_left_out_is_not_imported(tmp_path: Path, mark: str) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(f"import pytest\n\npytestmark = {mark}\n")
    assert ignored(file, FAST)
    # These take some of its tests, or may.
    for expression in ("", "slow", "not oracle", "not (oracle or e2e)", "not (slow) or e2e"):
        assert not ignored(file, expression)


def test_files_with_tests_that_are_run_are_imported(tmp_path: Path) -> None:
    file = tmp_path / "test_x.py"
    file.write_text("import pytest\n\n@pytest.mark.slow\ndef test_x(): pass\n")
    assert not ignored(file, FAST)
    assert not ignored(tmp_path, FAST)


def test_folders_have_marks() -> None:
    assert ignored(REPOSITORY / "tests" / "e2e" / "test_live.py", FAST)
    assert not ignored(REPOSITORY / "tests" / "e2e" / "test_live.py", "not (slow)")


def test_the_largest_then_the_longest_start_first_and_files_stay_whole() -> None:
    def item(nodeid: str, *marks: str) -> Any:
        markers = [SimpleNamespace(name=name) for name in marks]
        return SimpleNamespace(nodeid=nodeid, iter_markers=lambda: markers)

    items: list[Any] = [
        item("tests/a.py::x"),
        item("tests/b.py::x", "slow"),
        item("tests/b.py::y"),
        item("tests/e2e/test_ui.py::x", "e2e", "browser"),
        item("tests/c.py::x", "parametrize", "oracle"),
        item("tests/e2e/test_ui_line.py::x", "e2e", "browser"),
        item("tests/e2e/test_live.py::x", "e2e"),
        item("tests/engine/test_exact.py::x"),
    ]
    sort_longest_first(items)
    assert [each.nodeid.removeprefix("tests/") for each in items] == [
        "engine/test_exact.py::x", "e2e/test_ui.py::x", "e2e/test_ui_line.py::x",
        "e2e/test_live.py::x", "c.py::x", "b.py::x", "b.py::y", "a.py::x",
    ]  # fmt: skip


def test_the_gate_leaves_the_campaign_out(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("addopts")[-2:] == ["-m", WHOLE] == ["-m", workers._DEFAULT]


@pytest.mark.parametrize(
    ("expression", "gigabytes", "processes"),
    [("", 8, 3), ("", 7, 2), ("", 0, 2), (WHOLE, 8, 3), (FAST, 8, 2)],
)
def test_the_whole_suite_gets_one_process_more_than_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, expression: str, gigabytes: int, processes: int
) -> None:
    monkeypatch.setattr(workers, "_memory_bytes", lambda: gigabytes << 30)
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression, keyword=""))
    hook = pytest_xdist_auto_num_workers(config)
    next(hook)
    with pytest.raises(StopIteration) as returned:
        hook.send(2)
    assert returned.value.value == processes


def test_temporary_files_go_with_the_run() -> None:
    folder = Path(tempfile.gettempdir())
    assert folder == Path(os.environ["TMPDIR"]) == Path.home() / "t"
    before, _, added = str(folder).rpartition("edgeapp-run-tests-")
    assert before
    assert len(added) <= len("12345678/t/gw100/t"), "paths of sockets may have 107 bytes"


FILE = """
import sys, weakref, pytest
from tests import workers

workers._BYTES_TO_TRIM = 0

class Model:
    def __init__(self):
        self.own = self

@pytest.fixture(scope="module")
def model():
    return Model()

def test_x(model):
    earlier = sys.modules.setdefault("earlier", [])
    assert [each() for each in earlier] == [None] * len(earlier)
    earlier.append(weakref.ref(model))
"""


@pytest.mark.slow
def test_the_models_of_a_file_are_gone_when_the_next_file_begins(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(FILE)
    command = [sys.executable, "-m", "pytest", "-p", "tests.workers", "-c", os.devnull, "-q"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_examples_may_take_as_long_as_they_take() -> None:
    """On a busy machine a limit of time would fail a correct test."""
    of_a_test = settings(max_examples=1)
    assert of_a_test.deadline is None
    assert HealthCheck.too_slow in of_a_test.suppress_health_check
