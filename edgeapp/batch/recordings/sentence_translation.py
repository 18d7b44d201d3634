"""Translates the sentences of a recording in a thread, while the next ones are recognized."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Self

from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation, Translator

__all__ = ["SentenceTranslation"]


class SentenceTranslation:
    """Sentences in, their translations out, in order. A context manager.

    Sentences that wait for each other are translated in one batch.

    Args:
        translator: The model.
        options: How to translate.
    """

    def __init__(self, translator: Translator, options: TranslateOptions) -> None:
        self._translator, self._options = translator, options
        self._sentences: queue.SimpleQueue[Cue | None] = queue.SimpleQueue()  # None ends it
        self._pending: deque[Cue] = deque()  # without a translation
        self._done: queue.SimpleQueue[Translation | BaseException] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="translation", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End the work; what has not been taken is lost."""
        self._stopped.set()
        self._sentences.put(None)
        self._thread.join()

    def add(self, sentence: Cue) -> None:
        """Translate a sentence, when the ones before it are translated."""
        self._pending.append(sentence)
        self._sentences.put(sentence)

    def finished(self, *, all: bool = False) -> Iterator[tuple[Cue, Translation]]:
        """Sentences with their translations, each once.

        Args:
            all: Wait for the rest.

        Raises:
            EdgeError: As Translator.translate_lines.
        """
        while self._pending:
            try:
                result = self._done.get(block=all)
            except queue.Empty:
                return
            if isinstance(result, BaseException):
                raise result
            yield self._pending.popleft(), result

    def _run(self) -> None:
        try:
            translations = self._translator.translate_lines(self._texts(), self._options)
            with closing(translations):
                for translation in translations:
                    self._done.put(translation)
                    if self._stopped.is_set():
                        return
        except BaseException as error:  # raised where the translation is needed
            self._done.put(error)

    def _texts(self) -> Iterator[str | None]:
        """The sentences; None before each wait, so that all before it are translated."""
        while True:
            try:
                sentence = self._sentences.get_nowait()
            except queue.Empty:
                yield None
                sentence = self._sentences.get()
            if sentence is None or self._stopped.is_set():
                return
            yield sentence.text
