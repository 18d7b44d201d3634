"""A pytest plugin: markers by folder and fixture, and which test runs where with `pytest -n`.

A file whose tests are all left out by `-m "not (…)"` is not imported: `make fast` starts without
transformers.

A file's tests run in one worker, for they share fixtures; all tests with a browser in one, for they
share a server and a browser; and all with real weights, which share what those have written. What
takes longest comes first, as its markers let expect. For the whole suite `-n auto` is one process
more than there are cores, if there is memory for it: the first minutes wait for browsers, timers
and recordings that are played as fast as they were spoken.

A worker keeps to BYTES_OF_A_WORKER: models belong to the fixtures of a file, files with models of
true shapes come first, while a worker holds little else, and after a test a worker that has grown
gives freed memory back. The Makefile says what malloc keeps. The summary has the most that a worker
held (tests/tally.py).
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgeapp.process_memory import memory_in_use
from pipelines.malloc import trim_heap
from tests.conftest import is_worker
from tests.tally import BYTES_OF_A_WORKER

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
# Beginnings of names of files for one worker; the kernels are compiled in turn.
_TOGETHER = ("tests/e2e/test_ui", "tests/real/", "tests/engine/kernels/")
# Files whose tests hold a model of a true shape, and that of another library.
_LARGE = (
    "tests/engine/test_exact.py",
    "tests/engine/test_unload.py",
    "tests/translation/test_exact.py",
)
# Marker → seconds of one of its tests, about.
_SECONDS = {"browser": 8.0, "real": 8.0, "e2e": 3.0, "oracle": 1.3, "slow": 0.8}
_UNMARKED_S = 0.03
_DEFAULT = "not (campaign)"  # pyproject.toml: what runs if no expression is given
_BYTES_OF_A_PROCESS = BYTES_OF_A_WORKER + (1 << 30)  # with the programs that it starts
# Below this size, and within a file unless memory has grown by so much, collecting garbage is not
# worth its time.
_BYTES_TO_TRIM, _BYTES_GROWN = 3 << 28, 1 << 26

_held = 0  # bytes, after the last garbage was looked for


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
        sort_longest_first(items)
    else:
        items.sort(key=lambda item: "e2e" in item.keywords)


def sort_longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by the time that all of those take which one worker runs in turn; large ones come
    before all others."""
    seconds: Counter[str] = Counter()
    for item in items:
        marked = (_SECONDS.get(marker.name, 0.0) for marker in item.iter_markers())
        seconds[_scope(item.nodeid)] += max(marked, default=0.0) or _UNMARKED_S
    items.sort(key=lambda item: (not item.nodeid.startswith(_LARGE), -seconds[_scope(item.nodeid)]))


def _scope(nodeid: str) -> str:
    """What one worker runs: the file of a test, or the beginning of the names of several."""
    file = nodeid.split("::")[0]
    return next((start for start in _TOGETHER if file.startswith(start)), file)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """After a test, when the fixtures of its own or its file are gone, free what they held.

    Not at the end of its teardown: until then the test itself holds its arguments.
    """
    global _held
    done = yield
    over = nextitem is None or nextitem.path != item.path
    held = memory_in_use()
    if held > _BYTES_TO_TRIM and (over or held > _held + _BYTES_GROWN):
        gc.collect()
        trim_heap()
        held = _held = memory_in_use()
    _held = min(_held, held)
    return done


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """The number of processes of `-n auto`: that of xdist, and one more for the whole suite."""
    cores = yield
    whole = config.option.markexpr in ("", _DEFAULT) and not config.option.keyword
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
            return _scope(nodeid)

    config.option.loadscopereorder = False  # the order of the items, not of the files' lengths
    return ByFile(config, log)
