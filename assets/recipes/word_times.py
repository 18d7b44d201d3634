"""Speech by espeak-ng with the time of each word, which only its library tells, not its command.

Needs `apt-get install espeak-ng`, which brings libespeak-ng.so.1.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

__all__ = ["Spoken", "Word", "speak"]

LIBRARY = "libespeak-ng.so.1"
# From espeak-ng/speak_lib.h, as are the structure and the signatures below.
SYNCHRONOUS, BY_CHARACTER, UTF8 = 2, 1, 1
END_OF_EVENTS, WORD = 0, 1
SPEED = 1

LOUD = 0.01  # above this a sample is sound


@dataclass(frozen=True)
class Word:
    """start, end: seconds from the start of the audio."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, eq=False)
class Spoken:
    """samples: float32 [n], cut to the speech itself."""

    samples: np.ndarray
    rate: int
    words: list[Word]


class Event(ctypes.Structure):
    """espeak_EVENT. text_position counts characters from 1; sample counts from the start."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(Event)
)


def speak(text: str, voice: str = "en-us", words_per_minute: int = 150) -> Spoken:
    """One sentence. A word lasts until its sound ends, at most until the next one begins.

    Raises RuntimeError for words that espeak-ng runs together ("in the", "there are"): when the
    second one begins it does not tell.
    """
    pieces: list[np.ndarray] = []
    begins: dict[int, int] = {}  # character → sample

    def take(audio: object, count: int, events: object) -> int:
        if audio:
            pieces.append(np.ctypeslib.as_array(audio, (count,)).copy())
        index = 0
        while events[index].type != END_OF_EVENTS:
            if events[index].type == WORD:
                begins[events[index].text_position - 1] = events[index].sample
            index += 1
        return 0

    rate = _synthesise(text, voice, words_per_minute, Callback(take))
    samples = np.concatenate(pieces).astype(np.float32) / 32768
    loud = np.flatnonzero(np.abs(samples) > LOUD)
    first, stop = max(0, loud[0] - rate // 50), loud[-1] + rate // 50
    words, at = [], 0
    starts = [*sorted(begins.values())[1:], len(samples)]
    for word in text.split():
        at = text.index(word, at)
        if at not in begins:
            raise RuntimeError(f"espeak-ng does not tell where {word!r} begins in {text!r}")
        start = begins[at]
        following = next(sample for sample in starts if sample > start)
        end = loud[np.searchsorted(loud, following) - 1]
        words.append(Word(max(0, start - first) / rate, (end - first) / rate, word))
        at += len(word)
    return Spoken(samples[first:stop], rate, words)


def _synthesise(text: str, voice: str, words_per_minute: int, callback: object) -> int:
    """Speak into the callback; the sample rate."""
    library = ctypes.CDLL(LIBRARY)
    rate = library.espeak_Initialize(SYNCHRONOUS, 0, None, 0)
    if rate <= 0 or library.espeak_SetVoiceByName(voice.encode()):
        raise RuntimeError(f"espeak-ng has no voice {voice}")
    library.espeak_SetParameter(SPEED, words_per_minute, 0)
    library.espeak_SetSynthCallback(callback)
    data = text.encode()
    size = ctypes.c_size_t(len(data) + 1)
    if library.espeak_Synth(data, size, 0, BY_CHARACTER, 0, UTF8, None, None):
        raise RuntimeError(f"espeak-ng cannot speak {text!r}")
    library.espeak_Synchronize()
    return int(rate)
