"""Live translation of text that is still growing: complete sentences once and for all, the
incomplete one again and again, with a stable beginning so that the display does not flicker."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import commonprefix  # of any sequences

from pipelines.translation.alignment import words_of
from pipelines.translation.options import TranslateOptions
from pipelines.translation.results import Span
from pipelines.translation.text.sentences import split_sentences
from pipelines.translation.translator import Translator

_LEAST_WORDS = 3  # of an incomplete sentence that is translated


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
    """Translates one stream of text, which is added to and never changed."""

    def __init__(self, translator: Translator, options: TranslateOptions | None = None) -> None:
        self._translator = translator
        self._options = options or TranslateOptions()
        self._open = ""
        self._previous: tuple[int, ...] = ()  # tokens of the latest translation
        self._shown: tuple[int, ...] = ()  # those that are shown
        self._ahead: list[str] = []  # complete sentences of unsettled text before it

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
        done, rest = self._split(self._open)
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

    def running_after(self, unsettled: str) -> str:
        """Return the incomplete source sentence as it will be once text is added.

        Args:
            unsettled: The text, which may still be corrected before that. A line feed ends a
                sentence.
        """
        return self._split(self._open + unsettled)[1].strip() if unsettled else self.running

    def partial(self, tail: str = "", unsettled: str = "") -> LiveTranslation | None:
        """Translate the incomplete sentence as it is now.

        The whole words on which two successive translations agree are shown and kept in the next
        ones (LocalAgreement-2, Liu et al. 2020). The last word is never among them, because it
        depends on what is still to come.

        Args:
            tail: Source text after it that is not committed yet.
            unsettled: Source text before the tail, as in `running_after`.

        Returns:
            The part of the translation that is shown; None if there is none, as with fewer than
            three words.
        """
        ahead, rest = self._split(self._open + unsettled) if unsettled else ([], self._open)
        if ahead != self._ahead:  # another sentence is the incomplete one
            self._ahead, self._previous, self._shown = ahead, (), ()
        source = (rest + tail).strip()
        if len(words_of(source)) < _LEAST_WORDS:
            return None
        text, tokens, copied = self._translator.retranslate(
            source, self._options, prefix=self._shown, draft=self._previous
        )
        if tokens:  # not of a text that is copied
            agreed = len(commonprefix([self._previous, tokens]))
            self._shown = self._whole_words(tokens, agreed) or self._shown
            self._previous = tokens
            shown = self._translator.tokenizer.decode(self._shown)
            text = copied + shown if shown else ""
        return LiveTranslation(source, text.strip()) if text.strip() else None

    def _split(self, text: str) -> tuple[list[str], str]:
        """Divide text into its complete sentences and the incomplete one after them."""
        spans = split_sentences(text, self._language)
        sentences = [span.text for span in spans if span.text.strip()]
        if not sentences:
            return [], text
        # The last sentence is complete if the splitter ends it before a word that may follow. That
        # word is a name, because names follow the abbreviations that do not end a sentence.
        followed = split_sentences(text.rstrip() + " Tom", self._language)
        if text.endswith("\n") or len(followed) > len(spans):
            return sentences, ""
        return sentences[:-1], sentences[-1]

    def _whole_words(self, tokens: tuple[int, ...], count: int) -> tuple[int, ...]:
        """The words within the first `count` tokens that a further word follows."""
        decode = self._translator.tokenizer.decode
        for stop in range(min(count, len(tokens) - 1), len(self._shown), -1):
            words, more = words_of(decode(tokens[:stop])), words_of(decode(tokens[: stop + 1]))
            if len(more) > len(words):
                return tokens[:stop]
        return ()

    def _begin(self, sentence: str) -> None:
        self._open = sentence
        self._previous = self._shown = ()
        self._ahead = []

    @property
    def _language(self) -> str | None:
        return self._options.source_language or self._translator.source_language
