"""Putting translated sentences back together, with the white space of the source."""

from __future__ import annotations

import unicodedata

from pipelines.translation.alignment import joined
from pipelines.translation.results import SentenceTranslation, Translation

__all__ = ["TextAssembler", "excerpt"]


class TextAssembler:
    """The translation of one text while it grows."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._sentences: list[SentenceTranslation] = []
        self._before = ""
        self._needs_gap = False
        self._fresh = True

    def open(self, before: str, source: str) -> None:
        """A sentence begins: `source`, after the white space `before`."""
        last = self._sentences[-1].source[-1:] if self._sentences else ""
        self._needs_gap = not before and _ends_a_sentence(last) and _begins_a_word(source[:1])
        self._before, self._fresh = before, True

    def add(self, text: str) -> str:
        """More of the sentence; returns the same with what has to stand before it."""
        if self._fresh and text:
            text = self._gap(text[0]) + text
            self._fresh = False
        self._text.append(text)
        return text

    def space(self) -> str:
        """The white space at the end of the text."""
        self._text.append(self._before)
        return self._before

    def close(self, sentence: SentenceTranslation) -> None:
        """The sentence is complete."""
        self._sentences.append(sentence)

    @property
    def text(self) -> str:
        """What has been said so far."""
        return "".join(self._text)

    @property
    def sentences(self) -> tuple[SentenceTranslation, ...]:
        """The complete sentences."""
        return tuple(self._sentences)

    def finish(self, source: str, aligned: bool = False) -> Translation:
        """The text is complete; `source` is all of it. aligned: its sentences are."""
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
            joined(source, self.text, self._sentences) if aligned else None,
        )

    def _gap(self, first: str) -> str:
        """The white space before a sentence. Chinese has none where German needs some."""
        if not self._needs_gap or _is_wide(first) or _is_wide(self._sentences[-1].text[-1:]):
            return self._before
        return " "


def _ends_a_sentence(last: str) -> bool:
    return last != "" and (last in ".!?…:;," or _is_wide(last))


def _begins_a_word(first: str) -> bool:
    return first.isalnum() or unicodedata.category(first or " ") in ("Ps", "Pi")


def _is_wide(char: str) -> bool:
    """Whether this is a letter or a mark of a script that puts no spaces between words."""
    return (
        unicodedata.east_asian_width(char or " ") in "WF" and unicodedata.category(char)[0] != "S"
    )


def excerpt(text: str, longest: int = 40) -> str:
    """A text as messages quote it: its beginning where it is long."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
