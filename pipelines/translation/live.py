"""Translating text that is still being said: finished sentences for good, the running one as it
stands, so that its translation grows rather than flickers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.translation.options import TranslateOptions
from pipelines.translation.text.sentences import split_sentences
from pipelines.translation.translator import Translator

__all__ = ["LiveTranslator", "LiveTranslation"]

# The last tokens of a running translation hang on words that have not been said yet.
_UNSTABLE_TOKENS = 2


@dataclass(frozen=True)
class LiveTranslation:
    """A translation of `source`. warnings: as in Translation."""

    source: str
    text: str
    warnings: tuple[str, ...] = ()


class LiveTranslator:
    """Follows one speaker. Text is added as it is committed, and never changes.

    translator: may be shared by many. options: as for Translator.translate.
    """

    def __init__(self, translator: Translator, options: TranslateOptions | None = None) -> None:
        self._translator = translator
        self._options = options or TranslateOptions()
        self._open = ""
        self._previous: tuple[int, ...] = ()
        self._stable: tuple[int, ...] = ()

    @property
    def running(self) -> str:
        """The source sentence that is not over yet."""
        return self._open.strip()

    def add(self, committed: str) -> list[str]:
        """Take in more source text; the sentences that are complete now, to be translated."""
        self._open += committed
        spans = split_sentences(self._open, self._language)
        sentences = [span.text for span in spans if span.text.strip()]
        if not sentences:
            return []
        # Whether the last one is over shows in what the splitter does with what may come next. A
        # name, because that is what follows abbreviations which end nothing.
        over = len(split_sentences(self._open.rstrip() + " Tom", self._language)) > len(spans)
        done, rest = (sentences, "") if over else (sentences[:-1], sentences[-1])
        if done:
            self._begin(rest)
        return done

    def finish(self) -> list[str]:
        """A pause: what is open counts as a sentence."""
        rest = self.running
        self._begin("")
        return [rest] if rest else []

    def final(self, sentence: str) -> LiveTranslation:
        """Translate a complete sentence, once and for all."""
        (done,) = self._translator.translate([sentence], self._options)
        return LiveTranslation(sentence, done.text.strip(), done.warnings)

    def partial(self, tail: str = "") -> LiveTranslation | None:
        """Translate the running sentence as far as it goes, the uncommitted `tail` included.

        Words that two translations in a row agree on stay as they are; None: nothing is running.
        """
        source = (self._open + tail).strip()
        if not source:
            return None
        text, tokens = self._translator.redecode(
            source, self._options, fixed=self._stable, draft=self._previous
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
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
