"""The captions of a shared session in one language, for all viewers who chose it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from edgeapp.live.corrections import SettledEvents
from edgeapp.live.events import (
    SessionEvent,
    TranslationFinal,
    TranslationPartial,
    speaker_and_event,
    tagged_event,
)
from edgeapp.server.tasks.caption_lines import CaptionLines, line_message
from pipelines import CommittedText, EdgeError, PartialText
from pipelines.asr import SpeechEnded

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from edgeapp.server.sessions import Message, Send
    from pipelines import LiveTranslator

__all__ = ["Channel", "OpenTranslator", "TranslatedChannel"]

# A context in which a translator may be used, of which each speaker gets one. EdgeError: there is
# none.
OpenTranslator = Callable[[], "AbstractContextManager[Callable[[], LiveTranslator]]"]

_RECENT_LINES = 3  # translated for the first viewer of a language, who comes later


class Channel:
    """Captions with the translation that the speaker's page shows, or without one.

    Args:
        lines: What was said so far. The channel owns them.
        translated: Whether the speaker's translation belongs to it.
    """

    def __init__(self, lines: CaptionLines, *, translated: bool) -> None:
        self._lines, self._translated = lines, translated
        self._lock = threading.Lock()  # held while lines change and viewers are told
        self._viewers: list[Send] = []
        self._problem: Message | None = None  # why there is no translation

    @property
    def viewers(self) -> list[Send]:
        """Those who get its messages."""
        with self._lock:
            return list(self._viewers)

    def add(self, viewer: Send, hello: Message) -> None:
        """Send all lines so far to a viewer, in `hello`, and then each change."""
        with self._lock:
            viewer(hello | {"lines": [line_message(line) for line in self._lines.lines]})
            self._viewers.append(viewer)
            if self._problem is not None:
                viewer(self._problem)

    def remove(self, viewer: Send) -> None:
        """Send no more to a viewer."""
        with self._lock:
            if viewer in self._viewers:
                self._viewers.remove(viewer)

    def put(self, event: SessionEvent) -> None:
        """Apply an event of the session. From any thread."""
        if self._translated or not _is_translation(event):
            self._apply(event)

    def close(self) -> None:
        """End its work."""

    def _apply(self, event: SessionEvent) -> None:
        with self._lock:
            for message in self._lines.update(event):
                if message["type"] == "live_line":
                    self._tell(message)

    def _tell(self, message: Message) -> None:
        """The lock is held."""
        for viewer in self._viewers:
            viewer(message)


class TranslatedChannel(Channel):
    """Captions with a translation of the channel's own, made in a thread of its own.

    Args:
        lines: What was said so far. The channel owns them.
        open_translator: A context with the translator.
    """

    def __init__(self, lines: CaptionLines, open_translator: OpenTranslator) -> None:
        super().__init__(lines, translated=False)
        open_texts = lines.open_texts()
        unsettled = {line.id: "" for line, _ in open_texts}
        for line, text in open_texts:
            unsettled[line.id] += text.text
        # Their text as it is now: what is added to them comes with the events.
        recent = lines.retranslate(max(_RECENT_LINES, len(unsettled)))
        latest = {line.speaker: line for line in recent}
        # Of each line: the text that is settled, and whether that is followed by more.
        self._recent = [
            (
                line.speaker,
                line.text.removesuffix(unsettled.get(line.id, "").lstrip()).rstrip(),
                line is latest[line.speaker] or line.id in unsettled,
            )
            for line in recent
        ]
        self._held = lines.held_events()
        self._corrects = lines.corrects
        self._events: SimpleQueue[SessionEvent | None] = SimpleQueue()
        self._open = open_translator
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, event: SessionEvent) -> None:
        if not _is_translation(event):
            super().put(event)
            self._events.put(event)

    def close(self) -> None:
        self._events.put(None)

    def _run(self) -> None:
        try:
            with self._open() as make_translator:
                self._translate(make_translator)
        except EdgeError as error:  # what was said is still shown
            with self._lock:
                self._problem = {"type": "view_problem", "message": str(error)}
                self._tell(self._problem)

    def _translate(self, make_translator: Callable[[], LiveTranslator]) -> None:
        """Translate sentences as they end, and the unfinished ones when nothing else waits."""
        speeches: dict[str, _Speech] = {}

        def speech(speaker: str) -> _Speech:
            if speaker not in speeches:
                settled = SettledEvents(corrects=self._corrects)
                speeches[speaker] = _Speech(speaker, make_translator(), settled)
            return speeches[speaker]

        for speaker, said_before, goes_on in self._recent:
            own = speech(speaker)
            self._finish(own, own.translator.add(said_before))
            if not goes_on:
                self._finish(own, own.translator.finish())
        for speaker, held in self._held:
            speech(speaker).add(held)
        while (event := self._events.get()) is not None:
            waiting: list[SessionEvent] = [event]
            while (event := self._next()) is not None:
                waiting.append(event)
            ended = []
            for each in waiting:
                speaker, said = speaker_and_event(each)
                own = speech(speaker)
                ended.append((own, own.add(said)))
            for own, sentences in ended:
                self._finish(own, sentences)
            for own in speeches.values():
                if self._events.empty() and (text := own.running()) is not None:
                    self._apply(own.tagged(TranslationPartial(text)))

    def _next(self) -> SessionEvent | None:
        """An event that waits already. None: there is none, or the end waits."""
        try:
            event = self._events.get_nowait()
        except Empty:
            return None
        if event is None:
            self._events.put(None)  # for the loop that waits
        return event

    def _finish(self, speech: _Speech, sentences: list[str]) -> None:
        for sentence in sentences:
            # Times are those of the line: a viewer downloads no subtitles.
            text = speech.translator.final(sentence).text
            self._apply(speech.tagged(TranslationFinal(text, 0.0, 0.0, sentence)))


class _Speech:
    """What one speaker says, on its way to the translator."""

    def __init__(self, speaker: str, translator: LiveTranslator, settled: SettledEvents) -> None:
        self._speaker, self.translator, self._settled = speaker, translator, settled
        self._tail = self._shown = ""

    def add(self, event: SessionEvent) -> list[str]:
        """Take note of an event; returns the sentences that are complete."""
        if isinstance(event, PartialText):
            self._tail = event.text
        elif isinstance(event, SpeechEnded):
            self._tail = ""
        sentences = list[str]()
        for settled in self._settled.add(event):
            if isinstance(settled, CommittedText):
                sentences += self.translator.add(settled.text)
            elif isinstance(settled, SpeechEnded):
                sentences += self.translator.finish()
        return sentences

    def running(self) -> str | None:
        """The translation of the unfinished sentence; None if it is the one before."""
        unsettled = self._settled.open_text(end="\n")
        source = f"{self.translator.running_after(unsettled)}{self._tail}".strip()
        if not source or source == self._shown:
            return None
        self._shown = source
        partial = self.translator.partial(self._tail, unsettled)
        return None if partial is None else partial.text

    def tagged(self, event: TranslationFinal | TranslationPartial) -> SessionEvent:
        """The event with the name of the speaker, if there are several."""
        return tagged_event(self._speaker, event)


def _is_translation(event: SessionEvent) -> bool:
    return isinstance(speaker_and_event(event)[1], TranslationFinal | TranslationPartial)
