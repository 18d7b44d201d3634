"""A live session: audio from a source, through recognition and translation, out as events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial

import numpy as np

from edgeapp.english_only import HeardLanguage
from edgeapp.live.events import (
    AudioLost,
    LanguageNote,
    SessionEnded,
    SessionEvent,
    SpeakerEvent,
    SpeechEvent,
    Status,
    WarningRaised,
)
from edgeapp.live.sources import LiveSource, Notice
from edgeapp.live.speech_channel import SpeechChannel
from edgeapp.live.timeline import LONG_GAP_S
from pipelines import SAMPLE_RATE, CommittedText, EdgeError
from pipelines.asr import Samples, UpdateDecoded
from pipelines.errors import DeviceLost

__all__ = ["LiveSession"]

_READ_WAIT_S = 0.05
_STATUS_INTERVAL_S = 0.5
_MAX_BACKLOG_S = 4 * _READ_WAIT_S  # waiting audio beyond which translation is postponed
_SPEED_WINDOW_S = 10.0  # latest audio over which the real-time factor is measured


class LiveSession:
    """Runs in the thread that iterates `run`. Sessions may share models and engine."""

    def __init__(
        self,
        *channels: SpeechChannel,
        heard: HeardLanguage | None = None,
        show_decoding: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            channels: of this session only. With more than one, they are the channels of the audio,
                and events of speech are SpeakerEvents.
            heard: of their recognizer, for its notes at the beginning and at the end; None: none.
            show_decoding: also yield UpdateDecoded, for measurements.
            clock: seconds; replaceable for tests.
        """
        self._channels, self._heard = channels, heard
        self._show_decoding, self._clock = show_decoding, clock
        self._samples = 0  # of each channel: fed to recognition, or missing
        self._work: deque[tuple[float, float]] = deque()  # (audio seconds, compute seconds)
        self._last_status = 0.0
        self._lost_s = 0.0

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
        # A thread for each channel but the first: what they ask of the engine shares its batches.
        with ThreadPoolExecutor(max(1, len(self._channels) - 1)) as threads, ExitStack() as stack:
            for channel in self._channels:
                stack.callback(channel.close)
            yield from self._run(source, next_source, threads)

    def _run(
        self,
        source: LiveSource,
        next_source: Callable[[], LiveSource | None],
        threads: ThreadPoolExecutor,
    ) -> Iterator[SessionEvent | UpdateDecoded]:
        if self._heard is not None and self._heard.first_note is not None:
            yield LanguageNote(self._heard.first_note)
        current: LiveSource | None = source
        while current is not None:
            failure: BaseException | None = None
            try:
                yield from self._recognize(current, threads)
            except (EdgeError, OSError, KeyboardInterrupt) as error:
                failure = error
            for channel in self._channels:
                yield from self._tagged(channel, channel.finish())
            yield from self._correct(None, paused=isinstance(failure, DeviceLost))
            yield from self._translate(None)
            current = None
            if isinstance(failure, DeviceLost):
                yield WarningRaised(str(failure))
                current = next_source()
        # Only here does no audio wait for the translators that are still being opened.
        yield from self._translate(None, wait=True)
        if self._heard is not None and self._heard.note is not None:
            yield LanguageNote(self._heard.note)
        yield SessionEnded(self._seconds)
        if failure is not None:
            raise failure

    def _recognize(
        self, source: LiveSource, threads: ThreadPoolExecutor
    ) -> Iterator[SessionEvent | UpdateDecoded]:
        """Process a source to its end."""
        while (audio := source.read(_READ_WAIT_S)) is not None:
            if isinstance(audio, Notice):
                yield from self._heed(audio)
                continue
            start = self._clock()
            self._samples += len(audio)
            yield from self._feed(audio, threads)
            yield from self._correct(source)
            # Recognition has priority: translation waits while audio is waiting.
            yield from self._translate(source)
            self._record_work(len(audio), self._clock() - start)
            yield from self._status(source)

    def _heed(self, notice: Notice) -> Iterator[SessionEvent | UpdateDecoded]:
        """Skip the time of a gap, and pass on the message."""
        self._lost_s += notice.lost_s
        start, samples = self._seconds, round(notice.gap_s * SAMPLE_RATE)
        if samples:
            for channel in self._channels:
                yield from self._tagged(channel, channel.skip(samples))
            if notice.gap_s > LONG_GAP_S:  # what was said before it belongs to other files
                yield from self._correct(None, paused=True)
                yield from self._translate(None)
            self._samples += samples
        if notice.message:
            message = notice.message
            yield AudioLost(start, self._seconds, message) if samples else WarningRaised(message)

    def _feed(
        self, audio: Samples, threads: ThreadPoolExecutor
    ) -> Iterator[SessionEvent | UpdateDecoded]:
        """Recognize audio, [n] of one channel or [n, channels], of all channels at the same time.

        An error of one channel is raised after the events of the others.
        """
        parts = np.ascontiguousarray(np.atleast_2d(audio.T))  # [channels, n]
        first, *others = self._channels
        fed = [threads.submit(c.feed, part) for c, part in zip(others, parts[1:], strict=True)]
        own = partial(first.feed, parts[0])
        pending: list[Callable[[], list[SpeechEvent | UpdateDecoded]]] = [
            own,
            *(each.result for each in fed),
        ]
        failure: BaseException | None = None
        for channel, events_of in zip(self._channels, pending, strict=True):
            try:
                events = events_of()
            except (Exception, KeyboardInterrupt) as error:
                failure = failure or error
            else:
                yield from self._tagged(channel, events)
        if failure is not None:
            wait(fed)  # the channels are finished next, in this thread
            raise failure

    @property
    def language(self) -> str | None:
        """The code of the spoken language, on the first channel that knows; None before."""
        known = (channel.recognizer.language for channel in self._channels)
        return next(filter(None, known), None)

    @property
    def corrects(self) -> bool:
        """Whether final text may be corrected."""
        return any(channel.recognizer.corrects for channel in self._channels)

    @property
    def _seconds(self) -> float:
        return self._samples / SAMPLE_RATE

    def _tagged(
        self, channel: SpeechChannel, events: Iterable[SpeechEvent | UpdateDecoded]
    ) -> Iterator[SessionEvent | UpdateDecoded]:
        """Events with the name of their speaker, if there are several."""
        for event in events:
            if isinstance(event, UpdateDecoded):
                if self._show_decoding:
                    yield event
                continue
            if self._heard is not None and isinstance(event, CommittedText):
                self._heard.add_words(event.words)
            yield SpeakerEvent(channel.speaker, event) if len(self._channels) > 1 else event

    def _correct(
        self, source: LiveSource | None, *, paused: bool = False
    ) -> Iterator[SessionEvent | UpdateDecoded]:
        """Pass on corrections.

        Args:
            source: None: its audio has ended.
            paused: more audio may come after it.
        """
        ended = source is None and not paused
        for channel in self._channels:
            may_wait = not _is_behind(source)
            events = channel.correct(may_wait=may_wait, paused=paused, ended=ended)
            yield from self._tagged(channel, events)

    def _translate(
        self, source: LiveSource | None, *, wait: bool = False
    ) -> Iterator[SessionEvent | UpdateDecoded]:
        """Translate, unless audio is waiting.

        Args:
            source: None: its audio has ended.
            wait: until the translators are opened.
        """
        for channel in self._channels:
            ended = source is None
            events = channel.translate(lambda: _is_behind(source), ended=ended, wait=wait)
            try:
                yield from self._tagged(channel, events)
            except EdgeError as error:
                channel.end_translation()
                message = f"{error}; captions go on without translation"
                yield from self._tagged(channel, [WarningRaised(message)])

    def _record_work(self, samples: int, seconds: float) -> None:
        self._work.append((samples / SAMPLE_RATE, seconds))
        while sum(audio for audio, _ in self._work) > _SPEED_WINDOW_S and len(self._work) > 1:
            self._work.popleft()

    def _status(self, source: LiveSource) -> Iterator[SessionEvent]:
        """The periodic Status."""
        if self._clock() - self._last_status < _STATUS_INTERVAL_S:
            return
        self._last_status = self._clock()
        audio = sum(audio for audio, _ in self._work)
        work = sum(seconds for _, seconds in self._work)
        factor = work / audio if audio else 0.0
        level = max(channel.recognizer.level for channel in self._channels)
        yield Status(self._seconds, source.waiting_s, factor, self._lost_s, level)


def _is_behind(source: LiveSource | None) -> bool:
    """Whether more audio is waiting than translation may delay."""
    return source is not None and source.waiting_s > _MAX_BACKLOG_S
