"""Tasks that share the engine: the one place that decides which of them goes on, and what is
encoded together.

A task is a generator of events of any kind. It does not block: before it reads what is not
computed yet, it yields `Pending`. `interleave` resumes it when that is ready, and computes only
when no task can go on: first what sources wait to be encoded, then a step of the batch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from torch import Tensor

from pipelines.engine.decoding.request import Event
from pipelines.engine.state.encoded_source import EncodedSource
from pipelines.engine.stream import Stream
from pipelines.errors import own_copy

T = TypeVar("T")

# Tokens, padding included, of one pass of the encoder: enough to occupy all cores, and short
# enough that urgent requests on the same engine do not wait long.
_PASS_TOKENS = 2048
# New tasks are begun when at least this share of those allowed is missing, so that their sources
# are encoded together.
_MIN_REFILL = 0.25
# How many more tasks may be ahead for each that has ended.
_GROWTH = 2


class SourceHandle:
    """A source that is encoded when it is needed, if possible in one pass with others.

    Args:
        source: As for LoadedModel.encode.
        encode: Encodes several sources in one pass.
        any_shape: Whether tensors of other shapes may be in the same pass.
        ahead: Begins to encode a source in the background, or returns None.
    """

    def __init__(
        self,
        source: Any,
        encode: Callable[[Sequence[Any]], Sequence[EncodedSource]],
        any_shape: bool = False,
        ahead: Callable[[Any], Future[EncodedSource] | None] | None = None,
    ) -> None:
        self._source, self._encode, self._any_shape = source, encode, any_shape
        self._ahead = ahead
        self._future: Future[EncodedSource] | None = None  # while it is encoded in the background
        self._encoded: EncodedSource | None = None
        self._error: Exception | None = None

    @property
    def ready(self) -> bool:
        """Whether `encoded` returns or raises without computing."""
        return self._encoded is not None or self._error is not None

    worth_reading = ready

    @property
    def length(self) -> int:
        """Number of token ids, or of frames."""
        return self._source.shape[-1] if isinstance(self._source, Tensor) else len(self._source)

    @property
    def encoded(self) -> EncodedSource:
        """The encoded source, which is computed unless it is ready.

        Raises:
            Exception: What the encoder raised for this source.
        """
        if self.take_back():
            _encode_pass([self])
        self.finish()
        if self._encoded is None:
            assert self._error is not None
            raise own_copy(self._error)
        return self._encoded

    def start(self) -> None:
        """Begin to encode the source in the background, if that can be done."""
        if self.ready or self._future is not None or self._ahead is None:
            return
        try:
            self._future = self._ahead(self._source)
        except Exception as error:  # of any kind: it is raised where the source is read
            self._error = error

    def take_back(self) -> bool:
        """Whether the source is not encoded yet, and not in the background from now on."""
        if self._future is not None and self._future.cancel():
            self._future = None
        return not self.ready and self._future is None

    def finish(self) -> None:
        """Wait for the source if it is encoded in the background."""
        future, self._future = self._future, None
        if future is not None:
            try:
                self._encoded = future.result()
            except Exception as error:  # of any kind: it is raised where the source is read
                self._error = error

    def fits(self, others: Sequence[SourceHandle]) -> bool:
        """Whether it can be encoded in one pass with others, none of which is longer."""
        if not others or isinstance(self._source, Tensor):
            return self._any_shape or all(self.length == other.length for other in others)
        return (len(others) + 1) * self.length <= _PASS_TOKENS


def _encode_all(handles: Sequence[SourceHandle]) -> None:
    """Encode sources, those of similar length in one pass, or wait for them."""
    batch: list[SourceHandle] = []
    waiting = [handle for handle in handles if handle.take_back()]
    for handle in sorted(waiting, key=lambda handle: handle.length):
        if not handle.fits(batch):
            _encode_pass(batch)
            batch = []
        batch.append(handle)
    if batch:
        _encode_pass(batch)
    for handle in handles:
        handle.finish()


def _encode_pass(handles: Sequence[SourceHandle]) -> None:
    """Encode in one pass. If it fails, one by one, so that only the source at fault fails."""
    try:
        encoded_sources = handles[0]._encode([handle._source for handle in handles])
    except Exception as error:  # of any kind: it is raised where the source is read
        if len(handles) == 1:
            handles[0]._error = error
            return
        for handle in handles:
            _encode_pass([handle])
        return
    for handle, encoded in zip(handles, encoded_sources, strict=True):
        handle._encoded = encoded


class _Awaited(Protocol):
    @property
    def ready(self) -> bool: ...

    @property
    def worth_reading(self) -> bool: ...


@dataclass(frozen=True, eq=False)
class Pending:
    """Yielded by a task before it reads something. A task that is resumed earlier computes it.

    Attributes:
        on: The SourceHandle or the Stream that is read next.
    """

    on: _Awaited


def events_of(stream: Stream) -> Iterator[Event | Pending]:
    """The events of a stream for a task, with Pending before each that is not computed yet."""
    pending = Pending(stream)
    while True:
        if not stream.ready:
            yield pending
        event = next(stream, None)
        if event is None:
            return
        yield event


class _Turn:
    worth_reading = ready = False  # the first task is resumed all the same


MY_TURN = Pending(_Turn())
"""Yielded by a task that goes on when all tasks before it have ended."""

Task: TypeAlias = Generator[T | Pending, None, None]


@dataclass(frozen=True)
class TaskLimits:
    """How many tasks are begun.

    Attributes:
        parallel: At most so many that have not ended.
        ahead: At most so many in all, with those that have ended and wait for their turn, and
            without those that are `prepared`.
        first_parallel: The value of `parallel` before the first step, so that the first event comes
            early. It doubles with each step.
        first_ahead: The value of `ahead` at first. It grows with each task that ends.
        prepared: After the first step so many more tasks are begun up to their first source, which
            is encoded in the background if possible; with `first_ahead`, once a task has ended.
        tokens: No task is begun while the sources of the others have so many tokens in all.
    """

    parallel: int = 1
    ahead: int = 1
    first_parallel: int = 1
    first_ahead: int | None = None
    prepared: int = 0
    tokens: float = math.inf


def interleave(
    tasks: Iterable[Task[T] | None], limits: TaskLimits | None = None
) -> Generator[T, None, None]:
    """Run tasks side by side and yield their events in the order of the tasks.

    The events of the first unfinished task are yielded as they come, those of later ones when it
    is their turn. Sources that tasks wait for are encoded together.

    Args:
        tasks: Read lazily, as far ahead as the limits allow. None is a pause: all tasks before it
            end before the next one is requested.
        limits: How far ahead; by default tasks run one after the other.

    Yields:
        The events. Closing the generator closes all tasks.

    Raises:
        Exception: What a task raised, or `tasks` itself, after the events of all tasks before it.
    """
    running = _RunningTasks(iter(tasks), limits or TaskLimits())
    try:
        while first := running.first():
            yield from first.advance()
            if not first.done:
                running.begin_more()
                running.prepare()
                while not first.done and running.advance_others():
                    yield from first.advance()
            if not first.done:  # no task can go on without a step
                yield from first.resume()
                running.allow_more()
            if first.done:
                running.end_first()
    finally:
        running.close()


class _RunningTask(Generic[T]):
    """A task that has begun.

    Args:
        task: The task.
        unencoded: Where a source is added that the task waits for.

    Attributes:
        unencoded: As given.
        events: Those not passed on yet.
        awaited: What it reads next; None before it begins.
        tokens: Of its source.
        error: Why it failed.
        done: It has ended or failed.
    """

    def __init__(self, task: Task[T], unencoded: list[SourceHandle]) -> None:
        self._task, self.unencoded = task, unencoded
        self.events: deque[T] = deque()
        self.awaited: _Awaited | None = None
        self.tokens = 0
        self.error: Exception | None = None
        self.done = False

    @property
    def can_resume(self) -> bool:
        return not self.done and (self.awaited is None or self.awaited.ready)

    @property
    def is_behind(self) -> bool:
        """Whether it can go on for a while, so that resuming it is worth its cost."""
        return not self.done and (self.awaited is None or self.awaited.worth_reading)

    def advance(self) -> Iterator[T]:
        """Yield the events so far, and more as long as nothing has to be computed for them."""
        while self.events:
            yield self.events.popleft()
        if self.can_resume:
            yield from self.resume()

    def resume(self) -> Iterator[T]:
        """Yield events until the task has to wait, ends or fails."""
        try:
            for item in self._task:
                if not isinstance(item, Pending):
                    yield item
                    continue
                self.awaited = awaited = item.on
                if isinstance(awaited, SourceHandle):
                    self.tokens = awaited.length
                if awaited.ready:
                    continue
                if isinstance(awaited, SourceHandle):
                    self.unencoded.append(awaited)
                return
        except Exception as error:  # of any kind: it is raised when it is the task's turn
            self.error = error
        self.done = True

    def close(self) -> None:
        self._task.close()


class _RunningTasks(Generic[T]):
    """The tasks that have begun, in order."""

    def __init__(self, tasks: Iterator[Task[T] | None], limits: TaskLimits) -> None:
        self._tasks, self._limits = tasks, limits
        self._running: deque[_RunningTask[T]] = deque()
        self._prepared: deque[_RunningTask[T] | None] = deque()  # None is a pause
        self._unencoded: list[SourceHandle] = []
        self._ahead = limits.ahead if limits.first_ahead is None else limits.first_ahead
        self._input_error: Exception | None = None
        self._paused = self._input_ended = False
        self._parallel, self._stepped = 0, False

    def first(self) -> _RunningTask[T] | None:
        """The first task, which is begun if none is running; None at the end of the input.

        Raises:
            Exception: What the input raised, once all tasks before have ended.
        """
        if not self._running:
            self._paused, self._parallel = False, self._limits.first_parallel
            while not (self._begin() or (self._input_ended and not self._prepared)):
                pass  # a pause, for which nothing has to end
            if not self._running and self._input_error is not None:
                raise self._input_error
        return self._running[0] if self._running else None

    def _begin(self) -> _RunningTask[T] | None:
        """Begin the next task; None at a pause and at the end of the input."""
        if not self._prepared and not self._request():
            return None
        task = self._prepared.popleft()
        if task is None:
            self._paused = True
            return None
        self._unencoded.extend(task.unencoded)
        task.unencoded = self._unencoded
        self._running.append(task)
        return task

    def _request(self) -> bool:
        """Request the next task; returns False at the end of the input."""
        if self._input_ended:
            return False
        try:
            task = next(self._tasks)
        except StopIteration:
            self._input_ended = True
            return False
        except Exception as error:
            self._input_ended, self._input_error = True, error
            return False
        self._prepared.append(None if task is None else _RunningTask(task, []))
        return True

    def prepare(self) -> None:
        """Begin tasks that do not count yet, and to encode their sources in the background."""
        if not self._stepped or self._ahead == self._limits.first_ahead:
            return  # the first event is to come early
        while len(self._prepared) < self._limits.prepared and None not in self._prepared:
            if self._paused or not self._request():
                return
            task = self._prepared[-1]
            if task is not None:
                task.events.extend(task.resume())
                for source in task.unencoded:
                    source.start()

    def begin_more(self) -> None:
        """Begin as many tasks as the limits allow, unless they are few."""
        unfinished = sum(not task.done for task in self._running)
        room = min(self._parallel - unfinished, self._ahead - len(self._running))
        few = _MIN_REFILL * min(self._limits.parallel, self._ahead)
        if room < few <= unfinished:
            return
        tokens = sum(task.tokens for task in self._running)
        for _ in range(room):
            if self._paused or tokens >= self._limits.tokens:
                return
            task = self._begin()
            if task is None:
                return
            if task.awaited is None:  # not prepared
                task.events.extend(task.resume())
            tokens += task.tokens

    def allow_more(self) -> None:
        """Double the number of tasks that run side by side, up to the limit: after a step."""
        self._parallel, self._stepped = min(2 * self._parallel, self._limits.parallel), True

    def advance_others(self) -> bool:
        """Resume the tasks behind the first that can go on, then encode what tasks wait for.

        Returns:
            Whether there was something to encode.
        """
        for task in islice(self._running, 1, None):
            if task.is_behind:
                task.events.extend(task.resume())
        handles, self._unencoded[:] = [*self._unencoded], []
        _encode_all(handles)
        return bool(handles)

    def end_first(self) -> None:
        """Remove the first task, which is done. Raises its error if it failed."""
        task = self._running.popleft()
        self._ahead = min(self._ahead + _GROWTH, self._limits.ahead)
        if task.error is not None:
            raise task.error

    def close(self) -> None:
        """Close all tasks."""
        for task in [*self._prepared, *self._running]:
            if task is not None:
                for source in task.unencoded:
                    source.take_back()
                task.close()
