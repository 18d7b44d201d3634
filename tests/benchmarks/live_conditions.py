"""Live captions of English read by people, in rooms, by telephone, in noise.

    .venv/bin/python -m tests.benchmarks.live_conditions [--clips 7] [--conditions hall,clipped]
        [--results FILE]

The recordings of `tests.benchmarks.live_english`, changed as a whole; noise, echo and the second
voice have a seed. Beside the live captions: word errors of the same sound as a recording, and of
faster-whisper on the same weights (int8, one thread, greedy). With --results each condition is
appended to the file as it ends, and one that the file has is not measured again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from edgeapp.bench.word_lag import plain_words, word_errors
from pipelines import SAMPLE_RATE, LiveOptions, TranscribeOptions, Transcriber
from pipelines.asr import Samples
from tests.benchmarks.live_english import MODEL, clips, figures, listen, material, table
from tests.benchmarks.matrix.__main__ import Ways
from tests.benchmarks.matrix.sounds import ROWS, Change, at_peak, in_a_room

_SEED = 37
_COLUMNS = {
    "word errors": "live",
    "shown, median / 90 % / max": "shown",
    "final, median / 90 % / max": "final",
    "taken back per final word (with marks)": "taken back",
    "false stops": "false stops",
    "CPU s per s": "CPU s per s",
}
_OTHERS = {"offline": "default", "faster-whisper": "faster sequential"}


def _hall(samples: Samples, number: int) -> Samples:
    """A talker at the far end: 1.2 s until the echo is 60 dB down, which is 8 dB louder than what
    comes directly; noise 15 dB below."""
    peak = float(np.abs(samples).max())
    return in_a_room(samples, number, seconds=1.2, echo_db=8, noise_db=15, peak=peak)


def _clipped(samples: Samples, number: int) -> Samples:
    """A microphone that is 20 dB too loud."""
    clipped: Samples = np.clip(samples * (10 / np.abs(samples).max()), -1, 1).astype(np.float32)
    return clipped


def _two_voices(samples: Samples, number: int) -> Samples:
    """Another talker all the time, 10 dB below: the recordings from the last one to the first."""
    other = np.concatenate([clip.samples for clip in reversed(clips())])
    other = np.resize(other, len(samples))
    ratio = np.sqrt(np.mean(np.square(samples)) / np.mean(np.square(other)))
    mixed = samples + other * ratio * 10 ** (-10 / 20)
    scaled: Samples = (mixed / max(1.0, np.abs(mixed).max())).astype(np.float32)
    return scaled


CONDITIONS: dict[str, Change] = {
    "clean": ROWS["clean"][0],
    "telephone": ROWS["telephone"][0],
    "peak -50 dB": at_peak(-50),
    "noise 0 dB": ROWS["noise 0 dB"][0],
    "room": ROWS["reverberation"][0],
    "hall": _hall,
    "clipped": _clipped,
    "two voices": _two_voices,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clips", type=int, help="so many recordings only, the first ones")
    parser.add_argument("--conditions", default=",".join(CONDITIONS))
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    asked = arguments.conditions.split(",")
    if unknown := sorted({*asked} - {*CONDITIONS}):
        parser.error(f"no condition {', '.join(unknown)}; there are {', '.join(CONDITIONS)}")
    known: dict[str, dict[str, str]] = {}
    if arguments.results is not None and arguments.results.exists():
        for line in arguments.results.read_text(encoding="utf-8").splitlines():
            known |= json.loads(line)
    if missing := [name for name in asked if name not in known]:
        transcriber = Transcriber(MODEL, compute_type="int8", threads=1)
        own, ways = material(transcriber, _SEED, arguments.clips), Ways(MODEL, "int8")
        truth = plain_words(own.text)
        print(f"{len(truth)} words in {len(own.samples) / SAMPLE_RATE:.0f} s", flush=True)
        options = LiveOptions(transcribe=TranscribeOptions(language="en"))
        for name in missing:
            sound = CONDITIONS[name](own.samples, _SEED)
            found = figures(own, listen(transcriber, sound, options))
            row = {title: found[key] for key, title in _COLUMNS.items()}
            for title, way in _OTHERS.items():
                wrong = word_errors(truth, plain_words(ways(way, sound)))
                row[title] = f"{100 * wrong / len(truth):.1f} %"
            known[name] = row
            if arguments.results is not None:
                with arguments.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({name: row}) + "\n")
    print(table((name, known[name]) for name in asked))


if __name__ == "__main__":
    main()
