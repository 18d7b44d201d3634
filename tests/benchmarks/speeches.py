"""Long recordings with what is said in them: other people's sentences, spoken by espeak-ng and
flite with pauses between, for the benchmarks of live captions."""

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
LEVEL = 0.5  # of the loudest sample
HISS = 2e-4
# Sentences without figures and abbreviations, which are read otherwise than they are written.
SPEAKABLE = re.compile(r"[A-Z][a-z' ,A-Z-]+[.?!]")


@dataclass(frozen=True, eq=False)
class Speech:
    """samples: mono float32 at 16 kHz."""

    voice: str
    samples: Samples
    text: str


def speeches(words: int, seed: int = 1) -> list[Speech]:
    """One speech a voice, together at least so many words; always the same ones.

    From the test part of the sentence pairs, on which nothing was trained. Pauses last 0.3 to
    1.2 s. Needs espeak-ng and flite.
    """
    r = random.Random(seed)
    sentences = _sentences()
    r.shuffle(sentences)
    made = []
    for voice in VOICES:
        said: list[str] = []
        while sum(len(sentence.split()) for sentence in said) < words / len(VOICES):
            said.append(sentences.pop())
        pieces = [np.zeros(SAMPLE_RATE // 2, np.float32)]
        for sentence in said:
            pieces.append(_spoken(sentence, voice))
            pieces.append(np.zeros(int(r.uniform(0.3, 1.2) * SAMPLE_RATE), np.float32))
        samples = np.concatenate(pieces)
        hiss = np.random.default_rng(seed).standard_normal(len(samples)) * HISS
        made.append(Speech(voice, (samples + hiss).astype(np.float32), " ".join(said)))
    return made


def _sentences() -> list[str]:
    file = DATA / "tatoeba-eng-deu" / "test.tsv.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        english = dict.fromkeys(line.split("\t", 1)[0].strip() for line in lines)
    return [s for s in english if 15 <= len(s) <= 75 and SPEAKABLE.fullmatch(s)]


def _spoken(text: str, voice: str) -> Samples:
    """A sentence, cut to the speech itself."""
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
