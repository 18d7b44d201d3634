"""What `--correct` gains and costs: word errors and CPU time of live captions with and without it.

    .venv/bin/python -m tests.benchmarks.live_correction [--sounds room clipped] [--versions 4]

Five recordings of LJ Speech, 41 s, as they are, in a room (0.8 s until the echo is 60 dB down,
direct sound 5 dB below it, noise at -20 dB), amplified by 30 dB and clipped, and the recorded room
of ../shared/data/live. Each is heard in versions that sound alike (mirrored, 1 dB louder, 1 dB
softer), of which the mean is shown, because one alone is a matter of chance. Ways alternate.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from edgeapp.bench.word_lag import plain_words, word_errors
from pipelines import (
    SAMPLE_RATE,
    CommittedText,
    LiveOptions,
    LiveTranscriber,
    TranscribeOptions,
    Transcriber,
    load_audio,
)
from pipelines.asr import CorrectionDue, Samples
from tests.benchmarks.live_english import BLOCK, DATA, MODEL
from tests.benchmarks.matrix.sounds import in_a_room

SOUNDS = ("clean", "room", "clipped", "recorded room")
GAINS = (1.0, -1.0, 10 ** (1 / 20), 10 ** (-1 / 20))
_PAUSE_S = 0.7


def sound(name: str, count: int | None = None) -> tuple[Samples, str]:
    """A sound and its true text; count: of the recordings, the first ones."""
    if name == "recorded room":
        path = DATA / "live" / "reverb.flac"
        return load_audio(path), path.with_suffix(".txt").read_text(encoding="utf-8")
    lines = (DATA / "speech" / "transcripts.txt").read_text(encoding="utf-8").splitlines()
    texts = dict(line.split("|", 1) for line in lines)
    names = [each for each in texts if each.startswith("LJ")][:count]
    pause = np.zeros(round(_PAUSE_S * SAMPLE_RATE), np.float32)
    parts = [x for each in names for x in (load_audio(DATA / "speech" / f"{each}.flac"), pause)]
    clean = np.concatenate([pause, *parts, pause])
    changed = {"clean": lambda x: x, "room": _in_a_room, "clipped": _clipped}[name](clean)
    return changed, " ".join(texts[each] for each in names)


def _clipped(samples: Samples) -> Samples:
    clipped: Samples = np.clip(samples * np.float32(10 ** (30 / 20)), -1, 1) * np.float32(0.5)
    return clipped


def _in_a_room(samples: Samples) -> Samples:
    return in_a_room(samples, 37, seconds=0.8, echo_db=5, noise_db=20, peak=0.5)


def heard(
    transcriber: Transcriber, samples: Samples, options: LiveOptions, *, show: bool = False
) -> tuple[str, float]:
    """The text of a session, and the CPU seconds that it took."""
    live, texts = LiveTranscriber(transcriber, options), list[CommittedText]()
    began = time.process_time()
    for at in range(0, len(samples) + BLOCK, BLOCK):
        block = samples[at : at + BLOCK]
        for event in live.feed(block) if len(block) else live.finish():
            if isinstance(event, CommittedText):
                texts.append(event)
            elif isinstance(event, CorrectionDue) and (new := live.correct(event)) is not None:
                if show:
                    print(f"    {event.text.strip()}\n  → {new.text.strip()}")
                before = [each for each in texts if each.end <= new.start]
                texts = [*before, CommittedText(new.text, new.start, new.end)]
    return "".join(each.text for each in texts), time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sounds", nargs="+", choices=SOUNDS, default=SOUNDS)
    parser.add_argument("--clips", type=int, help="so many recordings only, the first ones")
    parser.add_argument("--versions", type=int, default=1, help="of each sound, 4 at most")
    parser.add_argument("--show", action="store_true", help="print what is replaced")
    arguments = parser.parse_args()
    transcriber = Transcriber(arguments.model, threads=arguments.threads)
    plain = LiveOptions(transcribe=TranscribeOptions(language="en"))
    ways = {"live": plain, "corrected": replace(plain, correct=True)}
    heard(transcriber, sound("clean", 1)[0][: 3 * SAMPLE_RATE], ways["corrected"])
    print("| sound | errors, live | corrected | CPU s per s, live | corrected | ratio |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in arguments.sounds:
        samples, text = sound(name, arguments.clips)
        truth = plain_words(text)
        errors, cpu_s = dict.fromkeys(ways, 0), dict.fromkeys(ways, 0.0)
        for gain in GAINS[: arguments.versions]:
            for way, options in ways.items():
                version = samples * np.float32(gain)
                said, seconds = heard(transcriber, version, options, show=arguments.show)
                errors[way] += word_errors(truth, plain_words(said))
                cpu_s[way] += seconds
        count = arguments.versions
        rates = [f"{100 * errors[way] / count / len(truth):.1f} %" for way in ways]
        length_s = len(samples) / SAMPLE_RATE * count
        costs = [f"{cpu_s[way] / length_s:.3f}" for way in ways]
        ratio = f"{cpu_s['corrected'] / cpu_s['live']:.2f}"
        print(f"| {' | '.join([name, *rates, *costs, ratio])} |", flush=True)


if __name__ == "__main__":
    main()
