"""Notices: collected in one context, and warnings without a collector."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path

import pytest

from pipelines.notices import Notice, collect_notices, ignore_warning, notice
from tests.conftest import REPOSITORY


class Odd(UserWarning):
    pass


def test_without_a_collector_it_is_a_warning_of_the_caller() -> None:
    def library() -> None:
        notice("odd", Odd)

    with pytest.warns(Odd, match="^odd$") as seen:
        library()
    assert seen[0].filename == __file__


def test_a_collector_receives_them_instead() -> None:
    with collect_notices() as outer:
        notice("first", Odd)
        with collect_notices() as inner:
            notice("second")
        notice("third")
    assert outer == [Notice("first", Odd), Notice("third", UserWarning)]
    assert inner == [Notice("second", UserWarning)]


def test_each_thread_has_its_own_collector() -> None:
    meeting = threading.Barrier(4)
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        with collect_notices() as notices:
            meeting.wait(60)
            for i in range(50):
                notice(f"{number}: {i}")
            meeting.wait(60)
        found[number] = [each.message for each in notices]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {number: [f"{number}: {i}" for i in range(50)] for number in range(4)}


def test_one_warning_is_ignored_and_no_other() -> None:
    ignore_warning("torch says so", Odd)
    warnings.warn("torch says so, again and again", Odd, stacklevel=1)
    for message, category in [("torch says so", DeprecationWarning), ("another", Odd)]:
        with pytest.warns(category, match=message):
            warnings.warn(message, category, stacklevel=1)


def test_no_code_that_ships_changes_the_filters_for_a_while() -> None:
    """What `catch_warnings` restores is the whole process's, other threads' warnings included."""
    allowed = {Path("pipelines/notices.py")}
    for package in ("edgeapp", "pipelines"):
        for file in (REPOSITORY / package).rglob("*.py"):
            if file.relative_to(REPOSITORY) not in allowed:
                assert "catch_warnings" not in file.read_text(encoding="utf-8"), file
