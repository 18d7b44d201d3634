"""Speed of recognition with a draft model, against none: single windows, and whole recordings.

    python -m tests.benchmarks.drafter MODEL DRAFT_MODEL FILE... --markdown

Every window is decoded with and without the draft model in turns, as `Transcriber` decodes it
with timestamps. The tokens have to be equal. Times are medians over the turns of all windows
together: of decoding alone, without the encoder, and of whole recordings. Other programs make steps
slow by chance, so that drafting pauses by chance; with --never-pause it does not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import torch

from pipelines import SAMPLE_RATE, TranscribeOptions, Transcriber, load_audio
from pipelines.asr.audio.arrays import Samples
from pipelines.asr.audio.features import FileFeatures
from pipelines.asr.window import WindowSound
from pipelines.engine import (
    Drafter,
    EncodedSource,
    Engine,
    GenerationOptions,
    ModelDrafter,
)

COLUMNS = (
    "compute type", "threads", "what", "tokens", "accepted", "passes", "tokens/s", "with drafts",
    "CPU ms a token", "with drafts", "times as fast", "by CPU time",
)  # fmt: skip


@dataclass(frozen=True)
class Timing:
    """What one turn took.

    Attributes:
        wall_s: Seconds.
        cpu_s: CPU seconds of the process.
        tokens: The tokens of each window or segment.
    """

    wall_s: float
    cpu_s: float
    tokens: tuple[tuple[int, ...], ...]


def timed(work: Callable[[], tuple[tuple[int, ...], ...]]) -> Timing:
    """Run one turn."""
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = work()
    return Timing(time.perf_counter() - wall, time.process_time() - cpu, tokens)


class Pair:
    """A transcriber without drafts and one with them, on one engine."""

    def __init__(
        self,
        model: Path,
        draft_model: Path,
        compute_type: str,
        threads: int,
        language: str,
        never_pause: bool,
    ) -> None:
        self.engine = Engine(compute_type=compute_type, threads=threads)
        self.plain = Transcriber(model, engine=self.engine)
        self.drafted = Transcriber(model, engine=self.engine, draft_model=draft_model)
        self._language = language
        if never_pause:
            drafting = self.drafted._recognizer.drafting
            drafter_for = drafting.drafter_for

            def unpaused(encoded: EncodedSource, options: GenerationOptions) -> Drafter | None:
                drafter = drafter_for(encoded, options)
                return (
                    replace(drafter, pauses=False) if isinstance(drafter, ModelDrafter) else drafter
                )

            drafting.drafter_for = unpaused  # type: ignore[method-assign]

    def windows(self, recordings: Sequence[Samples]) -> list[EncodedSource]:
        """The whole windows of recordings, encoded for both models."""
        recognizer = self.drafted._recognizer
        bins, frames = recognizer.model.architecture.num_mel_bins, recognizer.window_frames
        length = int(recognizer.window_s * SAMPLE_RATE)
        found = []
        for samples in recordings:
            features = FileFeatures(samples, bins, frames)
            for start in range(0, len(samples), length):
                window, _ = features.window(start // 160)
                found += recognizer.drafting.encode([window])
        return found

    def decode(self, windows: Sequence[EncodedSource], drafts: bool) -> tuple[tuple[int, ...], ...]:
        """Decode encoded windows one after the other."""
        recognizer = (self.drafted if drafts else self.plain)._recognizer
        decoder = recognizer.window_decoder(self._language, TranscribeOptions(temperature=0.0))
        frames = recognizer.window_frames
        sounds = [WindowSound(window, frames, frames) for window in windows]
        return tuple(_finish(decoder.decode(sound, (), None)) for sound in sounds)

    def transcribe(
        self, recordings: Sequence[Samples], drafts: bool, batch_size: int
    ) -> tuple[tuple[int, ...], ...]:
        """Transcribe recordings."""
        transcriber = self.drafted if drafts else self.plain
        return tuple(
            segment.tokens
            for samples in recordings
            for segment in transcriber.transcribe(
                samples, language=self._language, temperature=0.0, batch_size=batch_size
            )
        )


def _finish(task: object) -> tuple[int, ...]:
    while True:
        try:
            next(task)  # type: ignore[call-overload]
        except StopIteration as end:
            return tuple(end.value.tokens)


def row(
    pair: Pair, what: str, turns: int, work: Callable[[bool], tuple[tuple[int, ...], ...]]
) -> list[str]:
    """Run both ways in turns; the figures after compute type and threads."""
    runs: dict[bool, list[Timing]] = {False: [], True: []}
    model, passes = pair.plain._recognizer.model, dict[bool, int]()
    for _ in range(turns + 1):  # the first one warms up
        for drafts in runs:
            before = model.statistics
            runs[drafts].append(timed(partial(work, drafts)))
            after = model.statistics
            passes[drafts] = after.steps - before.steps
    plain, drafted = (each[1:] for each in runs.values())
    if any(run.tokens != plain[0].tokens for run in [*plain, *drafted]):
        raise SystemExit(f"{what}: the tokens differ")
    tokens = sum(map(len, plain[0].tokens))
    accepted, proposed = after.accepted - before.accepted, after.drafted - before.drafted
    wall = [median(run.wall_s for run in each) for each in (plain, drafted)]
    cpu = [median(run.cpu_s for run in each) for each in (plain, drafted)]
    return [
        what,
        str(tokens),
        f"{accepted} of {proposed}",
        f"{passes[False]} → {passes[True]}",
        *(f"{tokens / each:.0f}" for each in wall),
        *(f"{1e3 * each / tokens:.2f}" for each in cpu),
        f"{wall[0] / wall[1]:.2f}",
        f"{cpu[0] / cpu[1]:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("draft_model", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--language", default="en")
    parser.add_argument("--compute-types", nargs="+", default=["int8", "float32"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--never-pause", action="store_true", help="draft also where it loses time")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    recordings = [load_audio(file) for file in arguments.files]
    lines = [list(COLUMNS)]
    for compute_type in arguments.compute_types:
        for threads in arguments.threads:
            torch.set_num_threads(threads)
            pair = Pair(
                arguments.model,
                arguments.draft_model,
                compute_type,
                threads,
                arguments.language,
                arguments.never_pause,
            )
            windows = pair.windows(recordings)
            works: dict[str, Callable[[bool], tuple[tuple[int, ...], ...]]] = {
                f"{len(windows)} windows, decoding alone": (
                    lambda drafts, pair=pair, windows=windows: pair.decode(windows, drafts)
                )
            }
            for size in arguments.batch_sizes:
                works[f"recordings, {size} at a time"] = lambda drafts, pair=pair, size=size: (
                    pair.transcribe(recordings, drafts, size)
                )
            for what, work in works.items():
                lines.append([compute_type, str(threads), *row(pair, what, arguments.turns, work)])
                print("  ".join(lines[-1]), flush=True)
            pair.engine.close()
    if arguments.markdown:
        print("| " + " | ".join(lines[0]) + " |\n" + "|---" * len(COLUMNS) + "|")
        for line in lines[1:]:
            print("| " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()
