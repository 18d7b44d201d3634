"""Keeping the engine busy: sentences are encoded in batches, ahead of the one that is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence

from pipelines.deferred_errors import DeferErrors
from pipelines.engine import EncodedSource
from pipelines.translation.decode import SentenceDecoder, SentenceRequest

__all__ = ["decode_ahead"]

# Source tokens, padding included, that are encoded in one pass: enough to fill the cores, and
# over soon enough for live work on the same engine.
_PASS_TOKENS = 2048
# Sentences, and their tokens, on the way at most. The window starts small, so that the first
# sentence need not wait until hundreds are encoded, and grows with every one read.
_FIRST_WINDOW, _WINDOW, _WINDOW_TOKENS = 32, 256, 6144


def decode_ahead(
    jobs: Iterable[SentenceRequest | None], decoder: SentenceDecoder
) -> Generator[SentenceRequest, None, None]:
    """The jobs in order, each submitted, while some of those behind it are decoded already.

    None among the jobs is a pause: all before it are handed out before the next is asked for.
    At most 256 jobs are taken in advance. Closing the iterator cancels them. Where the jobs break
    off with an error, those before it are handed out first.
    """
    window, source = _Window(decoder), DeferErrors(jobs)
    try:
        for job in source:
            if job is not None:
                window.add(job)
            while window.has_one(pause=job is None):
                yield window.pop()
        while window.has_one(pause=True):
            yield window.pop()
        source.check()
    finally:
        window.cancel()


class _Window:
    """The jobs on their way. Those at its end may still wait to be encoded together."""

    def __init__(self, decoder: SentenceDecoder) -> None:
        self._decoder = decoder
        self._waiting: deque[SentenceRequest] = deque()
        self._fresh: list[SentenceRequest] = []
        self._size, self._tokens = _FIRST_WINDOW, 0

    def add(self, job: SentenceRequest) -> None:
        self._waiting.append(job)
        if job.ids:
            self._tokens += len(job.ids)
            self._fresh.append(job)
        # Encoded by the quarter window: the other three keep the engine busy meanwhile.
        if len(self._fresh) >= self._size // 4:
            self._submit()

    def has_one(self, pause: bool) -> bool:
        """Whether to hand out a job before taking in another."""
        if not self._waiting:
            return False
        full = len(self._waiting) >= self._size or self._tokens >= _WINDOW_TOKENS
        return pause or full or not self._waiting[0].ids

    def pop(self) -> SentenceRequest:
        job = self._waiting.popleft()
        if job.ids and job.stream is None:
            self._submit()
        self._tokens -= len(job.ids)
        self._size = min(self._size + 2, _WINDOW)
        return job

    def cancel(self) -> None:
        for job in self._waiting:
            job.cancel()

    def _submit(self) -> None:
        """Encode in batches of like length; decode in the order of reading."""
        fresh, self._fresh = self._fresh, []
        encoded_sources: dict[int, EncodedSource] = {}
        for batch in _batches(sorted(fresh, key=lambda job: len(job.ids))):
            encoded = self._decoder.model.encode([job.ids for job in batch])
            encoded_sources.update(zip(map(id, batch), encoded, strict=True))
        for job in fresh:
            self._decoder.submit(job, encoded_sources[id(job)])


def _batches(jobs: Sequence[SentenceRequest]) -> Iterator[Sequence[SentenceRequest]]:
    """Jobs, shortest first, in batches of at most _PASS_TOKENS with padding."""
    start = 0
    for stop in range(1, len(jobs) + 1):
        if stop == len(jobs) or (stop + 1 - start) * len(jobs[stop].ids) > _PASS_TOKENS:
            yield jobs[start:stop]
            start = stop
