"""Chunks of a recording, decoded in parallel: what happens where one of them fails."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from pipelines.asr.results import Retract, SegmentDone, TextDelta
from pipelines.asr.sequential import DecodeEvent, DecodeTask
from pipelines.engine import MY_TURN, Pending, TaskLimits, interleave
from pipelines.errors import EdgeError, EngineError, NumericalError

# At most this many times `batch_size` chunks are begun, finished ones that wait for their turn
# included.
_MAX_CHUNKS_PER_SLOT = 4
_PREPARED = 3  # chunks that are encoded while others are decoded
_MAX_NAMED = 5  # failed chunks that an error message names


@dataclass(frozen=True, eq=False)
class ChunkTask:
    """A chunk of a recording, to be decoded together with others.

    Attributes:
        begin: Makes the decode task; called again after a failure.
        name: The chunk's name in messages.
    """

    begin: Callable[[], DecodeTask]
    name: str


@dataclass(frozen=True)
class _ChunkEnd:
    """The last event of a chunk. error: why its second attempt failed, None if one succeeded."""

    name: str
    error: Exception | None = None


def decode_chunks(
    chunks: Iterable[ChunkTask], batch_size: int, first_alone: bool = False
) -> Generator[DecodeEvent, None, None]:
    """Decode chunks, up to `batch_size` of them in parallel.

    Events come in the order of the chunks: those of the first unfinished chunk live, those of
    later ones when it is their turn. Chunks are read from the iterator as needed. A chunk that
    fails is retried once, when it is its turn. If the retry fails, the other chunks are decoded
    before the error is raised; two failed chunks in a row raise it at once. If the iterator
    raises, the chunks before are decoded first. Closing the generator cancels the decoding.

    Args:
        chunks: The chunks of a recording in order.
        batch_size: Maximum number of chunks decoded in parallel.
        first_alone: Decode the first chunk alone, so that its text does not wait for the encoding
            of others.

    Yields:
        The events of all chunks.

    Raises:
        EngineError: Chunks failed; the message names them. A NumericalError if the last of them
            failed with one.
    """
    limits = TaskLimits(
        parallel=batch_size,
        ahead=_MAX_CHUNKS_PER_SLOT * batch_size,
        first_ahead=1 if first_alone else None,
        prepared=_PREPARED,
    )
    failed: list[str] = []  # names of chunks that failed
    last_error: Exception | None = None  # of the last chunk that failed
    previous_failed = False
    events: Generator[DecodeEvent | _ChunkEnd, None, None]
    events = interleave(map(_with_retry, chunks), limits)
    with closing(events):
        for event in events:
            if not isinstance(event, _ChunkEnd):
                yield event
                continue
            if event.error is not None:
                failed.append(event.name)
                last_error = event.error
                if previous_failed:
                    break
            previous_failed = event.error is not None
    if last_error is not None:
        raise _failure(last_error, failed)


def _with_retry(chunk: ChunkTask) -> Generator[DecodeEvent | _ChunkEnd | Pending, None, None]:
    """The events of a chunk. Its second attempt waits until others cannot make it fail as well,
    and leaves out the segments that the first one has given."""
    segments = 0  # given so far
    for is_last in (False, True):
        to_skip, has_live_text = segments, False
        try:
            with closing(chunk.begin()) as task:
                for item in task:
                    if isinstance(item, Pending):
                        yield item
                    elif to_skip:
                        to_skip -= isinstance(item, SegmentDone)
                    else:
                        has_live_text = isinstance(item, TextDelta)
                        segments += isinstance(item, SegmentDone)
                        yield item
        except Exception as error:  # of any kind: the other chunks go on
            if has_live_text:
                yield Retract()
            if is_last:
                yield _ChunkEnd(chunk.name, error)
            else:
                yield MY_TURN
        else:
            yield _ChunkEnd(chunk.name)
            return


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
