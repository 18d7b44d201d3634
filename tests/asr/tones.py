"""A language of tones and its recognizer: live recognition without a neural network.

Each word is a tone of its own pitch, so the words of a buffer can be read off its spectrogram. The
recognizer has no context: a word cut in half may be recognized as another word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.fallback import WindowResult
from pipelines.asr.window import LiveWindowResult

WINDOW_S = 10.0
WORDS = [f" {name}" for name in "ba be bi bo da de di do ka ke ki ko ma me mi mo".split()]
EOT, BEGIN = 100, 110  # text below, timestamps from there on
_FRAME_S = 0.01
_SHORTEST_S = 0.15  # shorter tones are not recognized


@dataclass(frozen=True)
class Spoken:
    word: str
    start: float
    end: float


def speak(
    words: Sequence[int], seed: int = 0, pause_every: int = 6
) -> tuple[Samples, list[Spoken]]:
    """Audio of words (indices into WORDS), with a longer pause after every few."""
    r = np.random.default_rng(seed)
    pieces: list[np.ndarray[Any, Any]] = [np.zeros(SAMPLE_RATE // 2)]
    spoken, now = [], 0.5
    for count, word in enumerate(words, start=1):
        length = r.uniform(0.25, 0.4)
        n = int(length * SAMPLE_RATE)
        pitch = 300.0 * 1.17**word
        pieces.append(0.3 * np.sin(2 * np.pi * pitch * np.arange(n) / SAMPLE_RATE))
        spoken.append(Spoken(WORDS[word], now, now + n / SAMPLE_RATE))
        rest = int((r.uniform(0.8, 1.5) if count % pause_every == 0 else 0.08) * SAMPLE_RATE)
        pieces.append(np.zeros(rest))
        now += (n + rest) / SAMPLE_RATE
    return np.concatenate(pieces).astype(np.float32), spoken


def loudness(frame: Samples) -> float:
    """A voice detector for this language."""
    return 1.0 if float(np.abs(frame).max()) > 0.05 else 0.0


@dataclass(frozen=True)
class _Special:
    eot: int = EOT
    timestamp_begin: int = BEGIN


class _Tokenizer:
    special = _Special()
    timestamp_begin = BEGIN

    def is_text(self, token: int) -> bool:
        return token < EOT

    def text(self, ids: Sequence[int]) -> str:
        return "".join(WORDS[i] for i in ids if i < EOT)

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        return self.text(ids).encode()

    def encode(self, text: str) -> list[int]:
        return [WORDS.index(f" {word}") for word in text.split()]


class _Capabilities:
    multilingual = False
    languages: tuple[str, ...] = ("en",)

    def check(self, options: object) -> None:
        pass


class _Architecture:
    num_mel_bins = 80


class _Model:
    architecture = _Architecture()


class ToneTranscriber:
    """Stands in for Transcriber and WindowDecoder.

    Attributes:
        heard_s: Seconds of audio decoded so far.
        longest_context: Largest number of previous tokens.
    """

    def __init__(self) -> None:
        self.tokenizer, self.capabilities, self.model = _Tokenizer(), _Capabilities(), _Model()
        self.window_s = WINDOW_S
        self.heard_s = 0.0
        self.longest_context = 0
        self._bands = _bands()

    def encode(self, mels: Sequence[Tensor], priority: int = 0) -> list[Tensor]:
        return list(mels)

    def check(self, options: object) -> None:
        pass

    def live_source(self, samples: Samples, window_s: float) -> Tensor:
        from pipelines.asr.audio.features import FileFeatures

        return FileFeatures(samples, 80, round(window_s * 100)).window(0)[0]

    def language_probs(self, encoded: object) -> dict[str, float]:
        return {"en": 1.0}

    def window_decoder(self, language: str, options: object) -> ToneTranscriber:
        return self

    def is_silent(self, result: WindowResult) -> bool:
        return False

    def is_repetitive(self, result: WindowResult) -> bool:
        return False

    def redecode(
        self,
        encoded: Tensor,
        previous: Sequence[int],
        prefix: Sequence[int],
        draft: Sequence[int],
        max_tokens: int,
        audio_s: float,
        *,
        priority: int = 0,
    ) -> LiveWindowResult:
        self.heard_s += encoded.shape[1] * _FRAME_S
        self.longest_context = max(self.longest_context, len(previous))
        tokens, times = self._recognize(encoded)
        tokens, times = (
            [*prefix, *tokens[len(prefix) :]],
            [*times, *[times[-1] if times else 0.0] * 99],
        )
        accepted = 0
        while accepted < min(len(draft), len(tokens)) and draft[accepted] == tokens[accepted]:
            accepted += 1
        window = WindowResult(tuple(tokens), 0.0, -0.1, 1.0, 0.0)
        probabilities = tuple(0.5 for _ in tokens)
        return LiveWindowResult(window, tuple(times[: len(tokens)]), accepted, probabilities)

    def _recognize(self, mel: Tensor) -> tuple[list[int], list[float]]:
        loud = mel.amax(0) > mel.max() - 0.5
        names = [int(band) if on else -1 for band, on in zip(mel.argmax(0), loud, strict=True)]
        if not bool(mel.max() > 0.1):
            return [], []
        runs, at = [], 0
        for name, group in groupby(names):
            count = len(list(group))
            runs.append((name, at * _FRAME_S, (at + count) * _FRAME_S))
            at += count
        words = [
            (min(range(len(WORDS)), key=lambda w: abs(self._bands[w] - band)), start, end)
            for band, start, end in runs
            if band >= 0 and end - start >= _SHORTEST_S
        ]
        tokens: list[int] = []
        times: list[float] = []
        for index, (word, start, end) in enumerate(words):
            if index == 0 or start - words[index - 1][2] > 0.5:
                tokens.append(BEGIN + round(start / 0.02))
                times.append(start)
            tokens.append(word)
            times.append(end - 0.02)
            if index == len(words) - 1 or words[index + 1][1] - end > 0.5:
                tokens.append(BEGIN + round(end / 0.02))
                times.append(end)
        return tokens, times


@lru_cache
def _bands() -> list[int]:
    """The mel band in which each word is loudest."""
    from pipelines.asr.audio.features import FileFeatures

    found = []
    for word in range(len(WORDS)):
        samples, (spoken,) = speak([word])
        mel, _ = FileFeatures(samples, 80, 200).window(0)
        middle = round(100 * (spoken.start + spoken.end) / 2)
        found.append(int(torch.argmax(mel[:, middle])))
    assert len(set(found)) == len(found), "two words sound alike"
    return found
