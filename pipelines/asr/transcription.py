"""What `Transcriber.transcribe` gives: the segments of a recording, as they are asked for."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from pipelines.asr.results import Segment, SegmentDone, TranscriptEvent, TranscriptionInfo

__all__ = ["Transcription"]


class Transcription(Iterator[Segment]):
    """The segments of one recording, decoded as they are asked for; can be gone through once.

    Closing it, or leaving it as a context manager, cancels what is being decoded.
    """

    def __init__(self, events: Generator[TranscriptEvent, None, None]) -> None:
        self._events = events
        self._info: TranscriptionInfo | None = None

    @property
    def info(self) -> TranscriptionInfo:
        """What is known from the start. Detects the language, if it is to be."""
        if self._info is None:
            first = next(self._events)
            assert isinstance(first, TranscriptionInfo), "Info is the first event"
            self._info = first
        return self._info

    @property
    def language(self) -> str:
        """The code of the language, given or detected."""
        return self.info.language

    @property
    def duration(self) -> float | None:
        """Seconds of audio; None for a stream."""
        return self.info.duration

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with the recording, such as that only a part of it could be decoded."""
        return self.info.warnings

    def __next__(self) -> Segment:
        self._info = self.info
        for event in self._events:
            if isinstance(event, SegmentDone):
                return event.segment
        raise StopIteration

    def close(self) -> None:
        """Stop decoding; there are no further segments."""
        self._events.close()

    def __enter__(self) -> Transcription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
