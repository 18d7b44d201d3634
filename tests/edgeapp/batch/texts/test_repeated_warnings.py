"""Thousands of like warnings about a text are one line and a count."""

from __future__ import annotations

import pytest

from edgeapp.batch.texts.repeated_warnings import RepeatedWarnings


def test_like_warnings_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with RepeatedWarnings("talk.txt") as warnings:
        for number in range(1, 1001):
            warnings.add(
                f'"In {number}: a "song".": the translation lacks {number}', f"line {number}"
            )
        warnings.add('"Who?": the translation did not end and was cut', "line 7")
    assert capsys.readouterr().err.splitlines() == [
        'edgeapp: talk.txt, line 1: "In 1: a "song".": the translation lacks 1',
        'edgeapp: talk.txt, line 7: "Who?": the translation did not end and was cut',
        "edgeapp: talk.txt: 999 more (line 2-1000): the translation lacks …",
    ]


def test_each_line_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with RepeatedWarnings("talk.txt") as warnings:
        for number in (1, 3, 5, 6, 7, 9):
            warnings.add(f"the translation lacks {number},000 and {{x}}", f"line {number}")
    assert capsys.readouterr().err.splitlines()[1:] == [
        "edgeapp: talk.txt: 5 more (line 3, line 5-7, line 9): the translation lacks …"
    ]


def test_the_count_is_printed_after_an_error_too(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with RepeatedWarnings("talk") as warnings:
            warnings.add("the translation lacks 1985, 1986")
            warnings.add("the translation lacks 7")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert capsys.readouterr().err.endswith("talk: 1 more: the translation lacks …\n")
