"""Sentences in flight: encoded in batches and decoded ahead of the one that is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pipelines.deferred_errors import DeferErrors
from pipelines.engine import EncodedSource
from pipelines.translation.decode import RunningSentence, SentenceDecoder, SentenceRequest

__all__ = ["decode_ahead"]

# Source tokens, padding included, of one encoder pass: enough to occupy all cores, and short
# enough that live requests on the same engine do not wait long.
_PASS_TOKENS = 2048
# Limits of the window, in sentences and in source tokens. It starts small, so that the first
# sentence does not wait until hundreds are encoded, and grows with each sentence that is read.
_FIRST_WINDOW, _WINDOW, _WINDOW_TOKENS = 32, 256, 6144


def decode_ahead(
    requests: Iterable[SentenceRequest | None], decoder: SentenceDecoder
) -> Generator[RunningSentence, None, None]:
    """Submit requests, and yield them in order while later ones are being decoded.

    Args:
        requests: Read lazily, at most 256 ahead of the sentence that is yielded. None is a pause:
            all sentences before it are yielded before the next item is requested.
        decoder: Where they are submitted.

    Yields:
        Each sentence, submitted. Closing the generator cancels those not yielded yet.

    Raises:
        Exception: What `requests` raises, after all sentences before it were yielded.
    """
    window, source = _Window(decoder), DeferErrors(requests)
    try:
        for request in source:
            if request is not None:
                window.add(request)
            while window.is_ready(pause=request is None):
                yield window.pop()
        while window.is_ready(pause=True):
            yield window.pop()
        source.check()
    finally:
        window.cancel()


@dataclass(eq=False)
class _Entry:
    """A request in the window. running: None while its source waits to be encoded."""

    request: SentenceRequest
    running: RunningSentence | None = None


class _Window:
    """The sentences in flight. The last ones may still wait to be encoded in one batch."""

    def __init__(self, decoder: SentenceDecoder) -> None:
        self._decoder = decoder
        self._entries: deque[_Entry] = deque()
        self._unencoded: list[_Entry] = []
        self._size, self._tokens = _FIRST_WINDOW, 0

    def add(self, request: SentenceRequest) -> None:
        entry = _Entry(request)
        self._entries.append(entry)
        if request.source_ids:
            self._tokens += len(request.source_ids)
            self._unencoded.append(entry)
        else:
            entry.running = RunningSentence(request)  # to be copied: nothing to decode
        # A quarter of the window is encoded at a time: the rest keeps the decoder busy meanwhile.
        if len(self._unencoded) >= self._size // 4:
            self._submit()

    def is_ready(self, pause: bool) -> bool:
        """Whether to yield a sentence before another request is read."""
        if not self._entries:
            return False
        full = len(self._entries) >= self._size or self._tokens >= _WINDOW_TOKENS
        return pause or full or not self._entries[0].request.source_ids

    def pop(self) -> RunningSentence:
        entry = self._entries.popleft()
        if entry.running is None:
            self._submit()
        assert entry.running is not None
        self._tokens -= len(entry.request.source_ids)
        self._size = min(self._size + 2, _WINDOW)
        return entry.running

    def cancel(self) -> None:
        for entry in self._entries:
            if entry.running is not None:
                entry.running.cancel()

    def _submit(self) -> None:
        """Encode in batches of similar length; submit in the order of reading."""
        entries, self._unencoded = self._unencoded, []
        encoded_sources: dict[_Entry, EncodedSource] = {}
        for batch in _batches(sorted(entries, key=lambda entry: len(entry.request.source_ids))):
            encoded = self._decoder.drafting.encode([entry.request.source_ids for entry in batch])
            encoded_sources.update(zip(batch, encoded, strict=True))
        for entry in entries:
            entry.running = self._decoder.submit(entry.request, encoded_sources[entry])


def _batches(entries: Sequence[_Entry]) -> Iterator[Sequence[_Entry]]:
    """Entries, shortest first, in batches of at most _PASS_TOKENS with padding."""
    start = 0
    for stop in range(1, len(entries) + 1):
        if (
            stop == len(entries)
            or (stop + 1 - start) * len(entries[stop].request.source_ids) > _PASS_TOKENS
        ):
            yield entries[start:stop]
            start = stop
