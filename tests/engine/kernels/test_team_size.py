"""How many threads run a kernel, in machines that are made up."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import cast

import pytest
import torch

from pipelines.engine.kernels.abi import LinearArgs
from pipelines.engine.kernels.host.team_size import KernelRunner, TeamSize
from pipelines.engine.kernels.library import KernelLibrary

ALL, ONE = 1.0, 1.7  # ms of a call on a quiet machine

_now_s = [0.0]  # the clock of these machines


def run(size: TeamSize, calls: int, ms: Callable[[bool], float]) -> tuple[float, int]:
    """The time of so many calls in ms, and how many of them were by one thread."""
    total, alone = 0.0, 0
    for _ in range(calls):
        alone += size.alone
        spent = ms(size.alone)
        total += spent
        began_s = _now_s[0]
        _now_s[0] += spent / 1000
        size.record(began_s, _now_s[0])
    return total, alone


def quiet(alone: bool) -> float:
    return ONE if alone else ALL


def crowded(alone: bool) -> float:
    """Another program holds a core: who waits for all threads waits for its time slice."""
    return 1.1 * ONE if alone else 4.0


def test_a_quiet_machine_uses_all_threads() -> None:
    total, alone = run(TeamSize(), 10_000, quiet)
    assert alone < 10, "only the first trial"
    assert total < 1.001 * 10_000 * ALL


@pytest.mark.parametrize("first", [False, True])
def test_a_crowded_machine_uses_one_thread(first: bool) -> None:
    total, alone = run(TeamSize(first), 10_000, crowded)
    assert alone > 9_900
    assert total < 1.02 * 10_000 * crowded(True)


def test_the_choice_follows_the_machine() -> None:
    size = TeamSize()
    for _ in range(3):
        run(size, 5_000, quiet)
        total, _ = run(size, 2_000, crowded)
        assert total < 1.05 * 2_000 * crowded(True)
        total, _ = run(size, 5_000, quiet)
        assert total < 1.2 * 5_000 * ALL, "back after a second or two"


def test_a_thread_that_is_held_up_now_and_then_stays() -> None:
    """One call in twenty waits: all threads are faster still."""
    calls = iter(range(10**6))

    def ms(alone: bool) -> float:
        return ONE if alone else ALL + 8 * (next(calls) % 20 == 0)

    total, _ = run(TeamSize(), 10_000, ms)
    assert total < 1.05 * 10_000 * (ALL + 8 / 20)


def test_a_trial_ends_when_it_is_lost() -> None:
    size = TeamSize(alone=True)
    _, alone = run(size, 5_000, lambda alone: 1.0 if alone else 300.0)
    assert 5_000 - alone < 15, "one call a trial"


def test_a_process_that_was_stopped_goes_on_as_before() -> None:
    size = TeamSize()
    run(size, 1_000, quiet)
    _now_s[0] += 3_600.0
    size.record(_now_s[0] - 3_600.0, _now_s[0])
    total, _ = run(size, 10_000, quiet)
    assert total < 1.2 * 10_000 * ALL


def slow_and_quiet(alone: bool) -> float:
    return 300 * quiet(alone)


def slow_and_crowded(alone: bool) -> float:
    return 300 * crowded(alone)


def test_slow_calls_return_to_all_threads_within_seconds() -> None:
    """Encoding of sound: 48 to 768 calls of 0.3 s would be minutes."""
    size = TeamSize()
    total, alone = run(size, 200, slow_and_crowded)
    assert alone > 180
    assert total < 1.1 * 200 * slow_and_crowded(True), "trials take a twentieth of the time"
    total, alone = run(size, 100, slow_and_quiet)
    assert total - 100 * slow_and_quiet(False) < 0.7 * 12_000, "back after some ten seconds"
    assert not size.choice


def test_short_calls_return_to_all_threads_as_soon_as_before() -> None:
    size = TeamSize()
    run(size, 20_000, crowded)
    _, alone = run(size, 2_000, quiet)
    assert alone < 800, "of calls of some ms"


def test_calls_of_one_kernel_among_others_return_soon_too() -> None:
    """One call in ten is of this size: its 768 calls would be ten seconds and more."""
    size = TeamSize()
    run(size, 20_000, crowded)
    alone = 0
    for _ in range(400):
        _now_s[0] += 9 * quiet(size.alone) / 1000
        alone += run(size, 1, quiet)[1]
    assert alone < 2.1 / (10 * quiet(True) / 1000)


def quiet_with_many(alone: bool) -> float:
    return 32 * ALL if alone else ALL


def test_a_quiet_machine_of_many_threads_puts_off_the_first_trial() -> None:
    total, alone = run(TeamSize(threads=32), 100, quiet_with_many)
    assert (total, alone) == (100 * ALL, 0)
    total, alone = run(TeamSize(threads=32), 10_000, quiet_with_many)
    assert alone <= 1
    assert total < 1.005 * 10_000 * ALL


def test_a_slow_first_call_does_not_count() -> None:
    size = TeamSize(threads=32)
    run(size, 1, lambda alone: 20.0)
    _, alone = run(size, 100, quiet_with_many)
    assert alone == 0


def test_many_threads_that_are_held_up_are_found_at_once() -> None:
    """Every other call waits for a thread without a core."""
    calls = iter(range(10**6))

    def ms(alone: bool) -> float:
        return 16.0 if alone else ALL + 80 * (next(calls) % 2)

    _, alone = run(TeamSize(threads=16), 100, ms)
    assert alone > 85


def test_many_threads_that_are_always_held_up_are_found_later() -> None:
    _, alone = run(TeamSize(threads=16), 1_000, lambda alone: 16.0 if alone else 40.0)
    assert alone > 900


def test_a_coarse_clock_is_no_error() -> None:
    """Calls that take no time by it."""
    size = TeamSize()
    for _ in range(1_000):
        size.record(7.0, 7.0)
    assert not size.choice


class Library:
    """Records on how many threads kernels run, and lets time pass as they do."""

    def __init__(self, ms: Callable[[bool], float]) -> None:
        self.ms, self.now_s = ms, 0.0
        self.calls: list[tuple[str, int]] = []

    def run(self, kernel: str, args: ctypes.Structure, threads: int) -> None:
        self.calls.append((kernel, threads))
        self.now_s += self.ms(threads == 1) / 1000

    def teams(self, kernel: str = "linear") -> KernelRunner:
        return KernelRunner(cast(KernelLibrary, self), kernel, lambda: self.now_s)


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, and no calls before."""
    monkeypatch.setattr(KernelRunner, "_last", TeamSize())
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


