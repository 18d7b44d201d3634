"""A pytest plugin: markers by folder and fixture, and which test runs where with `pytest -n`.

A file whose tests are all left out by `-m "not (…)"` is not imported: `make fast` starts without
transformers.

A file's tests run in one worker, for they share fixtures; all tests with a browser in one, for they
share a server and a browser; and all with real weights, which share what those have written. The
files that take long come first. For the whole suite `-n auto` is one process more than there are
cores, if there is memory for it: the first minutes wait for browsers, timers and recordings that
are played as fast as they were spoken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import is_worker

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# Folder of tests/, or fixture → marker of its tests.
_FOLDERS = {"e2e": "e2e", "real": "real"}
_FIXTURES = {
    "browser": "browser",
    "fitted": "oracle",
    "pulse_microphone": "slow",
    "real_server": "slow",
}
_OF_A_FILE = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(\w+)", re.MULTILINE)
_TOGETHER = ("tests/e2e/test_ui", "tests/real/")  # beginnings of names of files for one worker
# The markers of files that take long, the longest first.
_LONG = ("browser", "e2e", "real", "slow", "oracle")
_BYTES_OF_A_PROCESS = 4 << 30  # with the programs that it starts


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True for files of which the marker expression leaves no test, None for all others."""
    left_out = re.fullmatch(r"not \((\w+(?: or \w+)*)\)", config.option.markexpr)
    if left_out is None or collection_path.suffix != ".py":
        return None
    marks = set(_OF_A_FILE.findall(collection_path.read_text(encoding="utf-8")))
    marks.add(_FOLDERS.get(_folder(collection_path), ""))
    return True if marks & set(left_out[1].split(" or ")) else None


def _folder(path: Path) -> str:
    """The folder of tests/ in which a test lies, "" elsewhere."""
    tests = Path(__file__).parent
    return path.relative_to(tests).parts[0] if path.is_relative_to(tests) else ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        folder = _folder(item.path)
        if folder in _FOLDERS:
            item.add_marker(_FOLDERS[folder])
        for name in _FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_FIXTURES[name])
    if is_worker(config):
        ranks: dict[Path, int] = {}
        for item in items:
            rank = min(
                (_LONG.index(m.name) for m in item.iter_markers() if m.name in _LONG),
                default=len(_LONG),
            )
            ranks[item.path] = min(rank, ranks.get(item.path, rank))
        items.sort(key=lambda item: ranks[item.path])
    else:
        items.sort(key=lambda item: "e2e" in item.keywords)


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """The number of processes of `-n auto`: that of xdist, and one more for the whole suite."""
    cores = yield
    whole = not config.option.markexpr and not config.option.keyword
    room = _memory_bytes() >= (cores + 1) * _BYTES_OF_A_PROCESS
    return cores + 1 if whole and room else cores


def _memory_bytes() -> int:
    """Of this machine; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = nodeid.split("::")[0]
            return next((start for start in _TOGETHER if file.startswith(start)), file)

    config.option.loadscopereorder = False  # the order of the items, not of the files' lengths
    return ByFile(config, log)
