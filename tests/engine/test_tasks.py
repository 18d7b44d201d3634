"""Interleaved tasks: their order, what is computed together, and how far they are read ahead.

No model: `Machine` stands in for the encoder and for the batch, and records what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import pytest
import torch

from pipelines.engine import (
    MY_TURN,
    EncodedSource,
    Pending,
    SourceHandle,
    Task,
    TaskLimits,
    interleave,
)
from pipelines.errors import EngineError


@dataclass
class Generation:
    """As a Stream: reading a token that is not there yet computes a step of all generations."""

    machine: Machine
    tokens: int
    there: int = 0
    read: int = 0

    @property
    def ready(self) -> bool:
        return self.there > self.read

    @property
    def worth_reading(self) -> bool:
        return self.there == self.tokens

    def __next__(self) -> int:
        if self.read == self.tokens:
            raise StopIteration
        if not self.ready:
            self.machine.step()
        self.read += 1
        return self.read


@dataclass
class Machine:
    """passes: the lengths of the sources of each encoder pass. log: all that happened."""

    log: list[str] = field(default_factory=list)
    passes: list[list[int]] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    bad_lengths: tuple[int, ...] = ()
    ahead: Callable[[Any], Future[EncodedSource] | None] | None = None

    def encode(self, sources: Sequence[Any]) -> list[EncodedSource]:
        lengths = [s.shape[-1] if isinstance(s, torch.Tensor) else len(s) for s in sources]
        if bad := [length for length in lengths if length in self.bad_lengths]:
            raise EngineError(f"{bad[0]} is a bad length")
        self.passes.append(lengths)
        self.log.append(f"encode {len(sources)}")
        return [cast(EncodedSource, source) for source in sources]

    def step(self) -> None:
        self.log.append(f"step {sum(each.there < each.tokens for each in self.generations)}")
        for each in self.generations:
            each.there = min(each.there + 1, each.tokens)

    def task(self, number: int, tokens: int = 2, length: int = 3) -> Task[str]:
        """Encodes a source, and yields the number and a letter for each token."""
        self.begun.append(number)
        try:
            source = SourceHandle([0] * length, self.encode, ahead=self.ahead)
            yield Pending(source)
            assert source.encoded is not None
            generation = Generation(self, tokens)
            self.generations.append(generation)
            for letter in "abcdefghijklmnopqrstuvwxyz"[:tokens]:
                if not generation.ready:
                    yield Pending(generation)
                next(generation)
                self.log.append(f"{number}{letter}")
                yield f"{number}{letter}"
        finally:
            self.closed.append(number)

    def tasks(self, count: int, **sizes: int) -> Iterator[Task[str]]:
        return (self.task(number, **sizes) for number in range(count))


def events_of(count: int, tokens: int = 2) -> list[str]:
    return [f"{number}{letter}" for number in range(count) for letter in "abcdef"[:tokens]]


@pytest.mark.parametrize(
    "limits",
    [
        TaskLimits(),
        TaskLimits(parallel=3, ahead=5),
        TaskLimits(parallel=64, ahead=64, first_parallel=8, first_ahead=16, tokens=40),
    ],
)
def test_events_come_in_the_order_of_the_tasks(limits: TaskLimits) -> None:
    machine = Machine()
    tasks = (machine.task(n, tokens=1 + n % 5, length=1 + n % 7) for n in range(30))
    wanted = [f"{n}{letter}" for n in range(30) for letter in "abcde"[: 1 + n % 5]]
    assert list(interleave(tasks, limits)) == wanted
    assert machine.begun == list(range(30))


def test_without_limits_tasks_run_one_after_the_other() -> None:
    machine = Machine()
    assert list(interleave(machine.tasks(3))) == events_of(3)
    assert {"encode 1", "step 1"} == {each for each in machine.log if " " in each}


def test_the_first_event_comes_before_others_are_begun() -> None:
    """After it the tasks double with each step, up to the limit."""
    machine = Machine()
    events = interleave(machine.tasks(100, tokens=9), TaskLimits(parallel=8, ahead=32))
    assert next(events) == "0a"
    assert machine.log == ["encode 1", "step 1", "0a"]
    list(islice(events, 4))
    assert [each for each in machine.log if "encode" in each] == [
        *["encode 1", "encode 1", "encode 2", "encode 4"]
    ]


def test_events_of_the_first_are_yielded_while_others_are_computed() -> None:
    machine = Machine()
    events = interleave(machine.tasks(4, tokens=5), TaskLimits(parallel=4, ahead=4))
    for letter in "abcde":
        assert next(events) == f"0{letter}"
        assert machine.log[-1] == f"0{letter}"
    assert list(events) == events_of(4, 5)[5:]
    steps = [each for each in machine.log if "step" in each]
    assert len(steps) < 10, "they share the steps"


def test_a_task_goes_on_to_its_next_source_while_the_first_one_runs() -> None:
    """The windows of one recording follow each other, those of several share the passes."""
    machine = Machine()

    def windows(number: int) -> Task[str]:
        for part in "xyz":
            yield from (
                item if isinstance(item, Pending) else part + item
                for item in machine.task(number, tokens=2)
            )

    events = list(interleave((windows(n) for n in range(4)), TaskLimits(4, 4, 4)))
    assert events == [f"{p}{n}{t}" for n in range(4) for p in "xyz" for t in "ab"]
    assert machine.passes == [[3] * 4] * 3
    assert len([each for each in machine.log if "step" in each]) == 6


class Background:
    """Encodes as many sources as are asked for; the others stay in its queue."""

    def __init__(self, machine: Machine, running: bool = False) -> None:
        self.queue: list[tuple[Any, Future[EncodedSource]]] = []
        self.encoded = 0
        self._running, self._machine, machine.ahead = running, machine, self.start

    def start(self, source: Any) -> Future[EncodedSource]:
        future: Future[EncodedSource] = Future()
        self._machine.log.append("start")
        self.queue.append((source, future))
        if self._running:
            self.finish()
        return future

    def finish(self) -> None:
        for source, future in self.queue:
            if future.set_running_or_notify_cancel():
                self.encoded += 1
                if len(source) in self._machine.bad_lengths:
                    future.set_exception(EngineError("a bad length"))
                else:
                    future.set_result(cast(EncodedSource, source))
        self.queue.clear()


PREPARING = TaskLimits(parallel=4, ahead=8, first_parallel=4, prepared=2)


def test_sources_of_the_next_tasks_are_encoded_in_the_background() -> None:
    machine = Machine()
    background = Background(machine, running=True)
    events = interleave(machine.tasks(20, tokens=3), PREPARING)
    assert [next(events), len(machine.begun)] == ["0a", 4], "the first event comes early"
    assert [next(events), len(machine.begun)] == ["0b", 6], "two are prepared"
    assert machine.log.index("start") < machine.log.index("0b")
    assert list(events) == events_of(20, 3)[2:]
    # Four end at a time: two of the next ones are prepared.
    assert machine.passes == [[3] * 4, *[[3] * 2] * 4]
    assert background.encoded == 8


def test_what_is_computed_together_does_not_depend_on_the_background() -> None:
    def steps(prepared: int, running: bool) -> list[str]:
        machine = Machine()
        Background(machine, running)
        tasks = (machine.task(n, tokens=1 + n % 5) for n in range(30))
        list(interleave(tasks, TaskLimits(4, 8, 4, prepared=prepared)))
        return [each for each in machine.log if each.startswith("step")]

    assert steps(2, running=True) == steps(2, running=False) == steps(0, running=False)


def test_sources_that_the_background_has_not_begun_are_taken_back() -> None:
    machine = Machine()
    background = Background(machine)
    assert list(interleave(machine.tasks(12), PREPARING)) == events_of(12)
    assert [len(each) for each in machine.passes] == [4, 4, 4]
    background.finish()
    assert background.encoded == 0


def test_a_source_that_fails_in_the_background_fails_its_own_task_only() -> None:
    machine = Machine(bad_lengths=(4,))
    Background(machine, running=True)
    tasks = (machine.task(n, length=4 if n == 5 else 3) for n in range(8))
    found: list[str] = []
    with pytest.raises(EngineError, match="a bad length"):
        found.extend(interleave(tasks, PREPARING))
    assert found == events_of(5)


def test_a_source_that_cannot_be_begun_in_the_background_fails_its_own_task_only() -> None:
    machine = Machine()

    def refuse(source: Any) -> Future[EncodedSource]:
        raise EngineError("no such source")

    machine.ahead = refuse
    found: list[str] = []
    with pytest.raises(EngineError, match="no such source"):
        found.extend(interleave(machine.tasks(8), PREPARING))
    assert found == events_of(4)


def test_closing_closes_prepared_tasks_and_their_sources() -> None:
    machine = Machine()
    background = Background(machine)
    events = interleave(machine.tasks(20), PREPARING)
    next(events), next(events)
    events.close()
    assert sorted(machine.closed) == machine.begun == [0, 1, 2, 3, 4, 5]
    background.finish()
    assert background.encoded == 0


def test_no_more_tasks_are_begun_than_the_limits_allow() -> None:
    machine = Machine()
    limits = TaskLimits(parallel=4, ahead=10)
    tasks = (machine.task(n, tokens=40 if n == 0 else 1) for n in range(100))
    events = interleave(iter(tasks), limits)  # type: ignore[arg-type]
    for _ in range(26):
        next(events)
        running = sum(each.there < each.tokens for each in machine.generations)
        assert running <= 4
    assert len(machine.begun) == 10, "finished ones wait for the first"


def test_how_far_ahead_grows_with_each_task_that_ends() -> None:
    machine = Machine()
    limits = TaskLimits(parallel=100, ahead=40, first_parallel=4, first_ahead=8)
    events = interleave(machine.tasks(1000), limits)
    next(events)
    assert len(machine.begun) <= 8
    widest = 0
    for ended in range(1, 60):
        next(events), next(events)
        assert len(machine.begun) - ended <= min(8 + 2 * ended, 40)
        widest = max(widest, len(machine.begun) - ended)
    assert widest > 30


def test_long_sources_are_read_less_far_ahead() -> None:
    machine = Machine()
    limits = TaskLimits(parallel=64, ahead=64, first_parallel=64, tokens=1000)
    next(interleave(machine.tasks(100, length=300), limits))
    assert len(machine.begun) == 4


def test_sources_of_similar_length_share_a_pass_of_limited_size() -> None:
    machine = Machine()
    lengths = [1000, 5, 900, 6, 7, 8, 700]
    tasks = (machine.task(n, length=length) for n, length in enumerate(lengths))
    limits = TaskLimits(parallel=9, ahead=9, first_parallel=9)
    assert list(interleave(iter(tasks), limits)) == events_of(7)  # type: ignore[arg-type]
    assert machine.passes == [[5, 6, 7, 8], [700, 900], [1000]]


def test_tensors_share_a_pass_with_those_of_the_same_shape_only() -> None:
    machine = Machine()

    def task(frames: int) -> Task[int]:
        source = SourceHandle(torch.zeros(2, frames), machine.encode)
        yield Pending(source)
        yield cast(torch.Tensor, source.encoded).shape[-1]

    frames = [3000, 2000, 3000, 2000, 3000]
    limits = TaskLimits(parallel=9, ahead=9, first_parallel=9)
    assert list(interleave(map(task, frames), limits)) == frames
    assert machine.passes == [[2000] * 2, [3000] * 3]


def test_tensors_of_any_shape_share_a_pass_where_the_model_says_so() -> None:
    machine = Machine()
    handles = [
        SourceHandle(torch.zeros(2, frames), machine.encode, any_shape=True)
        for frames in (3000, 2000, 2500)
    ]

    def task(source: SourceHandle) -> Task[int]:
        yield Pending(source)
        yield cast(torch.Tensor, source.encoded).shape[-1]

    limits = TaskLimits(parallel=9, ahead=9, first_parallel=9)
    assert list(interleave(map(task, handles), limits)) == [3000, 2000, 2500]
    assert machine.passes == [[2000, 2500, 3000]]


def test_a_handle_that_is_read_early_is_encoded_alone() -> None:
    machine = Machine()
    handle = SourceHandle([1, 2], machine.encode)
    assert (handle.ready, handle.length) == (False, 2)
    assert handle.encoded == [1, 2]
    assert handle.ready
    assert handle.encoded == [1, 2]
    assert machine.passes == [[2]]


def test_a_source_that_cannot_be_encoded_fails_its_own_task_only() -> None:
    machine = Machine(bad_lengths=(4,))
    tasks = (machine.task(n, length=4 if n == 2 else 3) for n in range(5))
    found: list[str] = []
    limits = TaskLimits(parallel=5, ahead=5, first_parallel=5)
    with pytest.raises(EngineError, match="4 is a bad length"):
        found.extend(interleave(tasks, limits))
    assert found == events_of(2), "what came before it is yielded"
    assert [3, 3, 3, 3] not in machine.passes
    assert machine.passes == [[3]] * 4


def test_an_error_of_a_task_is_raised_when_it_is_its_turn() -> None:
    machine = Machine()

    def broken() -> Task[str]:
        yield "2a"
        raise ZeroDivisionError

    tasks = [machine.task(0), machine.task(1), broken(), machine.task(3)]
    found: list[str] = []
    with pytest.raises(ZeroDivisionError):
        found.extend(interleave(tasks, TaskLimits(4, 4, 4)))
    assert found == [*events_of(2), "2a"]
    assert sorted(machine.closed) == [0, 1, 3]


@pytest.mark.parametrize("prepared", [0, 2])
@pytest.mark.parametrize("ahead", [1, 8])
def test_an_error_of_the_input_is_raised_after_what_came_before_it(
    ahead: int, prepared: int
) -> None:
    machine = Machine()
    Background(machine, running=True)

    def tasks() -> Iterator[Task[str]]:
        yield from machine.tasks(3)
        raise ConnectionResetError

    found: list[str] = []
    with pytest.raises(ConnectionResetError):
        found.extend(interleave(tasks(), TaskLimits(ahead, ahead, ahead, prepared=prepared)))
    assert found == events_of(3)


@pytest.mark.parametrize("prepared", [0, 2])
@pytest.mark.parametrize("parallel", [1, 8])
def test_at_a_pause_all_tasks_end_before_more_input_is_requested(
    parallel: int, prepared: int
) -> None:
    machine, found, seen = Machine(), list[str](), list[list[str]]()
    Background(machine, running=True)

    def tasks() -> Iterator[Task[str] | None]:
        yield None
        yield machine.task(0)
        yield machine.task(1)
        yield None
        seen.append([*found])
        yield None
        yield machine.task(2)

    for event in interleave(tasks(), TaskLimits(parallel, 8, parallel, prepared=prepared)):
        found.append(event)
    assert found == events_of(3)
    assert seen == [events_of(2)]


def test_a_task_that_does_not_wait_is_not_read_ahead_of() -> None:
    def copied(number: int) -> Task[str]:
        yield f"{number}a"

    tasks = map(copied, range(3))
    events = interleave(tasks, TaskLimits(8, 8, 8))
    assert [next(events), next(events)] == ["0a", "1a"]
    assert [*next(tasks)] == ["2a"]
    assert list(events) == []


def test_a_task_that_waits_for_its_turn_does_not_hold_up_others() -> None:
    machine = Machine()

    def polite() -> Task[str]:
        yield from machine.task(1)
        yield MY_TURN
        machine.log.append("turn")
        yield from machine.task(2)

    events = list(
        interleave([machine.task(0, tokens=6), polite(), machine.task(3)], TaskLimits(4, 4, 4))
    )
    assert events == [*events_of(1, 6), "1a", "1b", "2a", "2b", "3a", "3b"]
    assert machine.log.index("3b") < machine.log.index("turn")
    assert machine.log.index("0f") < machine.log.index("turn")


def test_closing_closes_all_tasks() -> None:
    machine = Machine()
    events = interleave(machine.tasks(50, tokens=5), TaskLimits(8, 32))
    for _ in range(8):
        next(events)
    assert len(machine.begun) > 4
    events.close()
    assert sorted(machine.closed) == machine.begun
    assert list(events) == []


def test_nothing_is_read_before_the_first_event_is_requested() -> None:
    machine = Machine()
    events = interleave(machine.tasks(5), TaskLimits(8, 8))
    assert machine.begun == []
    events.close()
    assert machine.begun == []
