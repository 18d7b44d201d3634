"""Translation in several processes: the results equal those of one translator."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from pipelines.engine import Engine, ProcessPool
from pipelines.errors import EngineError, InputError, OptionError, UnsupportedTask
from pipelines.translation import ParallelTranslator, TranslateOptions, Translator

pytestmark = pytest.mark.slow

LINES = ["Good morning!", "", "Tom lives in Boston. He likes it there.", "Where is my book?"]


@pytest.fixture(scope="module")
def two(demo: Translator) -> Iterator[ParallelTranslator]:
    with ParallelTranslator(demo, 2) as crew:
        yield crew


def test_lines_come_in_order_and_as_one_translator_has_them(
    demo: Translator, two: ParallelTranslator
) -> None:
    lines = [f"{line} {n}." if line else "" for n in range(80) for line in LINES]
    assert len(lines) > 256, "more than a part"
    options = TranslateOptions(split_sentences=False)
    found = list(two.translate_lines(lines, options))
    expected = demo.translate(lines, options)
    assert [each.text for each in found] == [each.text for each in expected]
    assert [each.source for each in found] == lines


def test_a_pause_yields_all_lines_before_it(two: ParallelTranslator) -> None:
    asked: list[str] = []

    def typed() -> Iterator[str | None]:
        for line in LINES:
            asked.append(line)
            yield line
            yield None

    for done, translation in enumerate(two.translate_lines(typed()), start=1):
        assert len(asked) == done
        assert translation.source == asked[-1]


def test_errors_keep_their_type(two: ParallelTranslator) -> None:
    with pytest.raises(UnsupportedTask, match="translates into"):
        list(two.translate_lines(LINES, TranslateOptions(target="fr")))

    def broken() -> Iterator[str]:
        yield LINES[0]
        raise InputError("the file cannot be read on")

    with pytest.raises(InputError):
        list(two.translate_lines(broken()))
    assert len(list(two.translate_lines(LINES))) == len(LINES), "they go on"


def test_not_on_a_gpu(demo: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "device", "cuda")
    with pytest.raises(OptionError, match="for the CPU"):
        ParallelTranslator(demo, 2)


def _sleeper() -> Callable[[float], int]:
    def sleep(seconds: float) -> int:
        time.sleep(seconds)
        return os.getpid()

    return sleep


def _killer() -> Callable[[int], int]:
    def kill(number: int) -> int:
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    return kill


def test_parts_are_read_a_few_ahead_and_dropped_on_close() -> None:
    taken = 0

    def parts() -> Iterator[float]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield 0.01

    with ProcessPool(2, _sleeper) as crew:
        done = crew.map(parts())
        next(done)
        assert taken <= 5
        done.close()


def test_a_worker_that_dies_raises() -> None:
    with (
        ProcessPool(2, _killer) as crew,
        pytest.raises(EngineError, match="one of 2 worker processes has ended"),
    ):
        list(crew.map(range(8)))
