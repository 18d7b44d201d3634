"""Decode tasks, and two ways to run them: one alone, or many interleaved.

A decode task is a generator that decodes a recording, or a chunk of one. It does not block: where
it needs the engine it yields a request, and its runner decides when that is answered. `run_one`
answers at once. `run_interleaved` runs many tasks, so that they share the engine's batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from pipelines.asr.results import Checkpoint, Retract, SegmentDone, TextDelta
from pipelines.deferred_errors import DeferErrors
from pipelines.engine import EncodedSource, Stream
from pipelines.errors import EdgeError, EngineError, NumericalError

__all__ = [
    "ChunkTask",
    "DecodeEvent",
    "DecodeTask",
    "EncodeRequest",
    "StreamNotReady",
    "run_interleaved",
    "run_one",
]

# At most this many times `batch_size` tasks are begun, finished ones that wait for their turn
# included.
_MAX_TASKS_PER_SLOT = 4
# New tasks are begun when at least this share of `batch_size` is free, so that they are encoded in
# one pass.
_MIN_REFILL = 0.25
_MAX_NAMED = 5  # failed tasks that an error message names


@dataclass(frozen=True, eq=False)
class EncodeRequest:
    """Yielded by a task that needs a window encoded. The runner sends the EncodedSource.

    Attributes:
        window: Log-mel spectrogram [mels, frames].
    """

    window: Tensor


@dataclass(frozen=True, eq=False)
class StreamNotReady:
    """Yielded by a task before it reads a stream without events.

    A task that is resumed before the stream is ready computes decode steps until it is.

    Attributes:
        stream: The generation.
    """

    stream: Stream


DecodeEvent: TypeAlias = TextDelta | Retract | SegmentDone | Checkpoint
DecodeTask: TypeAlias = Generator[
    DecodeEvent | EncodeRequest | StreamNotReady, EncodedSource | None, None
]
EncodeFunction: TypeAlias = Callable[[Sequence[Tensor]], list[EncodedSource]]


@dataclass(frozen=True, eq=False)
class ChunkTask:
    """A chunk of a recording, to be decoded together with others.

    Attributes:
        begin: Makes the decode task; called again after a failure.
        name: The chunk's name in messages.
    """

    begin: Callable[[], DecodeTask]
    name: str


def run_one(decode_task: DecodeTask, encode: EncodeFunction) -> Generator[DecodeEvent, None, None]:
    """Run one task from start to end. Closing the generator closes the task.

    Args:
        decode_task: The task.
        encode: Encodes windows of equal length in one pass.

    Yields:
        The task's events.
    """
    reply = None
    try:
        while True:
            item = decode_task.send(reply)
            reply = None
            if isinstance(item, EncodeRequest):
                reply = encode([item.window])[0]
            elif not isinstance(item, StreamNotReady):
                yield item
    except StopIteration:
        return
    finally:
        decode_task.close()


class _RunningTask:
    """A chunk's task that has begun.

    Attributes:
        name: The chunk's name in messages.
        events: Events that have not been passed on yet.
        pending: The request that the task waits for.
        error: Why the latest attempt failed.
        done: The task has ended, or has failed for good.
    """

    def __init__(self, chunk: ChunkTask) -> None:
        self.name = chunk.name
        self._begin: Callable[[], DecodeTask] | None = chunk.begin
        self.events: deque[DecodeEvent] = deque()
        self.pending: EncodeRequest | StreamNotReady | None = None
        self.error: Exception | None = None
        self.done = False
        self._retried = False
        self._has_live_text = False  # emitted, and not replaced by a segment yet
        self._segments = 0  # emitted so far
        self._to_skip = 0  # segments that the second attempt repeats
        self._task = chunk.begin()

    @property
    def can_resume(self) -> bool:
        return not self.done and not (
            self.error is not None
            or isinstance(self.pending, EncodeRequest)
            or (isinstance(self.pending, StreamNotReady) and not self.pending.stream.ready)
        )

    def resume(self, reply: EncodedSource | None = None) -> None:
        """Run until the task yields a request again, ends or fails."""
        self.pending = None
        try:
            while self.pending is None:
                item = self._task.send(reply)
                reply = None
                if isinstance(item, (EncodeRequest, StreamNotReady)):
                    self.pending = item
                else:
                    self._emit(item)
        except StopIteration:
            self.done, self._begin = True, None  # releases the chunk's samples
        except Exception as error:  # of any kind: the other tasks go on
            self.fail(error)

    def _emit(self, event: DecodeEvent) -> None:
        if self._to_skip:
            self._to_skip -= isinstance(event, SegmentDone)
            return
        self._has_live_text = isinstance(event, TextDelta)
        self._segments += isinstance(event, SegmentDone)
        self.events.append(event)

    def fail(self, error: Exception) -> None:
        """End the attempt. The first failure is followed by a retry, the second is final."""
        self.pending, self.error = None, error
        self._task.close()
        if self._has_live_text:
            self._emit(Retract())
        if self._retried:
            self.done = True

    def retry(self) -> None:
        """Begin again. Segments that were emitted already are skipped."""
        assert self._begin is not None, "a task that has ended is not retried"
        self.error, self._retried, self._to_skip = None, True, self._segments
        self._task = self._begin()

    def close(self) -> None:
        self._task.close()


def run_interleaved(
    chunks: Iterator[ChunkTask], encode: EncodeFunction, batch_size: int
) -> Generator[DecodeEvent, None, None]:
    """Decode chunks, up to `batch_size` of them in parallel.

    Events come in the order of the chunks: those of the first unfinished chunk live, those of
    later ones when it is their turn. Chunks are read from the iterator as needed. A chunk that
    fails is retried once, when it is its turn. If the retry fails, the other chunks are decoded
    before the error is raised; two failed chunks in a row raise it at once. If the iterator
    raises, the chunks before are decoded first. Closing the generator cancels the decoding.

    Args:
        chunks: The chunks of a recording in order.
        encode: Encodes windows of equal length in one pass.
        batch_size: Maximum number of chunks decoded in parallel.

    Yields:
        The events of all chunks.

    Raises:
        EngineError: Chunks failed; the message names them. A NumericalError if the last of them
            failed with one.
    """
    running: deque[_RunningTask] = deque()
    source = DeferErrors(chunks)
    failed: list[str] = []  # names of chunks that failed
    last_error: Exception | None = None  # of the last chunk that failed
    previous_failed = False  # whether the chunk before the first one failed
    may_begin = True
    try:
        while True:
            if may_begin:
                _begin_tasks(source, running, batch_size)
            if not running:
                source.check()
                if last_error is not None:
                    raise _failure(last_error, failed)
                return
            may_begin = False
            first = running[0]
            if first.error is not None and not first.done:
                first.retry()
            resumable = [task for task in running if task.can_resume]
            for task in resumable:
                task.resume()
            encoded_any = _encode_pending(running, encode)
            while first.events:
                yield first.events.popleft()
            if first.done:
                running.popleft()
                may_begin = True
                if first.error is not None:
                    failed.append(first.name)
                    last_error = first.error
                    if previous_failed:
                        raise _failure(last_error, failed)
                previous_failed = first.error is not None
            elif not (resumable or encoded_any or first.error):
                first.resume()  # computes a decode step of the whole batch
                may_begin = True
    finally:
        for task in running:
            task.close()


def _begin_tasks(
    chunks: Iterator[ChunkTask], running: deque[_RunningTask], batch_size: int
) -> None:
    """Begin further tasks, several at once, so that one encoder pass serves them; but at most as
    many as are being decoded already, so that the first text comes early."""
    decoding = sum(not task.done for task in running)
    room = min(batch_size - decoding, _MAX_TASKS_PER_SLOT * batch_size - len(running))
    if decoding >= _MIN_REFILL * batch_size and room < _MIN_REFILL * batch_size:
        return
    for _ in range(min(max(1, decoding), room)):
        chunk = next(chunks, None)
        if chunk is None:
            return
        running.append(_RunningTask(chunk))


def _encode_pending(running: Sequence[_RunningTask], encode: EncodeFunction) -> bool:
    """Encode the windows that tasks wait for, those of equal length in one pass.

    Returns:
        Whether there were any.
    """
    pending = [
        (task, task.pending.window) for task in running if isinstance(task.pending, EncodeRequest)
    ]
    lengths = dict.fromkeys(window.shape[-1] for _, window in pending)
    for length in lengths:
        group = [(task, window) for task, window in pending if window.shape[-1] == length]
        try:
            encoded_sources = encode([window for _, window in group])
        except Exception:  # encode one by one, so that only the window at fault fails
            for task, window in group:
                try:
                    task.resume(encode([window])[0])
                except Exception as error:
                    task.fail(error)
            continue
        for (task, _), encoded in zip(group, encoded_sources, strict=True):
            task.resume(encoded)
    return bool(pending)


def _failure(error: Exception, failed: Sequence[str]) -> EngineError:
    """The error for chunks that failed.

    Args:
        error: What the last of them failed with.
        failed: The names of all of them.
    """
    *others, last = failed
    if isinstance(error, NumericalError):
        message = str(error)  # names the times
    else:
        reason = str(error) if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}"
        message = f"{last} could not be recognized: {reason}"
    if others:
        names = others[:_MAX_NAMED]
        if len(others) > _MAX_NAMED:
            names.append(f"{len(others) - _MAX_NAMED} more")
        message += f"; nor could {', '.join(names)}"
    failure = NumericalError(message) if isinstance(error, NumericalError) else EngineError(message)
    failure.__cause__ = error
    return failure
