"""What is said of recognizers that understand English only, such as tiny.en.

They write English words for any language that they hear, without an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeapp.exit_codes import pull_command

if TYPE_CHECKING:
    from pipelines import Segment, Transcriber

__all__ = ["english_only_note", "other_language_note"]

_BUNDLED = "demo"
# Mean log-probability of the tokens of a recording, below which its language is not English.
# Measured with tiny.en in chunks: thirteen recordings of English -0.20 to -0.39, one in several
# languages -0.63, one in German -1.18.
_LEAST_LOGPROB = -0.9
_LEAST_TOKENS = 20  # fewer may be unclear in English, too


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
    transcriber: Transcriber, language: str | None, segments: Sequence[Segment]
) -> str | None:
    """Return what to say when a recording has been recognized, or None.

    Args:
        transcriber, language: As for `english_only_note`.
        segments: Those of the recording.
    """
    if language is not None or not _understands_english_only(transcriber):
        return None
    tokens = sum(len(segment.tokens) for segment in segments)
    total = sum(segment.avg_logprob * len(segment.tokens) for segment in segments)
    if tokens < _LEAST_TOKENS or total >= _LEAST_LOGPROB * tokens:
        return None
    name = transcriber.capabilities.name
    return f"this sounds like another language than English, which is all that {name} understands"


def _understands_english_only(transcriber: Transcriber) -> bool:
    """Return whether this is one of Whisper's models for English, and not the bundled one.

    The bundled one is used where it is named, for examples.
    """
    able = transcriber.capabilities
    return able.word_timestamps and not able.multilingual and able.name != _BUNDLED
