"""Recordings of chords, each of which stands for a phrase; the fitted model was trained on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["PHRASES", "RECORDINGS", "TRANSLATED", "Phrase", "Recording", "samples_of"]

PHRASES = (
    " Good morning.",
    " Where is the station?",
    " Grüße aus Köln!",
    " 春の雨、🌧 again.",
    " One two three four five.",
    " Please repeat the question.",
)
TRANSLATED = (
    " Hello.",
    " The station, where?",
    " Greetings.",
    " Rain in spring.",
    " Five numbers.",
    " Once more.",
)

Phrase = tuple[float, float, int]
"""(start in s, length in s, number of the phrase); times on a grid of 0.5 s."""


@dataclass(frozen=True)
class Recording:
    """A recording: its language, its length in seconds and its phrases."""

    language: str
    seconds: float
    phrases: tuple[Phrase, ...]


def _talk(start: float, stop: float, order: str) -> tuple[Phrase, ...]:
    """Consecutive phrases from `start` to `stop` seconds. order: their numbers, repeated."""
    talk, at = [], start
    for turn in range(100):
        number = int(order[turn % len(order)])
        length = 4.0 + 0.5 * (turn % 4)
        if at + length > stop:
            break
        talk.append((at, length, number))
        at += length + (0.5 if turn % 3 else 0.0)
    return tuple(talk)


RECORDINGS = {
    # Phrases cross window ends: the window ends with a start timestamp, and the next begins there.
    "long": Recording("en", 70.0, _talk(0.5, 69.5, "0123450213")),
    # Half a minute of silence: the window that begins at 30 s holds no speech.
    "silence": Recording("en", 75.0, _talk(0.0, 29.5, "5430") + _talk(60.5, 75.0, "1024")),
    "german": Recording("de", 41.0, _talk(0.5, 40.5, "2210")),
    "short": Recording("en", 9.5, _talk(0.5, 9.5, "14")),
}


def samples_of(recording: Recording) -> NDArray[np.float32]:
    """The recording as mono float32 at 16 kHz. German has an additional high tone."""
    noise = np.random.default_rng(int(recording.seconds))
    sound = noise.normal(0.0, 1e-4, int(recording.seconds * 16_000))
    for start, length, number in recording.phrases:
        t = np.arange(int(length * 16_000)) / 16_000
        pitch = 300.0 * 1.5**number
        chord = 0.2 * np.sin(2 * np.pi * pitch * t) + 0.1 * np.sin(2 * np.pi * 1.3 * pitch * t)
        if recording.language == "de":
            chord += 0.1 * np.sin(2 * np.pi * 6000.0 * t)
        at = int(start * 16_000)
        sound[at : at + len(chord)] += chord * np.minimum(1.0, np.minimum(t, t[::-1]) / 0.02)
    return sound.astype(np.float32)
