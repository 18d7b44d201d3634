"""Words of a cue as they are stored, as JSON: with times and probabilities; of a translation, the
doubtful ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from pipelines import Word
    from pipelines.translation import Span

__all__ = [
    "SpokenCue", "TranslatedCue", "doubts_from_json", "words_from_json", "words_to_json",
]  # fmt: skip


@dataclass(frozen=True)
class SpokenCue(Cue):
    """A cue of the text, with its words.

    Attributes:
        words: The words, in order; empty where their times are not known.
    """

    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class TranslatedCue(Cue):
    """A cue of the translation.

    Attributes:
        doubts: Spans of the words of which the model is in doubt, as JavaScript counts characters.
    """

    doubts: tuple[Span, ...] = ()


def words_to_json(words: Iterable[Word]) -> str | None:
    """[text, start, end, probability] of each word; times in seconds. None without words."""
    rows = [
        (word.word, round(word.start, 2), round(word.end, 2), round(word.probability, 3))
        for word in words
    ]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")) if rows else None


def words_from_json(text: Any) -> tuple[Word, ...]:
    """The words; none if the text is damaged."""
    if not isinstance(text, str):
        return ()
    from pipelines import Word

    try:
        return tuple(
            Word(str(word), float(start), float(end), float(probability))
            for word, start, end, probability in json.loads(text)
        )
    except (ValueError, TypeError):
        return ()


def doubts_from_json(text: Any) -> tuple[Span, ...]:
    """The spans of doubtful words, as `json.dumps` wrote them; none if the text is damaged."""
    if not isinstance(text, str):
        return ()
    try:
        return tuple((int(start), int(end)) for start, end in json.loads(text))
    except (ValueError, TypeError, OverflowError):
        return ()
