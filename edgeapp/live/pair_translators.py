"""Translators of a session whose language is detected: one for each language that is spoken."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

from edgeapp.exit_codes import pull_command
from pipelines import (
    LANGUAGES,
    EdgeError,
    LiveTranslator,
    ModelError,
    ModelNotFound,
    TranslateOptions,
)
from pipelines.translation import LiveTranslation

if TYPE_CHECKING:
    from edgeapp.model_pool import ModelPool
    from pipelines import Translator

__all__ = ["PairTranslators", "live_translator", "missing_pair_message"]


class PairTranslators:
    """Translators into one language. Each is opened when its language is first heard, on a thread
    of its own, so that captions go on meanwhile.

    Args:
        pool: The shared models.
        name: The translation model; None: the best one of each pair.
        target: The code of the target language.
    """

    def __init__(self, pool: ModelPool, name: str | None, target: str) -> None:
        self._pool, self._name, self._target = pool, name, target
        self._lock = threading.Lock()  # of what follows
        self._opened: dict[str, Future[Translator]] = {}  # by source language
        self._in_use, self._closed = ExitStack(), False

    def find(self, source: str, *, wait: bool = False) -> LiveTranslator | None:
        """Return a new live translator from a language, for one channel.

        Args:
            source: The code of the language.
            wait: Wait until the model is opened.

        Returns:
            The translator; None: its model is being opened.

        Raises:
            EdgeError: There is no such model, or it cannot be opened.
        """
        if source == self._target:
            return _Unchanged(source)
        opened = self._opening(source)
        if not wait and not opened.done():
            return None
        return live_translator(opened.result(), self._target, source)

    def prepare(self, source: str) -> None:
        """Begin to open the model of a language, if one is needed."""
        if source != self._target:
            self._opening(source)

    def _opening(self, source: str) -> Future[Translator]:
        """Return the model of a language, which is opened from the first call on."""
        with self._lock:
            first = source not in self._opened
            opened = self._opened.setdefault(source, Future())
        if first:
            name = f"open the translator from {source}"
            threading.Thread(target=self._open, args=(source,), name=name, daemon=True).start()
        return opened

    def close(self) -> None:
        """Let the models be unloaded."""
        with self._lock:
            self._closed = True
            self._in_use.close()

    def _open(self, source: str) -> None:
        future = self._opened[source]
        try:
            translator = self._pool.translator(self._name, source, self._target)
            with self._lock:
                if not self._closed:
                    self._in_use.enter_context(self._pool.using(translator))
        except EdgeError as error:
            future.set_exception(error)
        except Exception as error:  # of the disk, or of the memory of a GPU
            future.set_exception(ModelError(str(error) or repr(error)))
        else:
            future.set_result(translator)


class _Unchanged(LiveTranslator):
    """Text that is in the target language already.

    Args:
        language: The code of its language.
    """

    def __init__(self, language: str) -> None:
        # Both methods that ask the model are replaced.
        super().__init__(cast("Translator", None), TranslateOptions(source_language=language))

    def final(self, sentence: str) -> LiveTranslation:
        return LiveTranslation(sentence, sentence)

    def partial(self, tail: str = "", unsettled: str = "") -> LiveTranslation | None:
        source = (self.running_after(unsettled) + tail).strip()
        return LiveTranslation(source, source) if source else None


def live_translator(
    translator: Translator, target: str, source: str | None = None
) -> LiveTranslator:
    """Return a live translator for one channel.

    Args:
        translator: The model.
        target: The code of the target language.
        source: The code of the language of the text; None: the model's.
    """
    from edgeapp.priorities import Priority

    return LiveTranslator(
        translator,
        TranslateOptions(
            target=target if translator.target_codes else None,
            source_language=source,
            priority=Priority.LIVE_TRANSLATION,
        ),
    )


def missing_pair_message(error: EdgeError, language: str) -> str:
    """Return what to say of a language whose translator cannot be opened."""
    name = LANGUAGES.get(language, language).title()
    if isinstance(error, ModelNotFound) and error.download is not None:
        command = pull_command(error.download)
        return f"{name} is not translated: no translator is on this machine; {command} downloads it"
    return f"{name} is not translated: {error}"
