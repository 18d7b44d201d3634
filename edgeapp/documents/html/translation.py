"""HTML → the same HTML in another language.

A block is translated as a text. The word alignment says which words of the translation an inline
element covers; each element comes back once, properly nested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from edgeapp.documents.html.blocks import Block, Inline, parse

if TYPE_CHECKING:
    from pipelines import Translation
    from pipelines.translation import Alignment

__all__ = ["html_text", "translate_html"]

_PUNCTUATION = ".,;:!?…»”’\"')]。，！？"

TranslateLines = Callable[[Iterable[str]], Iterator["Translation"]]


def translate_html(html: str, translate_lines: TranslateLines) -> str:
    """Translate the text of a document or a fragment.

    Attributes, scripts, preformatted text, and elements with translate="no" stay as they are.

    Args:
        html: The document.
        translate_lines: Translates texts, with their word alignments, in order.
    """
    parts = parse(html)
    blocks = [part for part in parts if isinstance(part, Block)]
    translations = translate_lines([block.text for block in blocks])
    result = []
    for part in parts:
        if isinstance(part, str):
            result.append(part)
        else:
            result.append(f"{part.before}{_rendered(part, next(translations))}{part.after}")
    return "".join(result)


def html_text(html: str) -> str:
    """The text of a document, one line for each block."""
    return "\n".join(part.text for part in parse(html) if isinstance(part, Block))


@dataclass
class _Placed:
    """An element with the words of the translation that it covers: first ≤ word < stop."""

    element: Inline
    first: int
    stop: int
    parent: int | None


def _rendered(block: Block, translation: Translation) -> str:
    """The translation of a block with its elements."""
    text = translation.text.strip()
    alignment = translation.alignment
    if not block.elements:
        return escape(text, quote=False)
    if alignment is None or not alignment.target_words:
        whole = [e for e in block.elements if e.start == 0 and e.end == len(block.text)]
        others = [e.opening + e.closing for e in block.elements if e not in whole]
        opened = "".join(e.opening for e in whole)
        closed = "".join(e.closing for e in reversed(whole))
        return f"{opened}{escape(text, quote=False)}{''.join(others)}{closed}"
    return _write(block, translation.text, alignment, _place(block, alignment))


def _place(block: Block, alignment: Alignment) -> list[_Placed]:
    """Where the elements belong in the translation, in their order."""
    targets = len(alignment.target_words)
    linked: dict[int, list[int]] = {}
    for source, target in alignment.links:
        linked.setdefault(source, []).append(target)
    placed: list[_Placed] = []
    for element in block.elements:
        parent = placed[element.parent] if element.parent is not None else None
        low, high = (parent.first, parent.stop) if parent else (0, targets)
        # Behind the earlier elements in the same parent, or before them, never across them.
        siblings = [p for p in placed if p.parent == element.parent]
        words = [
            i
            for i, (a, b) in enumerate(alignment.source_words)
            if a < element.end and element.start < b
        ]
        around = parent is not None and _covers(element, parent.element)
        whole = element.start == 0 and element.end == len(block.text) and not siblings
        if around or whole:
            first, stop = low, high
        elif not words:
            first = stop = _anchor(element, alignment, linked, low, high)
        else:
            wanted = {t for i in words for t in linked.get(i, ()) if low <= t < high}
            first, stop = _free_run(wanted, low, high, siblings)
            if element.verbatim:  # it replaces its words, and must not replace others
                stop = next((t for t in range(first, stop) if t not in wanted), stop)
        if first == stop:
            # An empty element must not split another one.
            for other in siblings:
                if other.first < first < other.stop:
                    first = stop = other.stop
        placed.append(_Placed(element, first, stop, element.parent))
    return placed


def _covers(element: Inline, parent: Inline) -> bool:
    """Whether an element has all the text of the element around it."""
    return (element.start, element.end) == (parent.start, parent.end)


def _free_run(wanted: set[int], low: int, high: int, siblings: list[_Placed]) -> tuple[int, int]:
    """The run of words, free of earlier siblings, that has most of the wanted words."""
    taken = sorted((p.first, p.stop) for p in siblings if p.first < p.stop)
    runs, start = [], low
    for first, stop in taken:
        runs.append((start, first))
        start = max(start, stop)
    runs.append((start, high))
    best = max(runs, key=lambda run: len([t for t in wanted if run[0] <= t < run[1]]))
    inside = [t for t in wanted if best[0] <= t < best[1]]
    if not inside:
        return runs[-1][0], runs[-1][0]  # no word of it is translated: behind its siblings
    return min(inside), max(inside) + 1


def _anchor(
    element: Inline, alignment: Alignment, linked: dict[int, list[int]], low: int, high: int
) -> int:
    """Before which word an element without text stands: before the word that follows it."""
    for index, (start, _) in enumerate(alignment.source_words):
        if start >= element.start and linked.get(index):
            return min(max(min(linked[index]), low), high)
    return high


def _punctuation(word: str) -> str:
    """Return the punctuation at the end of a word."""
    return word[len(word.rstrip(_PUNCTUATION)) :]


def _write(block: Block, text: str, alignment: Alignment, placed: list[_Placed]) -> str:
    """The text with its elements around their words."""
    result: list[str] = []
    position = 0
    skip_until = -1  # words that an untranslated element replaces

    def open_at(word: int) -> None:
        nonlocal skip_until
        for p in placed:
            if p.first != word:
                continue
            result.append(p.element.opening)
            if p.element.verbatim and p.first < p.stop and skip_until < p.stop:
                original = block.text[p.element.start : p.element.end]
                result.append(escape(original.strip(), quote=False))
                skip_until = p.stop
            if p.first == p.stop:
                kept = block.text[p.element.start : p.element.end] if p.element.verbatim else ""
                result.append(escape(kept, quote=False) + p.element.closing)

    def write_word(start: int, end: int, closing: list[_Placed]) -> None:
        """A word and the ends of elements, before its punctuation if it is not theirs."""
        stem = end
        if any(block.text[p.element.end - 1 : p.element.end].isalnum() for p in closing):
            stem -= len(_punctuation(text[start:end]))
        ends = "".join(p.element.closing for p in reversed(closing))
        if start < stem or not closing:
            result.append(escape(text[start:stem], quote=False))
        result.append(ends + escape(text[stem:end], quote=False))

    def write_ends(start: int, end: int, closing: list[_Placed]) -> None:
        """The ends of elements at a word that is replaced, and the punctuation behind it."""
        kept = next((p.element for p in closing if p.element.verbatim), None)
        sign = ""
        if kept is not None:
            own = _punctuation(block.text[kept.start : kept.end].rstrip())
            sign = escape(_punctuation(text[start:end]).removeprefix(own), quote=False)
        for p in reversed(closing):
            if kept is not None and p.element.end > kept.end:
                result.append(sign)
                sign = ""
            result.append(p.element.closing)
        result.append(sign)

    for word, (start, end) in enumerate(alignment.target_words):
        closing = [p for p in placed if p.stop == word + 1 and p.first <= word]
        if word >= skip_until or not result:
            result.append(escape(text[position:start], quote=False))
        elif not text[position:start].strip() and word > skip_until:
            result.append(text[position:start])
        open_at(word)
        if word >= skip_until:
            write_word(start, end, closing)
        else:
            write_ends(start, end, closing)
        position = end
    open_at(len(alignment.target_words))
    result.append(escape(text[position:].rstrip(), quote=False))
    return "".join(result)
