"""Long synthetic recordings with their text: Tatoeba sentences spoken by espeak-ng and flite, with
pauses, for the benchmarks of recognition."""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples

__all__ = ["Speech", "VOICES", "speeches"]

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
VOICES = ("flite:slt", "espeak-ng:en-us", "flite:awb", "espeak-ng:en-gb", "espeak-ng:en-us+f3")
LEVEL = 0.5  # peak amplitude
HISS = 2e-4  # amplitude of the noise floor
# Sentences without figures and abbreviations, whose reading differs from their spelling.
SPEAKABLE = re.compile(r"[A-Z][a-z' ,A-Z-]+[.?!]")


@dataclass(frozen=True, eq=False)
class Speech:
    """A recording with its text.

    Attributes:
        voice: "PROGRAM:VOICE".
        samples: float32[samples], mono, 16 kHz.
        text: All of it.
        sentences: Each with its start and end (s).
    """

    voice: str
    samples: Samples
    text: str
    sentences: tuple[tuple[float, float, str], ...]


def speeches(words: int, seed: int = 1) -> list[Speech]:
    """One speech per voice, together at least `words` words; deterministic for a seed.

    The sentences are the test part of the sentence pairs, which no bundled model was trained on.
    Pauses last 0.3 to 1.2 s. Needs espeak-ng and flite.
    """
    r = random.Random(seed)
    sentences = _sentences()
    r.shuffle(sentences)
    made = []
    for voice in VOICES:
        said: list[str] = []
        while sum(len(sentence.split()) for sentence in said) < words / len(VOICES):
            said.append(sentences.pop())
        pieces, times = [np.zeros(SAMPLE_RATE // 2, np.float32)], []
        for sentence in said:
            start = sum(map(len, pieces))
            pieces.append(_spoken(sentence, voice))
            end = start + len(pieces[-1])
            times.append((start / SAMPLE_RATE, end / SAMPLE_RATE, sentence))
            pieces.append(np.zeros(int(r.uniform(0.3, 1.2) * SAMPLE_RATE), np.float32))
        samples = np.concatenate(pieces)
        hiss = np.random.default_rng(seed).standard_normal(len(samples)) * HISS
        samples = (samples + hiss).astype(np.float32)
        made.append(Speech(voice, samples, " ".join(said), tuple(times)))
    return made


def _sentences() -> list[str]:
    file = DATA / "tatoeba-eng-deu" / "test.tsv.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        english = dict.fromkeys(line.split("\t", 1)[0].strip() for line in lines)
    return [s for s in english if 15 <= len(s) <= 75 and SPEAKABLE.fullmatch(s)]


def _spoken(text: str, voice: str) -> Samples:
    """A spoken sentence without silence around it."""
    program, _, name = voice.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/speech.wav"
        command = {
            "flite": ["flite", "-voice", name, "-t", text, "-o", file],
            "espeak-ng": ["espeak-ng", "-v", name, "-s", "150", "-w", file, text],
        }[program]
        subprocess.run(command, check=True, timeout=60)
        samples, rate = soundfile.read(file, dtype="float32")
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    samples = samples[max(0, loud[0] - rate // 50) : loud[-1] + rate // 50]
    resampled: Samples = soxr.resample(samples, rate, SAMPLE_RATE)
    return resampled * (LEVEL / np.abs(resampled).max())
