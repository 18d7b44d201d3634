"""Recordings, or pieces of one, decoded alone or side by side.

A course is the decoding of one recording as a generator of events that does not wait itself: it
says what it needs of the engine, and who runs it decides when it gets that. `alone` gives it at
once; `together` lets many courses share the engine's passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from pipelines.asr.results import Retract, SegmentDone, TextDelta
from pipelines.deferred_errors import DeferErrors
from pipelines.engine import EncodedSource, Stream
from pipelines.errors import EdgeError, EngineError, NumericalError

__all__ = [
    "DecodeTask",
    "DecodeEvent",
    "EncodeRequest",
    "ChunkTask",
    "StreamNotReady",
    "run_one",
    "run_interleaved",
]

_MAX_TASKS_PER_SLOT = (
    4  # times as many pieces as share the passes may be begun, those that are done included
)
_MIN_REFILL = 0.25  # of the pieces at work: fewer are not begun at once while there are enough
_NAMED = 5  # pieces that failed are named in an error


@dataclass(frozen=True, eq=False)
class EncodeRequest:
    """A course needs a window [n_mels, frames] encoded, and is to be sent the memory."""

    window: Tensor


@dataclass(frozen=True, eq=False)
class StreamNotReady:
    """A course needs news of a stream. Sent on earlier, it computes steps until they are there."""

    stream: Stream


DecodeEvent: TypeAlias = TextDelta | Retract | SegmentDone
DecodeTask: TypeAlias = Generator[
    DecodeEvent | EncodeRequest | StreamNotReady, EncodedSource | None, None
]
EncodeFunction: TypeAlias = Callable[[Sequence[Tensor]], list[EncodedSource]]


@dataclass(frozen=True, eq=False)
class ChunkTask:
    """What can be decoded beside others. begin: gives its course, a second time after a failure.
    name: what messages call it."""

    begin: Callable[[], DecodeTask]
    name: str


def run_one(decode_task: DecodeTask, encode: EncodeFunction) -> Generator[DecodeEvent, None, None]:
    """The events of one course, from start to end. Closing it closes the course."""
    answer = None
    try:
        while True:
            step = decode_task.send(answer)
            answer = None
            if isinstance(step, EncodeRequest):
                answer = encode([step.window])[0]
            elif not isinstance(step, StreamNotReady):
                yield step
    except StopIteration:
        return
    finally:
        decode_task.close()


class _RunningTask:
    """A piece under way: its course, as far as it has come, and what that has brought so far."""

    def __init__(self, piece: ChunkTask) -> None:
        self.name = piece.name
        self._begin: Callable[[], DecodeTask] | None = piece.begin
        self.events: deque[DecodeEvent] = deque()
        self.need: EncodeRequest | StreamNotReady | None = None
        self.error: Exception | None = None
        self.over = False
        self._tried_again = False
        self._live = False  # whether text was given out that no segment has replaced yet
        self._segments = 0  # given out so far,
        self._known = 0  # and how many of those a second attempt has still to repeat
        self._course = piece.begin()

    @property
    def can_go_on(self) -> bool:
        return not self.over and not (
            self.error is not None
            or isinstance(self.need, EncodeRequest)
            or (isinstance(self.need, StreamNotReady) and not self.need.stream.ready)
        )

    def go_on(self, answer: EncodedSource | None = None) -> None:
        """Run to where the course needs something again, or to its end."""
        self.need = None
        try:
            while self.need is None:
                step = self._course.send(answer)
                answer = None
                if isinstance(step, (EncodeRequest, StreamNotReady)):
                    self.need = step
                else:
                    self._take(step)
        except StopIteration:
            self.over, self._begin = True, None  # with all that it holds
        except Exception as error:  # whatever it is, it must not end the other pieces
            self.fail(error)

    def _take(self, event: DecodeEvent) -> None:
        if self._known:
            self._known -= isinstance(event, SegmentDone)
            return
        self._live = isinstance(event, TextDelta)
        self._segments += isinstance(event, SegmentDone)
        self.events.append(event)

    def fail(self, error: Exception) -> None:
        """Give up for now: another try is made when it is this piece's turn, and then the last."""
        self.need, self.error = None, error
        self._course.close()
        if self._live:
            self._take(Retract())
        if self._tried_again:
            self.over = True

    def try_again(self) -> None:
        """Begin once more. What was given out already is not given out again."""
        assert self._begin is not None, "what is over is not tried again"
        self.error, self._tried_again, self._known = None, True, self._segments
        self._course = self._begin()

    def close(self) -> None:
        self._course.close()


