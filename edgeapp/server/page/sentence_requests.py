"""Requests of the page's editor about sentences: translate again, align, name the language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from edgeapp.history import History
from edgeapp.live.doubts import doubts_of
from edgeapp.model_pool import ModelPool
from edgeapp.priorities import Priority
from edgeapp.server.page.picker_options import ModelChoice
from edgeapp.server.page.request_fields import text_field
from edgeapp.server.sessions import Message
from pipelines import OptionError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translator
    from pipelines.translation import Alignment, Span

__all__ = ["SentenceRequests", "carry_links"]

_MAX_SENTENCES = 500  # of a request
_MAX_SENTENCE = 5_000  # characters
_MAX_ALIGNED = 2_000  # characters
_MAX_SAMPLE = 20_000  # characters


class SentenceRequests:
    """Handlers of the editor's requests. Called from any thread.

    Args:
        pool: The shared models.

    Attributes:
        handlers: By the type of the request.
    """

    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool
        self.handlers: dict[str, Callable[[Message, History], Message]] = {
            "translate_sentences": self._translate,
            "align": self._align,
            "detect_language": self._detect,
        }

    def _translate(self, message: Message, history: History) -> Message:
        """Translate each of "sentences" from "language" into "target"; "doubts": of each."""
        sentences = message.get("sentences")
        if not isinstance(sentences, list) or len(sentences) > _MAX_SENTENCES:
            raise OptionError(f"sentences must be a list of at most {_MAX_SENTENCES}")
        for sentence in sentences:
            if not isinstance(sentence, str) or len(sentence) > _MAX_SENTENCE:
                raise OptionError(f"a sentence is a text of at most {_MAX_SENTENCE} characters")
        with self._translator(message) as (translator, options):
            results = translator.translate(sentences, options)
            doubts = [doubts_of(result, translator) for result in results]
        return {"translations": [result.text.strip() for result in results], "doubts": doubts}

    def _align(self, message: Message, history: History) -> Message:
        """Which words of a "text" those of its "translation" come from, by the decoder's attention:
        pairs of spans."""
        text = text_field(message, "text", _MAX_ALIGNED)
        translation = text_field(message, "translation", _MAX_ALIGNED)
        with self._translator(message, word_alignments=True) as (translator, options):
            result = translator.translate(text, options)
        if result.alignment is None:
            return {"links": []}
        return {"links": carry_links(result.alignment, result.text, translation)}

    def _detect(self, message: Message, history: History) -> Message:
        """The "language" that a "text" is in, if it is certainly not the "expected" one."""
        from pipelines.text_language import text_language_other_than

        text, expected = (
            text_field(message, "text", _MAX_SAMPLE),
            text_field(message, "expected", 20),
        )
        other = text_language_other_than(text, expected) if text.strip() else None
        return {"language": other.code if other else None}

    @contextmanager
    def _translator(
        self, message: Message, word_alignments: bool = False
    ) -> Iterator[tuple[Translator, TranslateOptions]]:
        from pipelines import TranslateOptions

        choice = ModelChoice.from_message(message)
        if choice.target is None:
            raise OptionError("target, the language to translate into, is missing")
        translator = self._pool.translator(choice.translation_model, choice.language, choice.target)
        options = TranslateOptions(
            target=choice.target if translator.target_codes else None,
            source_language=choice.language,
            word_alignments=word_alignments,
            priority=Priority.INTERACTIVE,
        )
        with self._pool.using(translator):
            yield translator, options


def carry_links(alignment: Alignment, translated: str, shown: str) -> list[tuple[Span, Span]]:
    """Links of the words of a translation, for the text that is shown in its place.

    The shown text may have been corrected: words that are in both texts, in the same order, keep
    their links.

    Args:
        alignment: Of `translated`.
        translated: The model's translation.
        shown: The text on the page.

    Returns:
        Pairs of the span of a source word and of a word of `shown`.
    """
    matcher = SequenceMatcher(None, translated, shown, autojunk=False)
    blocks = [block for block in matcher.get_matching_blocks() if block.size]
    links = []
    for source, target in alignment.links:
        start, end = alignment.target_words[target]
        for block in blocks:
            if block.a <= start and end <= block.a + block.size:
                moved = (start - block.a + block.b, end - block.a + block.b)
                links.append((alignment.source_words[source], moved))
    return links
