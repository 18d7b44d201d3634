"""Controls of direction around words of a sentence, put around the same words of its translation.

Such pairs enclose names, numbers and file names in user interfaces. A pair comes back where its
words are found without doubt, and is left out otherwise, never one control alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pipelines.translation.results import Alignment, Span
from pipelines.translation.text.invisible import Isolate


def with_isolates(
    source: str,
    text: str,
    isolates: Sequence[Isolate],
    align: Callable[[], Alignment | None],
) -> str:
    """Return a translation with the controls around the words that they enclosed in its source.

    The words are those that stand in both texts, or those that the word alignment links.

    Args:
        source: The sentence.
        text: Its translation.
        isolates: Parts of the sentence, inner ones before those around them.
        align: Computes the word alignment; called if words are not the same in both. None: the
            model has none.
    """
    alignment: Alignment | None = None
    aligned = False
    placed: list[tuple[Isolate, Span]] = []
    for isolate in isolates:
        span = _same_words(source, text, isolate)
        if span is None:
            if not aligned:
                alignment, aligned = align(), True
            span = None if alignment is None else _linked_words(source, text, isolate, alignment)
        if span is not None and all(_fit(isolate, span, *other) for other in placed):
            placed.append((isolate, span))
    return _written(text, placed)


def _same_words(source: str, text: str, isolate: Isolate) -> Span | None:
    """Return where the words stand in the translation as they are, if that is certain."""
    words = re.compile(rf"(?<!\w){re.escape(source[isolate.start : isolate.end])}(?!\w)")
    in_source = [match.span() for match in words.finditer(source)]
    in_text = [match.span() for match in words.finditer(text)]
    own = (isolate.start, isolate.end)
    if len(in_source) == len(in_text) and own in in_source:
        return in_text[in_source.index(own)]
    return None


def _linked_words(source: str, text: str, isolate: Isolate, alignment: Alignment) -> Span | None:
    """Return the words of the translation that are linked to these alone, if they are one run."""
    own = {
        index
        for index, (start, end) in enumerate(alignment.source_words)
        if start < isolate.end and isolate.start < end
    }
    linked = sorted({target for word, target in alignment.links if word in own})
    shared = any(target in linked and word not in own for word, target in alignment.links)
    if not linked or shared or linked[-1] - linked[0] >= len(linked):
        return None
    if len(linked) > len(own) + 1:  # More than an article in addition: the links are wrong.
        return None
    start, end = alignment.target_words[linked[0]][0], alignment.target_words[linked[-1]][1]
    # Punctuation belongs to the words only if it does in the source.
    while start < end and source[isolate.start].isalnum() and not text[start].isalnum():
        start += 1
    while start < end and source[isolate.end - 1].isalnum() and not text[end - 1].isalnum():
        end -= 1
    return (start, end) if start < end else None


def _fit(isolate: Isolate, span: Span, other: Isolate, other_span: Span) -> bool:
    """Return whether two pairs do not cross, and lie in each other only if they did before."""
    apart = span[1] <= other_span[0] or other_span[1] <= span[0]
    inside = isolate.start <= other.start and other.end <= isolate.end
    return apart or (inside and span[0] <= other_span[0] and other_span[1] <= span[1])


def _written(text: str, placed: Sequence[tuple[Isolate, Span]]) -> str:
    """Return a text with controls; `placed` has inner pairs before those around them."""
    before = [""] * (len(text) + 1)
    after = [""] * (len(text) + 1)
    for isolate, (start, end) in placed:
        before[start] = isolate.opening + before[start]
        after[end] += isolate.closing
    return "".join(after[i] + before[i] + char for i, char in enumerate([*text, ""]))
