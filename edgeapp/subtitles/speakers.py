"""Who says a cue: cues by speaker, and the name in formats of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

__all__ = ["by_speaker", "speaker_of", "with_speakers"]

T = TypeVar("T")


def speaker_of(cue: object) -> str:
    """The name of who says a cue or a segment; "" if that is not known."""
    name: str = getattr(cue, "speaker", "")
    return name


def by_speaker(cues: Iterable[T]) -> dict[str, list[T]]:
    """Cues by the name of their speaker, in the order of their first cues."""
    own: dict[str, list[T]] = {}
    for cue in cues:
        own.setdefault(speaker_of(cue), []).append(cue)
    return own


def with_speakers(cues: Iterable[T], *, voice_tags: bool = False) -> list[T]:
    """Cues whose text names their speaker; those without one as they are.

    Args:
        cues: Dataclasses with `text`, and `speaker` if it is known.
        voice_tags: WebVTT's `<v Anna>` instead of `Anna: `.
    """
    return [_named(cue, voice_tags) if speaker_of(cue) else cue for cue in cues]


def _named(cue: Any, voice_tags: bool) -> Any:
    name, text = " ".join(cue.speaker.split()), cue.text.strip()
    if not text:
        return cue
    if voice_tags:
        return replace(cue, text=f"<v {name.translate(_NOT_IN_TAGS)}>{text}")
    return replace(cue, text=f"{name}: {text}")


_NOT_IN_TAGS = dict.fromkeys(map(ord, "<>&"))
