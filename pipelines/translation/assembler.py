"""Assembly of translated sentences into a text with the white space of the source."""

from __future__ import annotations

import re
import unicodedata

from pipelines.text import WIDE
from pipelines.translation.alignment import join_alignments
from pipelines.translation.results import SentenceTranslation, Translation

_WIDE = re.compile(f"[{WIDE}]")


class TextAssembler:
    """The translation of one text while it grows.

    For each sentence: `open`, then `add` for each piece of its translation, then `close`.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._sentences: list[SentenceTranslation] = []
        self._leading_space = ""
        self._needs_space = False
        self._at_start = True

    def open(self, leading_space: str, source: str) -> None:
        """Begin the sentence `source`, which follows the white space `leading_space`."""
        last = self._sentences[-1].source[-1:] if self._sentences else ""
        self._needs_space = (
            not leading_space and _ends_a_sentence(last) and _begins_a_word(source[:1])
        )
        self._leading_space, self._at_start = leading_space, True

    def add(self, text: str) -> str:
        """Add more of the sentence's translation.

        Returns:
            `text`, with the white space before it where it is the first of the sentence.
        """
        if self._at_start and text:
            text = self._space_before(text[0]) + text
            self._at_start = False
        self._text.append(text)
        return text

    def add_space(self, space: str) -> None:
        """Add white space at the end of the text."""
        self._text.append(space)

    def close(self, sentence: SentenceTranslation) -> None:
        """End the sentence."""
        self._sentences.append(sentence)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def sentences(self) -> tuple[SentenceTranslation, ...]:
        """The complete sentences."""
        return tuple(self._sentences)

    def finish(self, source: str, word_alignments: bool = False) -> Translation:
        """The complete translation."""
        warnings = [
            f'"{excerpt(sentence.source)}": {warning}'
            for sentence in self._sentences
            for warning in sentence.warnings
        ]
        return Translation(
            source,
            self.text,
            self.sentences,
            tuple(dict.fromkeys(warnings)),
            join_alignments(source, self.text, self._sentences) if word_alignments else None,
        )

    def _space_before(self, first: str) -> str:
        """The white space before a sentence that begins with `first`.

        There is none between sentences in Chinese, where other languages need a space.
        """
        if (
            not self._needs_space
            or _WIDE.match(first)
            or _WIDE.match(self._sentences[-1].text[-1:])
        ):
            return self._leading_space
        return " "


def _ends_a_sentence(last: str) -> bool:
    return last != "" and (last in ".!?…:;," or _WIDE.match(last) is not None)


def _begins_a_word(first: str) -> bool:
    return first.isalnum() or unicodedata.category(first or " ") in ("Ps", "Pi")


def excerpt(text: str, max_chars: int = 40) -> str:
    """A text as messages quote it: cut after `max_chars`, with an ellipsis."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
