"""Words of a translation of which the model is in doubt, as the page marks them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines import Translation, Translator
    from pipelines.translation import Span

__all__ = ["doubtful_words", "doubts_of"]

_BELOW = 0.5  # probability, as in the page's editor


def doubtful_words(text: str, words: Iterable[tuple[Span, float]]) -> tuple[Span, ...]:
    """The spans of the words below a probability of 0.5.

    Args:
        text: A translation.
        words: The span of each of its words, and its probability.

    Returns:
        Offsets as JavaScript counts, which takes some characters for two.
    """
    units = [0, *accumulate(1 + (letter > "\uffff") for letter in text)]
    return tuple(
        (units[start], units[end])
        for (start, end), probability in words
        if probability < _BELOW and any(map(str.isalnum, text[start:end]))
    )


def doubts_of(translation: Translation, translator: Translator) -> tuple[Span, ...]:
    """As `doubtful_words`, of a translation without the space around it.

    Args:
        translation: As `translator` has made it.
        translator: Its model.

    Returns:
        Offsets as JavaScript counts, in the stripped text.
    """
    before = len(translation.text) - len(translation.text.lstrip())
    words = translator.word_probabilities(translation)
    moved = (((start - before, end - before), probability) for (start, end), probability in words)
    return doubtful_words(translation.text.strip(), moved)
