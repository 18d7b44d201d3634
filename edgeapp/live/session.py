"""A live session: audio from a feed, through recognition and translation, out as events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from edgeapp.live.events import (
    SessionEnded,
    SessionEvent,
    Status,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
)
from edgeapp.live.sources import AudioSource
from edgeapp.subtitles.formats import Cue
from pipelines import (
    SAMPLE_RATE,
    CommittedText,
    DeviceLost,
    EdgeError,
    LiveEvent,
    LiveTranscriber,
    LiveTranslator,
    PartialText,
    SpeechEnded,
    UpdateDecoded,
)

__all__ = ["LiveSession"]

_WAIT_S = 0.05
_STATUS_EVERY_S = 0.5
# Work on the last so many seconds of audio makes the real-time factor.
_RECENT_S = 10.0


class LiveSession:
    """Runs in the thread that iterates it; any number of sessions may share models and engine.

    translator: whoever follows this one speaker, or None. show_decoding: pass on what each update
    cost (Decoded), for measurements.
    """

    def __init__(
        self,
        recogniser: LiveTranscriber,
        translator: LiveTranslator | None = None,
        *,
        show_decoding: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recogniser, self._translator = recogniser, translator
        self._show_decoding, self._clock = show_decoding, clock
        self._heard = 0  # samples
        self._sentences: deque[str] = deque()
        self._spans: deque[Cue] = deque()  # committed text with its times, not yet translated
        self._tail = ""
        self._translated_tail = ""
        self._work: deque[tuple[float, float]] = deque()  # (audio seconds, seconds of work)
        self._told = 0.0
        self._dropped = 0.0  # seconds, on all feeds
        self._dropped_here = 0.0  # on this one

    def run(
        self, feed: AudioSource, next_feed: Callable[[], AudioSource | None] = lambda: None
    ) -> Iterator[SessionEvent | UpdateDecoded]:
        """All events of a feed, to its end; then `Ended`.

        Whatever the feed raises ends it too, once all that was said before has been told. A
        device that is lost is not the end where next_feed gives another, to go on with.
        """
        present: AudioSource | None = feed
        while present is not None:
            failure: BaseException | None = None
            try:
                yield from self._listen(present)
            except (EdgeError, OSError, KeyboardInterrupt) as error:
                failure = error
            yield from self._tell(self._recogniser.finish())
            yield from self._translate(None)
            present = None
            if isinstance(failure, DeviceLost):
                yield WarningRaised(str(failure))
                present = next_feed()
        yield SessionEnded(self._seconds)
        if failure is not None:
            raise failure

    def _listen(self, feed: AudioSource) -> Iterator[SessionEvent | UpdateDecoded]:
        self._dropped_here = 0.0
        while (audio := feed.read(_WAIT_S)) is not None:
            began = self._clock()
            self._heard += len(audio)
            yield from self._tell(self._recogniser.feed(audio))
            # Recognition goes first: a translation waits while there is audio to listen to.
            yield from self._translate(feed)
            self._note_work(len(audio), self._clock() - began)
            yield from self._status(feed)

    @property
    def _seconds(self) -> float:
        return self._heard / SAMPLE_RATE

    def _tell(self, events: list[LiveEvent]) -> Iterator[SessionEvent | UpdateDecoded]:
        for event in events:
            if isinstance(event, UpdateDecoded):
                if self._show_decoding:
                    yield event
                continue
            yield event
            if isinstance(event, PartialText):
                self._tail = event.text
            if self._translator is None:
                continue
            if isinstance(event, CommittedText):
                self._spans.append(Cue(event.start, event.end, event.text))
                self._sentences.extend(self._translator.add(event.text))
            elif isinstance(event, SpeechEnded):
                self._sentences.extend(self._translator.finish())

    def _translate(self, feed: AudioSource | None) -> Iterator[SessionEvent]:
        """Finished sentences, then the running one, as long as no audio is waiting."""
        if self._translator is None:
            return
        while self._sentences and not _busy(feed):
            sentence = self._sentences.popleft()
            done = self._translator.final(sentence)
            for warning in done.warnings:
                yield WarningRaised(warning)
            start, end = self._time_of(sentence)
            yield TranslationFinal(done.text, start, end, sentence)
            self._translated_tail = ""
        if feed is None or self._sentences or _busy(feed):
            return
        running = (self._translator.running + self._tail).strip()
        if running and running != self._translated_tail:
            self._translated_tail = running
            now = self._translator.partial(self._tail)
            if now is not None:
                yield TranslationPartial(now.text)

    def _time_of(self, sentence: str) -> tuple[float, float]:
        """When a sentence was said, told by the committed pieces that it is made of."""
        left = len("".join(sentence.split()))
        start = end = self._spans[0].start if self._spans else self._seconds
        while left > 0 and self._spans:
            piece = self._spans.popleft()
            size = len("".join(piece.text.split()))
            end = piece.end
            if size > left:
                share = piece.start + (piece.end - piece.start) * left / size
                rest = "".join(piece.text.split())[left:]
                self._spans.appendleft(Cue(share, piece.end, rest))
                end = share
            left -= size
        return start, end

    def _note_work(self, samples: int, seconds: float) -> None:
        self._work.append((samples / SAMPLE_RATE, seconds))
        while sum(audio for audio, _ in self._work) > _RECENT_S and len(self._work) > 1:
            self._work.popleft()

    def _status(self, feed: AudioSource) -> Iterator[SessionEvent]:
        if feed.dropped_s > self._dropped_here:
            lost, self._dropped_here = feed.dropped_s - self._dropped_here, feed.dropped_s
            self._dropped += lost
            waiting = f"and {feed.waiting_s:.1f} s are waiting"
            yield WarningRaised(
                f"this machine is too slow: {lost:.1f} s of audio were lost, {waiting}"
            )
        if self._clock() - self._told < _STATUS_EVERY_S:
            return
        self._told = self._clock()
        audio = sum(audio for audio, _ in self._work)
        work = sum(seconds for _, seconds in self._work)
        factor = work / audio if audio else 0.0
        level = self._recogniser.level
        yield Status(self._seconds, feed.waiting_s, factor, self._dropped, level)


def _busy(feed: AudioSource | None) -> bool:
    """Whether audio has been waiting for longer than translations may take."""
    return feed is not None and feed.waiting_s > 4 * _WAIT_S
