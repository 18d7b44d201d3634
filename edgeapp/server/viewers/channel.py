"""The captions of a shared session in one language, for all viewers who chose it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from edgeapp.live.events import SessionEvent, TranslationFinal, TranslationPartial
from edgeapp.server.tasks.caption_lines import CaptionLines, line_message
from pipelines import CommittedText, EdgeError, PartialText, SpeechEnded

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from edgeapp.server.sessions import Message, Send
    from pipelines import LiveTranslator

__all__ = ["Channel", "OpenTranslator", "TranslatedChannel"]

# A context in which a translator may be used. EdgeError: there is none.
OpenTranslator = Callable[[], "AbstractContextManager[LiveTranslator]"]

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
        if self._translated or not isinstance(event, (TranslationFinal, TranslationPartial)):
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
        self._recent = [line.text for line in lines.retranslate(_RECENT_LINES)]
        self._events: SimpleQueue[SessionEvent | None] = SimpleQueue()
        self._open = open_translator
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, event: SessionEvent) -> None:
        if not isinstance(event, (TranslationFinal, TranslationPartial)):
            super().put(event)
            self._events.put(event)

    def close(self) -> None:
        self._events.put(None)

    def _run(self) -> None:
        try:
            with self._open() as translator:
                self._translate(translator)
        except EdgeError as error:  # what was said is still shown
            with self._lock:
                self._problem = {"type": "view_problem", "message": str(error)}
                self._tell(self._problem)

    def _translate(self, translator: LiveTranslator) -> None:
        """Translate sentences as they end, and the unfinished one when nothing else waits."""
        for text in self._recent[:-1]:
            self._finish([*translator.add(text), *translator.finish()], translator)
        self._finish(translator.add(self._recent[-1]) if self._recent else [], translator)
        tail = shown = ""
        while (event := self._events.get()) is not None:
            waiting: list[SessionEvent] = [event]
            while (event := self._next()) is not None:
                waiting.append(event)
            sentences = []
            for each in waiting:
                if isinstance(each, CommittedText):
                    sentences += translator.add(each.text)
                elif isinstance(each, PartialText):
                    tail = each.text
                elif isinstance(each, SpeechEnded):
                    sentences += translator.finish()
                    tail = ""
            self._finish(sentences, translator)
            running = f"{translator.running}{tail}".strip()
            if running and running != shown and self._events.empty():
                shown = running
                partial = translator.partial(tail)
                if partial is not None:
                    self._apply(TranslationPartial(partial.text))

    def _next(self) -> SessionEvent | None:
        """An event that waits already. None: there is none, or the end waits."""
        try:
            event = self._events.get_nowait()
        except Empty:
            return None
        if event is None:
            self._events.put(None)  # for the loop that waits
        return event

    def _finish(self, sentences: list[str], translator: LiveTranslator) -> None:
        for sentence in sentences:
            # Times are those of the line: a viewer downloads no subtitles.
            self._apply(TranslationFinal(translator.final(sentence).text, 0.0, 0.0, sentence))
