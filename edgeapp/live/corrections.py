"""Corrections of final text: decoded in the background, and waited for where text is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from edgeapp.console import print_traceback
from edgeapp.exit_codes import unexpected
from edgeapp.live.events import (
    SessionEnded,
    SessionEvent,
    Status,
    TextSettled,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
    settles,
    speaker_and_event,
    tagged_event,
)
from pipelines import CommittedText, EdgeError, LiveTranscriber, PartialText
from pipelines.asr import CorrectedText, CorrectionDue, SpeechEnded

__all__ = ["Corrections", "SettledEvents"]

_LATEST_S = 3.0  # after a correction was begun; a later one is dropped, but not at the end
_AT_ONCE = PartialText | TranslationPartial | Status | WarningRaised


@dataclass(eq=False)
class _Running:
    """A correction that is being decoded.

    Attributes:
        due: what is corrected.
        began_s: when it was begun, by the clock.
        heard_s: how many seconds of the stream had been heard then, with the gaps since.
        result: its result.
    """

    due: CorrectionDue
    began_s: float
    heard_s: float
    result: Future[CorrectedText | None]


class Corrections:
    """Decodes the finished speech of one channel once more, on a thread of its own.

    Args:
        recognizer: Of the channel.
        clock: Seconds; replaceable for tests.
    """

    def __init__(self, recognizer: LiveTranscriber, clock: Callable[[], float]) -> None:
        self._recognizer, self._clock = recognizer, clock
        self._running: deque[_Running] = deque()
        self._wanted: set[CorrectionDue] = set()
        self._ended = False  # no more audio comes
        self._thread = ThreadPoolExecutor(1)  # it begins with the first correction

    def begin(self, due: CorrectionDue, heard_s: float) -> None:
        """Begin to correct speech, when so many seconds of the stream have been heard."""
        self._wanted.add(due)
        began_s = self._clock()

        def is_wanted() -> bool:
            in_time = self._ended or self._clock() - began_s < _LATEST_S
            return in_time and due in self._wanted

        result = self._thread.submit(self._recognizer.correct, due, is_wanted=is_wanted)
        self._running.append(_Running(due, began_s, heard_s, result))

    def skip(self, gap_s: float) -> None:
        """Let the stream go on after a gap, which the clock may not have seen."""
        for each in self._running:
            each.heard_s += gap_s

    def take(
        self, heard_s: float, *, may_wait: bool, paused: bool = False, ended: bool = False
    ) -> Iterator[CorrectedText | TextSettled | WarningRaised]:
        """Yield corrections in order, and where none comes within three seconds, TextSettled.

        Args:
            heard_s: Seconds of the stream that have been heard. A recording that is read as fast as
                possible runs ahead of the clock: then corrections are waited for.
            may_wait: No audio waits.
            paused: Audio is missing: corrections are waited for until their three seconds are over.
            ended: No more audio comes: all corrections are waited for.
        """
        self._ended = ended
        while self._running:
            first = self._running[0]
            passed_s = self._clock() - first.began_s
            left_s, ahead_s = _LATEST_S - passed_s, heard_s - first.heard_s - passed_s
            if ended:
                wait([first.result])
            elif left_s > 0 and (paused or (may_wait and ahead_s > _LATEST_S)):
                wait([first.result], left_s)
            elif left_s > 0 and not first.result.done():
                return
            self._running.popleft()
            self._wanted.discard(first.due)
            corrected: CorrectedText | None = None
            if first.result.done():
                try:
                    corrected = first.result.result()
                except Exception as error:  # captions go on
                    message = str(error)
                    if not isinstance(error, EdgeError):
                        print_traceback(error)
                        message = unexpected(error)
                    yield WarningRaised(f"{message}; what was said is not corrected")
            if corrected is None or (left_s <= 0 and not ended):
                yield TextSettled(first.due.end)
            else:
                yield corrected

    def close(self) -> None:
        """End what is being corrected."""
        self._wanted.clear()
        self._thread.shutdown(cancel_futures=True)


@dataclass
class _Held:
    """An event that waits for its turn; `is_open`: its text may still be corrected."""

    speaker: str
    event: SessionEvent
    is_open: bool = False


class SettledEvents:
    """The events of a session in which final text is passed on after its correction.

    Text that is running or was not corrected yet is not among them; corrected text takes the place
    of what it corrects. What follows text of a speaker that is held back waits, too, but not
    warnings, nor translations of text that was passed on.

    Args:
        corrects: Whether text is corrected; if not, all events are passed on at once.
    """

    def __init__(self, *, corrects: bool) -> None:
        self._corrects = corrects
        self._held: list[_Held] = []

    def open_text(self, speaker: str = "", *, end: str = "") -> str:
        """The final text of a speaker that is held back, with `end` after each utterance."""
        held = [each.event for each in self._held if each.speaker == speaker]
        texts = [e.text if isinstance(e, CommittedText) else end for e in held if _is_speech(e)]
        return "".join(texts)

    def add(self, event: SessionEvent) -> list[SessionEvent]:
        """Return the events that are settled by an event, in order."""
        speaker, said = speaker_and_event(event)
        if not self._corrects or isinstance(said, _AT_ONCE):
            return [event]
        if isinstance(said, CorrectedText | TextSettled):
            self._settle(speaker, said)
        elif isinstance(said, TranslationFinal) and not self._holds_text(speaker, said.end):
            return [event]
        else:
            self._held.append(_Held(speaker, said, isinstance(said, CommittedText)))
        return self.end() if isinstance(said, SessionEnded) else self._take_settled()

    @property
    def held(self) -> list[SessionEvent]:
        """The events that are held back, in order."""
        return [tagged_event(each.speaker, each.event) for each in self._held]

    def end(self) -> list[SessionEvent]:
        """Return the events that are held back: nothing more is corrected."""
        rest = self.held
        self._held.clear()
        return rest

    def _holds_text(self, speaker: str, before_s: float) -> bool:
        """Whether text of a speaker that began before a time is held back."""
        texts = (each.event for each in self._held if each.speaker == speaker)
        return any(isinstance(text, CommittedText) and text.start < before_s for text in texts)

    def _take_settled(self) -> list[SessionEvent]:
        """Take the events that are behind no open text of their speaker."""
        settled, waiting = list[SessionEvent](), list[_Held]()
        names = set[str]()  # of the speakers of events that wait; "": all of them
        for each in self._held:
            waits = each.is_open or {each.speaker, ""} & names or (not each.speaker and names)
            if waits:
                names.add(each.speaker)
                waiting.append(each)
            else:
                settled.append(tagged_event(each.speaker, each.event))
        self._held = waiting
        return settled

    def _settle(self, speaker: str, said: CorrectedText | TextSettled) -> None:
        """Replace the open text of a speaker up to a time, or let it be."""
        own = [
            each
            for each in self._held
            if each.is_open
            and each.speaker == speaker
            and isinstance(each.event, CommittedText)
            and settles(said, each.event)
        ]
        for each in own:
            each.is_open = False
        if isinstance(said, CorrectedText) and own:
            own[0].event = CommittedText(said.text, said.start, said.end, said.words, said.language)
            for each in own[1:]:
                self._held.remove(each)


def _is_speech(event: SessionEvent) -> bool:
    return isinstance(event, CommittedText | SpeechEnded)
