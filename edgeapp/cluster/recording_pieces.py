"""One recording on several machines: it is cut at its pauses here, and they get the pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pipelines import TranscribeOptions
    from pipelines.asr import AudioSource, Checkpoint, Chunk, TranscriptEvent

__all__ = ["Machines", "stream_pieces"]

_BATCHES = 2  # chunks of a piece, in batches of a machine; a machine that dies loses them
_AHEAD = 2  # pieces that are cut, for each machine


class Machines(Protocol):
    """The Cluster, as far as it is needed here."""

    @property
    def size(self) -> int: ...
    @property
    def window_s(self) -> float: ...
    def call(self, method: str, *arguments: Any, beside: bool = False) -> Any: ...


def stream_pieces(
    cluster: Machines,
    audio: AudioSource,
    options: TranscribeOptions,
    resume_from: Checkpoint | None,
) -> Iterator[TranscriptEvent]:
    """As Transcriber.stream with checkpoints, without provisional text, on all machines.

    A piece of which a chunk fails is the last one.

    Args:
        cluster: The machines.
        audio: Sound; read some pieces ahead.
        options: How to transcribe, in chunks.
        resume_from: The last checkpoint of an earlier run.

    Raises:
        EdgeError: As Transcriber.stream.
        DeviceLost: No machine is left.
    """
    from pipelines import SegmentDone
    from pipelines.asr import Checkpoint, split_recording

    before = resume_from or Checkpoint(0)
    chunks = split_recording(audio, options, cluster.window_s)
    done = (before.section, before.chunks)
    chunks = (chunk for chunk in chunks if (chunk.section, chunk.number) > done)
    begin = list(islice(chunks, 1))
    info = cluster.call("begin", begin, options, resume_from, beside=True)
    yield info
    before = replace(before, language=info.language)
    with ThreadPoolExecutor(max(1, cluster.size), thread_name_prefix="piece") as threads:
        pieces = _Pieces(chain(begin, chunks), _BATCHES * options.parallel_chunks)
        running: deque[Future[Any]] = deque()
        try:
            while True:
                while len(running) < _AHEAD * max(1, cluster.size) and (piece := pieces.next()):
                    first, language = piece[0], before.language
                    at = Checkpoint(
                        0, chunks=first.number - 1, section=first.section, language=language
                    )
                    running.append(threads.submit(cluster.call, "recognize", piece, options, at))
                if not running:
                    break
                events, failure = running.popleft().result()
                count = before.segments
                for event in events:
                    if isinstance(event, SegmentDone):
                        event = SegmentDone(replace(event.segment, id=count + event.segment.id))
                    elif isinstance(event, Checkpoint):
                        event = before = replace(event, segments=count + event.segments)
                    yield event
                if failure is not None:
                    raise failure.error(failure.message)
            if pieces.error is not None:
                raise pieces.error
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


class _Pieces:
    """Consecutive chunks in pieces.

    Args:
        chunks: The chunks.
        size: Chunks of a piece.

    Attributes:
        error: Why there are no more chunks; None at the end of the recording.
    """

    def __init__(self, chunks: Iterator[Chunk], size: int) -> None:
        self._chunks, self._size = chunks, size
        self.error: Exception | None = None

    def next(self) -> list[Chunk]:
        """The next piece; empty at the end."""
        piece: list[Chunk] = []
        try:
            for chunk in islice(self._chunks, self._size):
                piece.append(chunk)
        except Exception as error:  # raised after the pieces before it
            self.error = error
        return piece
