"""Make the sample recordings: our own sentences, spoken by flite and espeak-ng.

    python assets/recipes/samples.py --out assets/samples

Writes NAME.flac (16 kHz, mono), NAME.txt (one sentence a line) and NAME.tsv (start, end, sentence)
for each sample. Needs `apt-get install flite espeak-ng`. The sentences are written for this project
and in none of the training data; the voices are among those that the bundled recogniser learned.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from tqdm import tqdm

RATE = 16_000
LEVEL = 0.6


@dataclass(frozen=True)
class Sample:
    """Sentences and the pause before each, the last pause being the one after them all."""

    command: list[str]  # speaks {text} into {file}
    sentences: list[str]
    pauses: list[float]


SLT = ["flite", "-voice", "slt", "-t", "{text}", "-o", "{file}"]
ESPEAK = ["espeak-ng", "-v", "en-us", "-s", "150", "-w", "{file}", "{text}"]

SAMPLES = {
    "talk": Sample(
        SLT,
        [
            "Good morning, dear friends.",
            "I want to tell you about our new house.",
            "It is not very big, but it has a beautiful garden.",
            "My wife likes to read under the old tree.",
            "Every Sunday our children come to visit us.",
            "We drink coffee and talk about the week.",
            "Would you like to see it some day?",
            "You are always welcome here.",
        ],
        [0.4, 0.7, 0.8, 0.9, 0.7, 0.6, 1.0, 0.6, 0.5],
    ),
    "question": Sample(SLT, ["Can you tell me when the next train to Boston leaves?"], [0.2, 0.4]),
    "digits": Sample(ESPEAK, ["Four one seven zero nine."], [0.2, 0.4]),
}


def speak(command: list[str], text: str) -> np.ndarray:
    """One sentence at RATE, cut to the speech itself."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/speech.wav"
        subprocess.run([part.format(text=text, file=file) for part in command], check=True)
        samples, rate = soundfile.read(file, dtype="float32")
    samples = soxr.resample(samples, rate, RATE)
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    samples = samples[max(0, loud[0] - RATE // 50) : loud[-1] + RATE // 50]
    return samples * (LEVEL / np.abs(samples).max())


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.float32)


def make(sample: Sample) -> tuple[np.ndarray, list[tuple[float, float, str]]]:
    """The recording, and (start, end, sentence) of each sentence in seconds."""
    parts, at, times = [silence(sample.pauses[0])], sample.pauses[0], []
    for sentence, pause in zip(sample.sentences, sample.pauses[1:], strict=True):
        speech = speak(sample.command, sentence)
        times.append((at, at + len(speech) / RATE, sentence))
        at = times[-1][1] + pause
        parts += [speech, silence(pause)]
    # A faint hiss, as every room has one.
    recording = np.concatenate(parts)
    hiss = np.random.default_rng(1).standard_normal(len(recording)) * 2e-4
    return (recording + hiss).astype(np.float32), times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, sample in tqdm(SAMPLES.items(), unit="sample"):
        recording, times = make(sample)
        soundfile.write(out / f"{name}.flac", recording, RATE, subtype="PCM_16")
        text = "".join(f"{sentence}\n" for sentence in sample.sentences)
        (out / f"{name}.txt").write_text(text, encoding="utf-8")
        rows = "".join(f"{start:.2f}\t{end:.2f}\t{sentence}\n" for start, end, sentence in times)
        (out / f"{name}.tsv").write_text(rows, encoding="utf-8")


if __name__ == "__main__":
    main()