def run_interleaved(
    pieces: Iterator[ChunkTask], encode: EncodeFunction, size: int
) -> Generator[DecodeEvent, None, None]:
    """The events of all pieces in their order, up to `size` of them decoded side by side.

    The first piece that is not done is live; what others came to meanwhile follows when it is
    their turn. Pieces are taken as they are needed. A piece that fails is tried once more when it
    is its turn. Where that fails, too, the others are finished before the error is raised; two in
    a row raise it at once. Where the pieces themselves break off, those before are finished first.
    Closing it cancels what is being decoded.

    Raises EngineError that names the pieces that failed: NumericalError if the last of them did
    because the model computed NaN or infinity.
    """
    runs: deque[_RunningTask] = deque()
    source = DeferErrors(pieces)
    broken: list[str] = []  # names of pieces that failed,
    failure: Exception | None = None  # and what the last of them failed with
    failed = False  # the piece before
    stepped = True
    try:
        while True:
            if stepped:
                _start_tasks(source, runs, size)
            if not runs:
                source.check()
                if failure is not None:
                    raise _failure(failure, broken)
                return
            stepped = False
            first = runs[0]
            if first.error is not None and not first.over:
                first.try_again()
            moving = [run for run in runs if run.can_go_on]
            for run in moving:
                run.go_on()
            heard = _encode_waiting(runs, encode)
            while first.events:
                yield first.events.popleft()
            if first.over:
                runs.popleft()
                stepped = True
                if first.error is not None:
                    broken.append(first.name)
                    failure = first.error
                    if failed:
                        raise _failure(failure, broken)
                failed = first.error is not None
            elif not (moving or heard or first.error):
                first.go_on()  # computes a step, for all
                stepped = True
    finally:
        for run in runs:
            run.close()


def _start_tasks(pieces: Iterator[ChunkTask], runs: deque[_RunningTask], size: int) -> None:
    """Begin further pieces, several in one pass of the encoder; but no more than are at work
    already, so that the first words come soon."""
    busy = sum(not run.over for run in runs)
    room = min(size - busy, _MAX_TASKS_PER_SLOT * size - len(runs))
    if busy >= _MIN_REFILL * size and room < _MIN_REFILL * size:
        return
    for _ in range(min(max(1, busy), room)):
        piece = next(pieces, None)
        if piece is None:
            return
        runs.append(_RunningTask(piece))


def _encode_waiting(runs: Sequence[_RunningTask], encode: EncodeFunction) -> bool:
    """Encode what runs want to hear, windows of one length in one pass. Whether any did."""
    waiting = [(run, run.need.window) for run in runs if isinstance(run.need, EncodeRequest)]
    lengths = dict.fromkeys(window.shape[-1] for _, window in waiting)
    for length in lengths:
        group = [(run, window) for run, window in waiting if window.shape[-1] == length]
        try:
            encoded_sources = encode([window for _, window in group])
        except Exception:  # one of them is to blame: find out which
            for run, window in group:
                try:
                    run.go_on(encode([window])[0])
                except Exception as error:
                    run.fail(error)
            continue
        for (run, _), encoded in zip(group, encoded_sources, strict=True):
            run.go_on(encoded)
    return bool(waiting)


def _failure(error: Exception, broken: Sequence[str]) -> EngineError:
    """What the last of these pieces failed with, and the names of the others."""
    *others, last = broken
    if isinstance(error, NumericalError):
        message = str(error)  # it says where
    else:
        why = str(error) if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}"
        message = f"{last} could not be recognised: {why}"
    if others:
        names = others[:_NAMED] + [f"{len(others) - _NAMED} more"] * (len(others) > _NAMED)
        message += f"; nor could {', '.join(names)}"
    failure = NumericalError(message) if isinstance(error, NumericalError) else EngineError(message)
    failure.__cause__ = error
    return failure
