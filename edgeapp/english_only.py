"""What is said of recognizers that understand English only, such as tiny.en.

They write English words for any language that they hear, without an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import TYPE_CHECKING

from edgeapp.exit_codes import pull_command

if TYPE_CHECKING:
    from pipelines import Segment, TranscribeOptions, Transcriber, Word

__all__ = ["HeardLanguage", "choosing_language", "english_only_note", "other_language_note"]

_BUNDLED = "demo"
# Mean log-probability of the tokens of a recording, below which its language is not English.
# Measured with tiny.en in chunks: thirteen recordings of English -0.20 to -0.39, one in several
# languages -0.63, one in German -1.18.
_LEAST_LOGPROB = -0.9
# The same for the words of live captions, whose probabilities are the means of their tokens'.
# Measured with tiny.en: nine recordings of English -0.06 to -0.31, others -0.83, German -1.07.
_LEAST_WORD_LOGPROB = -0.6
_LEAST_PROBABILITY = 1e-10  # its logarithm is finite
_LEAST_COUNT = 20  # of tokens or words: fewer may be unclear in English, too


def english_only_note(transcriber: Transcriber, language: str | None) -> str | None:
    """Return what to say before a recording is recognized, or None.

    Args:
        transcriber: The recognizer.
        language: The language that was given; None: it would be detected by other recognizers.
    """
    if language is not None or not _understands_english_only(transcriber):
        return None
    from pipelines.hub import RECOMMENDED_RECOGNIZER

    return (
        f"{transcriber.capabilities.name} understands English only; for other languages choose a "
        f"multilingual model, such as {RECOMMENDED_RECOGNIZER} "
        f"({pull_command(RECOMMENDED_RECOGNIZER)})"
    )


def other_language_note(
    transcriber: Transcriber, language: str | None, segments: Iterable[Segment]
) -> str | None:
    """Return what to say when a recording has been recognized, or None.

    Args:
        transcriber, language: As for `english_only_note`.
        segments: Those of the recording.
    """
    heard = HeardLanguage(transcriber, language)
    heard.add_segments(segments)
    return heard.note


class HeardLanguage:
    """Tells from the log-probabilities of a text whether its language was English.

    Args:
        transcriber, language: As for `english_only_note`.

    Attributes:
        first_note: What to say before anything is recognized, or None.
    """

    def __init__(self, transcriber: Transcriber, language: str | None) -> None:
        self.first_note = english_only_note(transcriber, language)
        self._name = transcriber.capabilities.name
        self._count = 0  # tokens or words
        self._above = 0.0  # sum of their log-probabilities, each above the least one

    def add_segments(self, segments: Iterable[Segment]) -> None:
        """Take note of recognized segments."""
        for segment in segments:
            count = len(segment.tokens)
            self._count += count
            self._above += count * (segment.avg_logprob - _LEAST_LOGPROB)

    def add_words(self, words: Iterable[Word]) -> None:
        """Take note of words of live captions."""
        for word in words:
            self._count += 1
            self._above += log(max(_LEAST_PROBABILITY, word.probability)) - _LEAST_WORD_LOGPROB

    @property
    def note(self) -> str | None:
        """What to say of the text so far, or None."""
        if self.first_note is None or self._count < _LEAST_COUNT or self._above >= 0:
            return None
        return (
            f"this sounds like another language than English, which is all that {self._name} "
            "understands"
        )


def _understands_english_only(transcriber: Transcriber) -> bool:
    """Return whether this is one of Whisper's models for English, and not the bundled one.

    The bundled one is used where it is named, for examples.
    """
    able = transcriber.capabilities
    return able.word_timestamps and not able.multilingual and able.name != _BUNDLED


def choosing_language(options: TranscribeOptions) -> str | None:
    """Return the code of the language by which a recognizer is chosen; None: any.

    Of several languages it is not English, which models for English alone know, too.
    """
    return options.language or next((code for code in options.languages if code != "en"), None)
