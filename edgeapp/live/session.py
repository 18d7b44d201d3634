"""A live session: audio from a source, through recognition and translation, out as events."""

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
from edgeapp.live.sources import LiveSource
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

_READ_WAIT_S = 0.05
_STATUS_INTERVAL_S = 0.5
_MAX_BACKLOG_S = 4 * _READ_WAIT_S  # waiting audio beyond which translation is postponed
_SPEED_WINDOW_S = 10.0  # latest audio over which the real-time factor is measured


class LiveSession:
    """Runs in the thread that iterates `run`. Sessions may share models and engine."""

    def __init__(
        self,
        recognizer: LiveTranscriber,
        translator: LiveTranslator | None = None,
        *,
        show_decoding: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            recognizer: of this session only.
            translator: of this session only; None: no translation.
            show_decoding: also yield UpdateDecoded, for measurements.
            clock: seconds; replaceable for tests.
        """
        self._recognizer, self._translator = recognizer, translator
        self._show_decoding, self._clock = show_decoding, clock
        self._samples = 0  # fed to recognition
        self._sentences: deque[str] = deque()  # complete, not translated yet
        self._untimed: deque[Cue] = (
            deque()
        )  # committed text that belongs to no translated sentence yet
        self._partial_text = ""
        self._translated_partial = ""  # source of the latest TranslationPartial
        self._work: deque[tuple[float, float]] = deque()  # (audio seconds, compute seconds)
        self._last_status = 0.0
        self._dropped_s = 0.0  # of all sources
        self._source_dropped_s = 0.0  # of the current one

    def run(
        self,
        source: LiveSource,
        next_source: Callable[[], LiveSource | None] = lambda: None,
    ) -> Iterator[SessionEvent | UpdateDecoded]:
        """Run to the end of the source.

        Args:
            source: the audio.
            next_source: called when the device of a source is lost; returns the source with which
                to continue, or None to end.

        Yields:
            The events; SessionEnded is the last one, also before an error is raised.

        Raises:
            EdgeError, OSError, KeyboardInterrupt: the error of the source, after all audio before
                it was processed.
        """
        current: LiveSource | None = source
        while current is not None:
            failure: BaseException | None = None
            try:
                yield from self._recognize(current)
            except (EdgeError, OSError, KeyboardInterrupt) as error:
                failure = error
            yield from self._forward(self._recognizer.finish())
            yield from self._translate(None)
            current = None
            if isinstance(failure, DeviceLost):
                yield WarningRaised(str(failure))
                current = next_source()
        yield SessionEnded(self._seconds)
        if failure is not None:
            raise failure

    def _recognize(self, source: LiveSource) -> Iterator[SessionEvent | UpdateDecoded]:
        """Process a source to its end."""
        self._source_dropped_s = 0.0
        while (audio := source.read(_READ_WAIT_S)) is not None:
            start = self._clock()
            self._samples += len(audio)
            yield from self._forward(self._recognizer.feed(audio))
            # Recognition has priority: translation waits while audio is waiting.
            yield from self._translate(source)
            self._record_work(len(audio), self._clock() - start)
            yield from self._status(source)

    @property
    def language(self) -> str | None:
        """The code of the spoken language; None while it is unknown."""
        return self._recognizer.language

    @property
    def _seconds(self) -> float:
        return self._samples / SAMPLE_RATE

    def _forward(self, events: list[LiveEvent]) -> Iterator[SessionEvent | UpdateDecoded]:
        """Yield the events of recognition and give the text to the translator."""
        for event in events:
            if isinstance(event, UpdateDecoded):
                if self._show_decoding:
                    yield event
                continue
            yield event
            if isinstance(event, PartialText):
                self._partial_text = event.text
            if self._translator is None:
                continue
            if isinstance(event, CommittedText):
                self._untimed.append(Cue(event.start, event.end, event.text))
                self._sentences.extend(self._translator.add(event.text))
            elif isinstance(event, SpeechEnded):
                self._sentences.extend(self._translator.finish())

    def _translate(self, source: LiveSource | None) -> Iterator[SessionEvent]:
        """Translate complete sentences, then the running one, unless audio is waiting.

        Args:
            source: None: the audio has ended; only complete sentences are translated.
        """
        if self._translator is None:
            return
        while self._sentences and not _is_behind(source):
            sentence = self._sentences.popleft()
            translation = self._translator.final(sentence)
            for warning in translation.warnings:
                yield WarningRaised(warning)
            start, end = self._pop_times(sentence)
            yield TranslationFinal(translation.text, start, end, sentence)
            self._translated_partial = ""
        if source is None or self._sentences or _is_behind(source):
            return
        running = (self._translator.running + self._partial_text).strip()
        if running and running != self._translated_partial:
            self._translated_partial = running
            partial = self._translator.partial(self._partial_text)
            if partial is not None:
                yield TranslationPartial(partial.text)

    def _pop_times(self, sentence: str) -> tuple[float, float]:
        """Start and end of a sentence (s), from the committed texts that it consists of.

        Characters are counted without white space. Within a committed text, time is divided in
        proportion to them.
        """
        left = len("".join(sentence.split()))
        start = end = self._untimed[0].start if self._untimed else self._seconds
        while left > 0 and self._untimed:
            cue = self._untimed.popleft()
            size = len("".join(cue.text.split()))
            end = cue.end
            if size > left:
                cut = cue.start + (cue.end - cue.start) * left / size
                rest = "".join(cue.text.split())[left:]
                self._untimed.appendleft(Cue(cut, cue.end, rest))
                end = cut
            left -= size
        return start, end

    def _record_work(self, samples: int, seconds: float) -> None:
        self._work.append((samples / SAMPLE_RATE, seconds))
        while sum(audio for audio, _ in self._work) > _SPEED_WINDOW_S and len(self._work) > 1:
            self._work.popleft()

    def _status(self, source: LiveSource) -> Iterator[SessionEvent]:
        """A warning if audio was dropped, and the periodic Status."""
        if source.dropped_s > self._source_dropped_s:
            lost = source.dropped_s - self._source_dropped_s
            self._source_dropped_s = source.dropped_s
            self._dropped_s += lost
            waiting = f"and {source.waiting_s:.1f} s are waiting"
            yield WarningRaised(
                f"this machine is too slow: {lost:.1f} s of audio were lost, {waiting}"
            )
        if self._clock() - self._last_status < _STATUS_INTERVAL_S:
            return
        self._last_status = self._clock()
        audio = sum(audio for audio, _ in self._work)
        work = sum(seconds for _, seconds in self._work)
        factor = work / audio if audio else 0.0
        level = self._recognizer.level
        yield Status(self._seconds, source.waiting_s, factor, self._dropped_s, level)


def _is_behind(source: LiveSource | None) -> bool:
    """Whether more audio is waiting than translation may delay."""
    return source is not None and source.waiting_s > _MAX_BACKLOG_S