ARGS = LinearArgs()


def test_kernels_run_on_what_is_faster() -> None:
    library = Library(crowded)
    teams = library.teams("argmax")
    for _ in range(1_000):
        teams.run(ARGS, 1)
    assert {kernel for kernel, _ in library.calls} == {"argmax"}
    assert library.calls[0] == ("argmax", 2)
    assert [threads for _, threads in library.calls].count(1) > 950


def test_sizes_of_batches_are_timed_apart() -> None:
    """64 rows take longer than one: that is no sign of a crowd."""
    library = Library(quiet)
    teams = library.teams()
    library.ms = lambda alone: (1 if rows == 1 else 64) * quiet(alone)
    for call in range(2_000):
        rows = 1 if call % 2 else 64
        teams.run(ARGS, rows)
    assert [threads for _, threads in library.calls].count(1) <= 12, "a trial of each"


def test_a_kernel_begins_with_what_the_last_one_has_found() -> None:
    library = Library(crowded)
    first = library.teams()
    for _ in range(100):
        first.run(ARGS, 1)
    library.teams().run(ARGS, 8)
    assert library.calls[-1] == ("linear", 1)


@pytest.mark.parametrize(("threads", "rows"), [(1, 4), (2, 0)])
def test_nothing_is_timed_without_a_choice(threads: int, rows: int) -> None:
    torch.set_num_threads(threads)
    library = Library(quiet)
    teams = library.teams()
    for _ in range(20):
        teams.run(ARGS, rows)
    assert library.calls == [("linear", 1)] * 20
    assert teams._sizes == {}
