"""Which files a run of some tests does not even import."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.workers import pytest_ignore_collect

FAST = "not (e2e or browser or real or oracle or slow)"


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
