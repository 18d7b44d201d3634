"""Translation of a typed text, streamed token by token."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from edgeapp.live.doubts import doubtful_words
from edgeapp.server.page.picker_options import missing_translator, picker_options
from edgeapp.server.tasks.cancellable_task import CancellableTask
from pipelines import InputError

if TYPE_CHECKING:
    from edgeapp.model_pool import ModelPool
    from edgeapp.server.page.picker_options import ModelChoice
    from edgeapp.server.sessions import Send
    from pipelines import Translation, Translator

__all__ = ["LONGEST_TEXT", "TextTask"]

LONGEST_TEXT = 200_000  # characters: a book's chapter or two
_LONGEST_MARKED = 50_000  # characters of a translation whose doubtful words are marked


class TextTask(CancellableTask):
    """Translates a text.

    Args:
        pool: The shared models.
        choice: Model and languages.
        text: At most LONGEST_TEXT characters.

    Raises:
        InputError: The text is too long.
    """

    kind = "text"

    def __init__(self, pool: ModelPool, choice: ModelChoice, text: str) -> None:
        super().__init__()
        if len(text) > LONGEST_TEXT:
            raise InputError(
                f"the text has {len(text):,} characters; the limit is {LONGEST_TEXT:,}. "
                "translate it in parts"
            )
        self._pool, self._choice, self._text = pool, choice, text

    def run(self, send: Send) -> None:
        from pipelines import TranslateOptions, TranslationDelta, TranslationDone

        choice = self._choice
        _check_language(self._text, choice)
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
                self.check()
                if isinstance(event, TranslationDelta):
                    send({"type": "text_delta", "text": event.text})
                elif isinstance(event, TranslationDone):
                    send({
                        "type": "text_done",
                        "text": event.translation.text,
                        "warnings": event.translation.warnings,
                    })  # fmt: skip
                    self._send_doubts(translator, event.translation, send)

    def _send_doubts(self, translator: Translator, translation: Translation, send: Send) -> None:
        """Send which words are in doubt: after the text, which need not wait for it."""
        if len(translation.text) <= _LONGEST_MARKED:
            words = translator.word_probabilities(translation)
            spans = doubtful_words(translation.text, words)
            send({"type": "text_doubts", "spans": spans})


def _check_language(text: str, choice: ModelChoice) -> None:
    """Raise InputError if a text is surely in a language that no installed model translates."""
    from pipelines.text_language import text_language_other_than

    if choice.language is None or choice.target is None or not text.strip():
        return
    other = text_language_other_than(text, choice.language)
    if other is None or other.code == choice.target:
        return
    # A group of languages that a model does not name may contain this one.
    if not any(
        choice.target in targets and (not sources or other.code in sources)
        for sources, targets in picker_options().translators.values()
    ):
        raise InputError(missing_translator(other, choice.target))
