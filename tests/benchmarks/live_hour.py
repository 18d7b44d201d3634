"""An hour of speech through a live session: CPU time and memory must not grow.

    .venv/bin/python -m tests.benchmarks.live_hour [--minutes 60] [--model demo] [--translate-to de]

The same five minutes (sentences of ../shared/data, five voices) repeated in one session, as
fast as possible. For each five minutes: CPU seconds per second of audio, and resident memory
afterwards. Last, five minutes of silence.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgeapp.bench.machine import machine
from edgeapp.bench.word_lag import plain_words, word_errors
from edgeapp.live.session import LiveSession
from edgeapp.live.sources import FileSource
from edgeapp.live.speech_channel import SpeechChannel
from edgeapp.priorities import Priority
from pipelines.asr import Transcriber
from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.live.events import CommittedText
from pipelines.asr.live.transcriber import LiveOptions, LiveTranscriber
from pipelines.engine import Engine
from pipelines.hub import choose_default
from pipelines.translation import TranslateOptions, Translator
from pipelines.translation.live import LiveTranslator
from tests.benchmarks.speeches import speeches

ROUND_S = 300.0


class Hour:
    """An audio source that repeats a recording; `done` counts the finished repetitions."""

    waiting_s = 0.0

    def __init__(self, samples: Samples, rounds: int) -> None:
        self._samples, self._left = samples, rounds
        self._feed = FileSource(samples, 0)
        self.done = 0

    def read(self, wait_s: float) -> Samples | None:
        block = self._feed.read(wait_s)
        if block is None:
            self.done += 1
            if self.done < self._left:
                self._feed = FileSource(self._samples, 0)
                return self._feed.read(wait_s)
        return block

    def stop(self) -> None:
        self._left = 0


def size_mb() -> float:
    """Resident memory of the process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def session(arguments: argparse.Namespace) -> LiveSession:
    engine = Engine(compute_type=arguments.compute_type, threads=arguments.threads)
    recognizer = LiveTranscriber(
        Transcriber(arguments.model, engine=engine), LiveOptions(policy=arguments.policy)
    )
    translator = None
    if arguments.translate_to:
        found = choose_default("translation", "en", arguments.translate_to)
        translator = LiveTranslator(
            Translator(found.folder, engine=engine),
            TranslateOptions(priority=Priority.LIVE_TRANSLATION),
        )
    return LiveSession(SpeechChannel(recognizer, translator))


def rounds_of(hour: Hour, live: LiveSession) -> Iterator[tuple[str, float, float]]:
    """(text, CPU seconds, wall seconds) of each round."""
    text, done, cpu, wall = "", 0, time.process_time(), time.perf_counter()
    for event in live.run(hour):
        if isinstance(event, CommittedText):
            text += event.text
        if hour.done > done:
            yield text, time.process_time() - cpu, time.perf_counter() - wall
            text, done, cpu, wall = "", hour.done, time.process_time(), time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--policy", default="agreement")
    parser.add_argument("--translate-to")
    parser.add_argument("--compute-type", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    spoken = speeches(700)
    samples = np.concatenate([speech.samples for speech in spoken])
    samples = np.resize(samples, int(ROUND_S * SAMPLE_RATE))
    reference = plain_words(" ".join(speech.text for speech in spoken))
    live = session(arguments)
    hour = Hour(samples, max(1, round(arguments.minutes * 60 / ROUND_S)))
    print(machine("edgeapp", "torch"))
    print("| minutes | CPU s a second | real-time factor | size, MB | words | word errors |")
    print("|--:|--:|--:|--:|--:|--:|")
    for number, (text, cpu, wall) in enumerate(rounds_of(hour, live), start=1):
        words = plain_words(text)
        wrong = 100 * word_errors(reference, words) / len(reference)
        print(
            f"| {number * ROUND_S / 60:.0f} | {cpu / ROUND_S:.3f} | {wall / ROUND_S:.3f} "
            f"| {size_mb():.0f} | {len(words)} | {wrong:.0f} % |",
            flush=True,
        )
    quiet = np.random.default_rng(1).standard_normal(len(samples)).astype(np.float32) * 1e-3
    ((text, cpu, wall),) = rounds_of(Hour(quiet, 1), session(arguments))
    print(f"| silence | {cpu / ROUND_S:.3f} | {wall / ROUND_S:.3f} | – | 0 | |")
    assert not text, text


if __name__ == "__main__":
    main()
