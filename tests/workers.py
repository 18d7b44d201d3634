"""A pytest plugin: markers by folder and fixture, and which test runs where with `pytest -n`.

A file's tests run in one worker, for they share fixtures; all tests with a browser in one, for they
share a server and a browser; and all with real weights, which share what those have written. The
files that take long come first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import is_worker

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

# Folder of tests/, or fixture → marker of its tests.
_FOLDERS = {"e2e": "e2e", "real": "real"}
_FIXTURES = {"browser": "browser", "fitted": "oracle", "pulse_microphone": "slow"}
_TOGETHER = ("tests/e2e/test_ui", "tests/real/")  # beginnings of names of files for one worker
# The markers of files that take long, the longest first.
_LONG = ("browser", "e2e", "real", "slow", "oracle")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = nodeid.split("::")[0]
            return next((start for start in _TOGETHER if file.startswith(start)), file)

    config.option.loadscopereorder = False  # the order of the items, not of the files' lengths
    return ByFile(config, log)
