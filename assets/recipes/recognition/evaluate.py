"""Word error rates of the bundled recognizer, heard the way the program hears.

    python assets/recipes/recognition/evaluate.py --data ../shared/data --speech DIR \
        --model assets/models/demo

Transcribes with pipelines.asr.Transcriber and its defaults, recording by recording:
sentences of the dev part by voices heard in training, and by two voices of flite that are held
out; strings of three to seven digits put together from recordings of two held-out people; people
reading (DATA/speech); and silence, noise and tones, where every character is one too many.
DIR/dev, DIR/rms and DIR/kal16 are made when they are not there (needs espeak-ng and flite).

Words are compared in lower case without punctuation (scoring.plain), nothing else normalised.
The table goes to the standard output, for assets/recipes/card.py; examples to the other one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scoring import error_rate, plain
from speak import RATE, Cast, save, sentences, utterances
from tqdm import tqdm
from windows import HELD_OUT_SPEAKERS, Digits, Utterances, noise

from pipelines.asr import Transcriber, load_audio

SPOKEN = {  # name → voice, what it is
    "dev": (None, "unseen sentences, seen voices (espeak-ng, flite slt and awb)"),
    "rms": ("rms", "unseen sentences, unseen voice flite rms"),
    "kal16": ("kal16", "unseen sentences, unseen voice flite kal16"),
}
SENTENCES, SENTENCE_SEED = 300, 7
DIGIT_STRINGS, DIGIT_SEED = 200, 11
NOTHING_SECONDS = 8
PAUSE = RATE // 2  # samples of silence around what was cut to the speech itself


@dataclass(frozen=True)
class Recording:
    text: str
    samples: np.ndarray  # float32, RATE


def spoken(name: str, data: Path, speech: Path, workers: int) -> list[Recording]:
    """One of SPOKEN, from what speak.py wrote, or made as it would."""
    path = speech / name
    if not path.with_suffix(".npy").exists():
        texts = sentences(data, "dev")[:SENTENCES]
        made = list(utterances(texts, SENTENCE_SEED, workers, 0.0, Cast(SPOKEN[name][0])))
        speech.mkdir(parents=True, exist_ok=True)
        save(path, made)
    items = Utterances([path]).items
    return [Recording(text, quiet_around(s.astype(np.float32) / 32768)) for s, text, _ in items]


def digits(data: Path) -> list[Recording]:
    """Strings of three to seven digits by people that the training never heard."""
    people = Digits.of_people(data / "digits/recordings.tar", HELD_OUT_SPEAKERS, held_out=True)
    r = random.Random(DIGIT_SEED)
    strings = [people.string(r, 3, 7) for _ in range(DIGIT_STRINGS)]
    return [Recording(text, quiet_around(samples)) for samples, text in strings]


def people(data: Path) -> list[Recording]:
    lines = (data / "speech/transcripts.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|", 1) for line in lines]
    return [Recording(text, load_audio(data / f"speech/{name}.flac")) for name, text in rows]


def quiet_around(samples: np.ndarray) -> np.ndarray:
    return np.pad(samples, PAUSE)


def nothing() -> Iterator[tuple[str, np.ndarray]]:
    """What holds no speech, loud and soft."""
    n, generator = NOTHING_SECONDS * RATE, np.random.default_rng(3)
    time = np.arange(n, dtype=np.float32) / RATE
    yield "digital silence", np.zeros(n, np.float32)
    for color in ("white", "pink", "brown"):
        for level in (0.0003, 0.003, 0.03, 0.2):
            yield f"{color} noise {level}", noise(n, color, generator) * level
    for pitch in (60, 220, 440, 1000, 3000):
        for level in (0.02, 0.3):
            yield f"tone {pitch} Hz {level}", np.sin(2 * np.pi * pitch * time) * level
    yield "sweep", 0.3 * np.sin(2 * np.pi * (100 + 200 * time) * time)
    yield "hum", sum(0.1 / k * np.sin(2 * np.pi * 50 * k * time) for k in range(1, 8))


def hear(transcriber: Transcriber, samples: np.ndarray) -> str:
    segments = transcriber.transcribe(samples.astype(np.float32), batch_size=1)
    return "".join(segment.text for segment in segments).strip()


def table(transcriber: Transcriber, arguments: argparse.Namespace) -> Iterator[str]:
    """The lines of a Markdown table, each when it is known."""
    sets = [
        (what, spoken(name, arguments.data, arguments.speech, arguments.threads))
        for name, (_, what) in SPOKEN.items()
    ]
    sets += [("strings of 3 to 7 digits, unseen people", digits(arguments.data))]
    sets += [("people reading (LJ Speech, a speech of 1961)", people(arguments.data))]
    yield "| what | recordings | words | word error rate |"
    yield "|---|---|---|---|"
    for what, recordings in sets:
        chosen = recordings[: arguments.count]
        bar = tqdm(chosen, unit="recording", desc=what, leave=False)
        heard = [hear(transcriber, recording.samples) for recording in bar]
        texts = [recording.text for recording in chosen]
        if arguments.show:
            for text, ours in list(zip(texts, heard, strict=True))[: arguments.show]:
                tqdm.write(f"    {text} → {ours}", file=sys.stderr)
        words = sum(len(plain(text).split()) for text in texts)
        yield f"| {what} | {len(chosen)} | {words} | {100 * error_rate(texts, heard):.1f} % |"
    empty = {name: hear(transcriber, samples) for name, samples in nothing()}
    letters = sum(map(len, empty.values()))
    yield f"| silence, noise, tones | {len(empty)} | 0 | {letters} characters |"
    for name, text in empty.items():
        if text:
            tqdm.write(f"    {name} → {text}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="holds tatoeba-eng-deu/, digits/ and speech/"
    )
    parser.add_argument("--speech", type=Path, required=True, help="holds dev, rms and kal16")
    parser.add_argument("--model", type=Path, required=True, help="what export.py wrote")
    parser.add_argument("--count", type=int, help="only so many recordings of each kind")
    parser.add_argument("--compute-type", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--show", type=int, default=2, help="examples of each kind to print")
    arguments = parser.parse_args()

    began = time.monotonic()
    transcriber = Transcriber(
        arguments.model, compute_type=arguments.compute_type, threads=arguments.threads
    )
    for line in table(transcriber, arguments):
        print(line, flush=True)
    print()
    print(
        f"Greedy with the usual fallback, {transcriber.model.compute_type} on the "
        f"{transcriber.engine.device}; words in lower case, without punctuation. "
        "Measured by `assets/recipes/recognition/evaluate.py`."
    )
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
