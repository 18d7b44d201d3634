"""A text on its way into another language, for the page: tokens as they are decoded."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

from edgeapp.server.sessions import SessionAbandoned
from pipelines import InputError

if TYPE_CHECKING:
    from edgeapp.server.sessions import Send
    from edgeapp.server.shared_models import ModelChoice, SharedModelPool

__all__ = ["LONGEST_TEXT", "TextTask"]

LONGEST_TEXT = 200_000  # characters: a book's chapter or two


class TextTask:
    """number: by which the page knows the answer to its newest request. Raises InputError for a
    text that is too long."""

    kind = "text"

    def __init__(self, pool: SharedModelPool, wanted: ModelChoice, text: str, number: int) -> None:
        if len(text) > LONGEST_TEXT:
            raise InputError(
                f"the text has {len(text):,} characters; {LONGEST_TEXT:,} are taken here. "
                "`edgeapp translate` takes files of any length"
            )
        self._pool, self._wanted = pool, wanted
        self._text, self._number = text, number
        self._abandoned = threading.Event()

    def run(self, send: Send) -> None:
        from pipelines import TranslateOptions, TranslationDelta, TranslationDone

        wanted = self._wanted
        translator = self._pool.translator(wanted.translation_model, wanted.language, wanted.target)
        options = TranslateOptions(
            target=wanted.target if translator.target_codes else None,
            source_language=wanted.language,
        )
        with self._pool.using(translator), closing(translator.stream(self._text, options)) as got:
            for event in got:
                if self._abandoned.is_set():
                    raise SessionAbandoned
                if isinstance(event, TranslationDelta):
                    send({"type": "text_delta", "number": self._number, "text": event.text})
                elif isinstance(event, TranslationDone):
                    send({
                        "type": "text_done",
                        "number": self._number,
                        "text": event.translation.text,
                        "warnings": event.translation.warnings,
                    })  # fmt: skip

    def take(self, audio: bytes) -> None:
        """A text has no audio."""

    def stop(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self._abandoned.set()
