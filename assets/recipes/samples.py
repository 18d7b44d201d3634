"""Make the sample recordings: our own sentences, spoken by flite and espeak-ng.

    python assets/recipes/samples.py --out assets/samples

Writes NAME.flac (16 kHz, mono), NAME.txt (one sentence a line) and NAME.tsv (start, end, sentence)
for each sample, or for those named with --only; for `story`, on which live captions are timed, also
story.words.tsv (start, end, word). Needs `apt-get install flite espeak-ng`. The sentences are
written for this project and in none of the training data; the voices are among those that the
bundled recognizer learned.
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
from word_times import Word
from word_times import speak as speak_words

RATE = 16_000
LEVEL = 0.6

Row = tuple[float, float, str]  # start, end, what is said; seconds


@dataclass(frozen=True)
class Sample:
    """Sentences and the pause before each, the last pause being the one after them all."""

    command: list[str] | None  # speaks {text} into {file}; None: espeak-ng, with word times
    sentences: list[str]
    pauses: list[float]


SLT = ["flite", "-voice", "slt", "-t", "{text}", "-o", "{file}"]
ESPEAK = ["espeak-ng", "-v", "en-us", "-s", "150", "-w", "{file}", "{text}"]

SAMPLES = {
    "talk": Sample(
        SLT,
        [
            "We bought a new house last year.",
            "It is near the river.",
            "I go to work by train every morning.",
            "My wife likes to read books in the evening.",
            "The garden is beautiful in the summer.",
            "The children come to see us every week.",
            "Sometimes we play games together.",
            "We hope to see you soon.",
            "You are always welcome here.",
        ],
        [0.4, 0.8, 0.9, 0.8, 0.9, 0.8, 0.9, 0.8, 0.9, 0.5],
    ),
    "question": Sample(SLT, ["Can you tell me when the next train to Boston leaves?"], [0.2, 0.4]),
    "digits": Sample(ESPEAK, ["Four one seven zero nine."], [0.2, 0.4]),
    "story": Sample(
        None,
        [
            "Yesterday I got up very early.",
            "It was cold outside, but the sun was shining.",
            "I made some tea and looked out my window.",
            "A small dog was sitting under a tree.",
            "I had never seen it before.",
            "It looked hungry, so I gave it some bread.",
            "Then my neighbor came home from work.",
            "He told me that he knew the dog.",
            "It belongs to an old woman who lives near our school.",
            "We walked to her house together.",
            "She was very happy to see us.",
            "She asked us to come inside and drink coffee with her.",
            "When we went home, it began to rain.",
            "I forgot my umbrella, but I was happy.",
            "Now the dog visits me every morning.",
            "My wife says that he likes me more than she does.",
            "I think she is right.",
        ],
        [0.5, 0.5, 0.8, 0.4, 0.7, 1.0, 0.5, 0.9, 0.6, 0.4, 0.8, 0.5, 0.7, 0.9, 0.4, 0.6, 0.8, 1.0],
    ),
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


def speak_timed(text: str) -> tuple[np.ndarray, list[Word]]:
    """As speak, by espeak-ng, and when each word is said."""
    spoken = speak_words(text)
    samples = soxr.resample(spoken.samples, spoken.rate, RATE)
    return samples * (LEVEL / np.abs(samples).max()), spoken.words


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.float32)


def make(sample: Sample) -> tuple[np.ndarray, list[Row], list[Row]]:
    """The recording, and when each sentence and, where that is known, each word is said."""
    parts, at, times, words = [silence(sample.pauses[0])], sample.pauses[0], [], []
    for sentence, pause in zip(sample.sentences, sample.pauses[1:], strict=True):
        if sample.command is None:
            speech, timed = speak_timed(sentence)
            words += [(at + word.start, at + word.end, word.text) for word in timed]
        else:
            speech = speak(sample.command, sentence)
        times.append((at, at + len(speech) / RATE, sentence))
        at = times[-1][1] + pause
        parts += [speech, silence(pause)]
    # A faint hiss, as every room has one.
    recording = np.concatenate(parts)
    hiss = np.random.default_rng(1).standard_normal(len(recording)) * 2e-4
    return (recording + hiss).astype(np.float32), times, words


def table(rows: list[Row]) -> str:
    return "".join(f"{start:.2f}\t{end:.2f}\t{text}\n" for start, end, text in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=SAMPLES, default=list(SAMPLES))
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    for name in tqdm(arguments.only, unit="sample"):
        sample = SAMPLES[name]
        recording, times, words = make(sample)
        soundfile.write(out / f"{name}.flac", recording, RATE, subtype="PCM_16")
        text = "".join(f"{sentence}\n" for sentence in sample.sentences)
        (out / f"{name}.txt").write_text(text, encoding="utf-8")
        (out / f"{name}.tsv").write_text(table(times), encoding="utf-8")
        if words:
            (out / f"{name}.words.tsv").write_text(table(words), encoding="utf-8")


if __name__ == "__main__":
    main()
