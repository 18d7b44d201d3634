"""Translation of a typed text, streamed token by token."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

from edgeapp.server.sessions import TaskCancelled
from pipelines import InputError

if TYPE_CHECKING:
    from edgeapp.model_pool import ModelPool
    from edgeapp.server.page.picker_options import ModelChoice
    from edgeapp.server.sessions import Send

__all__ = ["LONGEST_TEXT", "TextTask"]

LONGEST_TEXT = 200_000  # characters: a book's chapter or two


class TextTask:
    """Translates a text.

    Args:
        pool: The shared models.
        choice: Model and languages.
        text: At most LONGEST_TEXT characters.
        number: The page's number of this request; every message of the task carries it.

    Raises:
        InputError: The text is too long.
    """

    kind = "text"

    def __init__(self, pool: ModelPool, choice: ModelChoice, text: str, number: int) -> None:
        if len(text) > LONGEST_TEXT:
            raise InputError(
                f"the text has {len(text):,} characters; the limit is {LONGEST_TEXT:,}. "
                "translate it in parts"
            )
        self._pool, self._choice = pool, choice
        self._text, self._number = text, number
        self._cancelled = threading.Event()

    def run(self, send: Send) -> None:
        from pipelines import TranslateOptions, TranslationDelta, TranslationDone

        choice = self._choice
        translator = self._pool.translator(choice.translation_model, choice.language, choice.target)
        options = TranslateOptions(
            target=choice.target if translator.target_codes else None,
            source_language=choice.language,
        )
        with (
            self._pool.using(translator),
            closing(translator.stream(self._text, options)) as events,
        ):
            for event in events:
                if self._cancelled.is_set():
                    raise TaskCancelled
                if isinstance(event, TranslationDelta):
                    send({"type": "text_delta", "number": self._number, "text": event.text})
                elif isinstance(event, TranslationDone):
                    send({
                        "type": "text_done",
                        "number": self._number,
                        "text": event.translation.text,
                        "warnings": event.translation.warnings,
                    })  # fmt: skip

    def put_audio(self, audio: bytes) -> None:
        """Ignored: a text has no audio."""

    def stop(self) -> None:
        self.cancel()

    def cancel(self) -> None:
        self._cancelled.set()
