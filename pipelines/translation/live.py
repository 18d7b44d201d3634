"""Live translation of text that is still growing: complete sentences once and for all, the
incomplete one again and again, with a stable beginning so that the display does not flicker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.translation.options import TranslateOptions
from pipelines.translation.results import Span
from pipelines.translation.text.sentences import split_sentences
from pipelines.translation.translator import Translator

__all__ = ["LiveTranslation", "LiveTranslator"]

# The last tokens of an incomplete translation depend on words that are still to come.
_UNSTABLE_TOKENS = 2


@dataclass(frozen=True)
class LiveTranslation:
    """The translation of a sentence that may be incomplete.

    Attributes:
        source: The sentence.
        text: Its translation.
        warnings: As in Translation; empty for an incomplete sentence.
        words: The span of each word and its probability; empty for an incomplete sentence.
    """

    source: str
    text: str
    warnings: tuple[str, ...] = ()
    words: tuple[tuple[Span, float], ...] = ()


class LiveTranslator:
    """Translates one stream of text, which is added to and never changed.

    Args:
        translator: May be shared by several live translators.
        options: As for Translator.translate.
    """

    def __init__(self, translator: Translator, options: TranslateOptions | None = None) -> None:
        self._translator = translator
        self._options = options or TranslateOptions()
        self._open = ""
        self._previous: tuple[int, ...] = ()
        self._stable: tuple[int, ...] = ()

    @property
    def running(self) -> str:
        """The incomplete source sentence."""
        return self._open.strip()

    def add(self, committed: str) -> list[str]:
        """Add source text.

        Returns:
            The sentences that it completes, to be translated with `final`.
        """
        self._open += committed
        spans = split_sentences(self._open, self._language)
        sentences = [span.text for span in spans if span.text.strip()]
        if not sentences:
            return []
        # The last sentence is complete if the splitter ends it before a word that may follow. That
        # word is a name, because names follow the abbreviations that do not end a sentence.
        complete = len(split_sentences(self._open.rstrip() + " Tom", self._language)) > len(spans)
        done, rest = (sentences, "") if complete else (sentences[:-1], sentences[-1])
        if done:
            self._begin(rest)
        return done

    def finish(self) -> list[str]:
        """End the incomplete sentence, at a pause. Returns it, or an empty list."""
        rest = self.running
        self._begin("")
        return [rest] if rest else []

    def final(self, sentence: str) -> LiveTranslation:
        """Translate a complete sentence."""
        done = self._translator.translate(sentence, self._options)
        stripped = len(done.text) - len(done.text.lstrip())
        words = tuple(
            ((start - stripped, end - stripped), probability)
            for (start, end), probability in self._translator.word_probabilities(done)
        )
        return LiveTranslation(sentence, done.text.strip(), done.warnings, words)

    def partial(self, tail: str = "") -> LiveTranslation | None:
        """Translate the incomplete sentence as it is now.

        Tokens on which two successive translations agree are kept in the next ones, except for
        the last few.

        Args:
            tail: Source text after it that is not committed yet.

        Returns:
            The translation; None without a sentence.
        """
        source = (self._open + tail).strip()
        if not source:
            return None
        text, tokens = self._translator.retranslate(
            source, self._options, prefix=self._stable, draft=self._previous
        )
        common = _common_prefix(self._previous, tokens)
        self._stable = tokens[: max(len(self._stable), common - _UNSTABLE_TOKENS)]
        self._previous = tokens
        return LiveTranslation(source, text.strip())

    def _begin(self, sentence: str) -> None:
        self._open = sentence
        self._previous = self._stable = ()

    @property
    def _language(self) -> str | None:
        return self._options.source_language or self._translator.source_language


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of equal tokens at the beginning."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
