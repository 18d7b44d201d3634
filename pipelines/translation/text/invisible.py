"""Characters that no reader sees: kept away from the model, and put back where they belong.

Soft hyphens, word joiners and the controls of writing direction break words into pieces that no
model has learned. Joiners stay where a script or an emoji needs them.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipelines.text import SOUTHEAST_ASIAN
from pipelines.translation.text.sentences import SentenceSpan

_ZWNJ, _ZWJ, _KEYCAP, _FLAG = "\u200c", "\u200d", "\u20e3", "\U0001f3f4"
_OPENING = {"\u202a": "\u202c", "\u202b": "\u202c", "\u202d": "\u202c", "\u202e": "\u202c"}
_OPENING |= {"\u2066": "\u2069", "\u2067": "\u2069", "\u2068": "\u2069"}
_DIRECTION = frozenset("\u061c\u200e\u200f") | {*_OPENING, *_OPENING.values()}
_VARIATIONS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_TAGS = "\U000e0000-\U000e007f"  # of flags such as Scotland's
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    f"\ufff9-\ufffb{_VARIATIONS}{_TAGS}]"
)
# Scripts whose letters change with a joiner: Arabic to Thaana, those of India, Mongolian …
_JOINING = re.compile(
    "[\u0600-\u07bf\u0840-\u0dff\u0f00-\u109f\u1780-\u18af\ua840-\uabff\ufb50-\ufefc]"
)
# Their words a zero-width space may divide.
_SOUTHEAST_ASIAN = re.compile(f"[{SOUTHEAST_ASIAN}]")


@dataclass(frozen=True)
class Isolate:
    """A part of a sentence that direction controls enclose, such as a name in a user interface.

    Attributes:
        opening, closing: The controls.
        start, end: The part of the sentence between them, without white space at its ends.
    """

    opening: str
    closing: str
    start: int
    end: int


def isolates_within(isolates: Sequence[Isolate], start: int, end: int) -> tuple[Isolate, ...]:
    """Return the isolates of a part of a text, with their places in that part."""
    return tuple(
        replace(isolate, start=isolate.start - start, end=isolate.end - start)
        for isolate in isolates
        if start <= isolate.start and isolate.end <= end
    )


@dataclass(frozen=True)
class VisibleText:
    """A text without the characters that no reader sees.

    Attributes:
        original: The text as it was given.
        text: The same without them.
        places: For each character of `text` its index in `original`, and last the length of that.
    """

    original: str
    text: str
    places: Sequence[int]

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of `text` stands in `original`; it has one character at least."""
        return self.places[start], self.places[end - 1] + 1

    def with_marks(
        self, spans: Sequence[SentenceSpan]
    ) -> Iterator[tuple[SentenceSpan, tuple[Isolate, ...]]]:
        """Put the controls of direction between sentences back.

        Yields:
            Each sentence, with the controls before it in its leading space, and the isolates in it.
        """
        if len(self.text) == len(self.original):
            yield from ((span, ()) for span in spans)
            return
        inside: list[tuple[int, int]] = []  # the (start, end) of each sentence in the original
        begins: list[int] = []  # the start of each in `text`
        at = 0
        for span in spans:
            at += len(span.leading_space)
            if span.text:
                begins.append(at)
                inside.append(self.original_span(at, at + len(span.text)))
            at += len(span.text)
        kept, isolates = self._pairs(inside)
        gap = 0
        for span, begin, (start, end) in zip(spans, begins, inside, strict=False):
            space = self._space(gap, start, kept)
            found = isolates_within(isolates, begin, begin + len(span.text))
            yield SentenceSpan(space, span.text), found
            gap = end
        if last := self._space(gap, len(self.original), kept):
            yield SentenceSpan(last, ""), ()

    def _space(self, start: int, end: int, kept: set[int]) -> str:
        """Return the white space and the kept controls of a part of the original."""
        return "".join(
            char
            for index, char in enumerate(self.original[start:end], start)
            if index in kept or not _INVISIBLE.match(char)
        )

    def _pairs(self, inside: list[tuple[int, int]]) -> tuple[set[int], list[Isolate]]:
        """Find which controls stay between sentences, and which enclose a part of one.

        Args:
            inside: The (start, end) of each sentence in the original.

        Returns:
            The indices of the former, and the latter with their places in `text`, inner ones first.
        """
        kept: set[int] = set()
        isolates: list[Isolate] = []
        opened: list[int] = []

        def in_sentence(index: int) -> bool:
            return any(start <= index < end for start, end in inside)

        for index, char in enumerate(self.original):
            if char in _OPENING:
                opened.append(index)
            elif opened and char == _OPENING[self.original[opened[-1]]]:
                start = opened.pop()
                if not in_sentence(start) and not in_sentence(index):
                    kept |= {start, index}
                    continue
                first, last = (bisect_left(self.places, place) for place in (start, index))
                content = self.text[first:last]
                if content.strip():
                    first += len(content) - len(content.lstrip())
                    last = first + len(content.strip())
                    isolates.append(Isolate(self.original[start], char, first, last))
            elif char in _DIRECTION and char not in _OPENING.values() and not in_sentence(index):
                kept.add(index)
        return kept, isolates


def visible(text: str) -> VisibleText:
    """Return a text without the characters that no reader sees."""
    if not _INVISIBLE.search(text):
        return VisibleText(text, text, range(len(text) + 1))
    places = [i for i, char in enumerate(text) if not _INVISIBLE.match(char) or _needed(text, i)]
    return VisibleText(text, "".join(text[i] for i in places), (*places, len(text)))


def _needed(text: str, index: int) -> bool:
    """Return whether an invisible character changes how its neighbors look."""
    char, before, after = text[index], text[index - 1 : index], text[index + 1 : index + 2]
    if char in (_ZWJ, _ZWNJ):
        joins = _JOINING.match(before) and _JOINING.match(after or before)
        return bool(joins) or (char == _ZWJ and _is_symbol(before) and _is_symbol(after))
    if char == "\u200b":
        return bool(_SOUTHEAST_ASIAN.match(before) and _SOUTHEAST_ASIAN.match(after))
    if char in "\ufe0e\ufe0f":
        return _is_symbol(before) or after == _KEYCAP
    if "\U000e0020" <= char <= "\U000e007f":
        return _FLAG in text[max(0, index - 7) : index]
    return False


def _is_symbol(char: str) -> bool:
    """Whether this is an emoji, or what follows one within it."""
    return bool(char) and (
        unicodedata.category(char) in ("So", "Sk", "Sm", "Cn")
        or char in "\u203c\u2049\u2640\u2642\ufe0f\u200d"
    )
