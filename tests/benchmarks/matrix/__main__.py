"""Word errors of recorded speech, in rows of forty utterances, in each way it is recognized.

    .venv/bin/python -m tests.benchmarks.matrix --results matrix.jsonl [--every 4] [--rows AAC]

Each result is appended to the file, and a run goes on where the last one stopped; delete the lines
of a way (or give it another --label) to measure it anew. Greedy, int8, one thread, the real Whisper
base of ../shared. faster-whisper has the same weights, greedy too.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgeapp.bench.word_lag import align, plain_words
from pipelines import Transcriber
from pipelines.asr import Samples, TranscribeOptions
from pipelines.asr.live.transcriber import LiveOptions
from tests.benchmarks.live_accuracy import live
from tests.benchmarks.matrix.sounds import ROWS, read_utterances, row_sounds
from tests.conftest import REPOSITORY

SHARED = REPOSITORY.parent / "shared"
WAYS = ("default", "windows", "live", "faster sequential", "faster batched")
_DRAWS = 2000  # of the bootstrap


@dataclass(frozen=True)
class Line:
    """A result.

    Attributes:
        row: The row of the matrix.
        number: Of the utterance.
        way: How it was recognized.
        words: How many words are said.
        wrong: Words to delete, insert or replace in what was written.
        invented: Those to delete.
        text: What was written.
    """

    row: str
    number: int
    way: str
    words: int
    wrong: int
    invented: int
    text: str


class Ways:
    """Recognizes speech in each way; models are loaded when they are first needed."""

    def __init__(self, folder: Path, compute_type: str) -> None:
        self._folder, self._compute_type = folder, compute_type
        self._ours = cache(lambda: Transcriber(folder, compute_type=compute_type, threads=1))
        self._theirs = cache(self._load_faster)
        self._batched = cache(self._load_batched)

    def __call__(self, way: str, samples: Samples) -> str:
        """Return the text of a recording."""
        hear: dict[str, Callable[[Samples], str]] = {
            "default": self._ours_of,
            "windows": lambda s: self._ours_of(s, batch_size=1),
            "live": lambda s: live(
                self._ours(), s, LiveOptions(transcribe=TranscribeOptions(language="en"))
            ),
            "faster sequential": lambda s: self._faster_of(self._theirs(), s),
            "faster batched": lambda s: self._faster_of(self._batched(), s, batch_size=8),
        }
        return hear[way](samples)

    def _ours_of(self, samples: Samples, **options: Any) -> str:
        return "".join(s.text for s in self._ours().transcribe(samples, language="en", **options))

    def _faster_of(self, model: Any, samples: Samples, **options: Any) -> str:
        segments, _ = model.transcribe(samples, language="en", beam_size=1, **options)
        return "".join(segment.text for segment in segments)

    def _load_faster(self) -> Any:
        from ctranslate2.converters import TransformersConverter
        from faster_whisper import WhisperModel

        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "base"
            copied = ["tokenizer.json", "preprocessor_config.json"]
            TransformersConverter(str(self._folder), copy_files=copied).convert(str(target))
            return WhisperModel(
                str(target), device="cpu", compute_type=self._compute_type, cpu_threads=1
            )

    def _load_batched(self) -> Any:
        from faster_whisper import BatchedInferencePipeline

        return BatchedInferencePipeline(self._theirs())


def compared(row: str, number: int, way: str, said: str, text: str) -> Line:
    """Return the result of one utterance."""
    reference, found = plain_words(said), plain_words(text)
    pairs = list(align(reference, found))
    wrong = sum(i is None or j is None or reference[i] != found[j] for i, j in pairs)
    invented = sum(i is None for i, _ in pairs)
    return Line(row, number, way, len(reference), wrong, invented, text.strip())


def interval(lines: Sequence[tuple[Line, Line]]) -> tuple[float, float, float]:
    """Return by how many points the first of each pair is worse in word errors, with the 95 %
    interval of that, by a paired bootstrap over the utterances."""
    words = np.array([a.words for a, _ in lines])
    worse = np.array([a.wrong - b.wrong for a, b in lines])
    drawn = np.random.default_rng(0).integers(0, len(lines), (_DRAWS, len(lines)))
    points = 100 * worse[drawn].sum(1) / words[drawn].sum(1)
    low, high = np.percentile(points, [2.5, 97.5])
    return 100 * worse.sum() / words.sum(), float(low), float(high)


def report(lines: Iterable[Line], ways: Sequence[str]) -> Iterable[str]:
    """Return the tables, as Markdown: word errors and invented words in percent of the words, and
    the default against each other way."""
    found: dict[str, dict[str, dict[int, Line]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        found[line.row][line.way][line.number] = line
        found["all"][line.way][1000 * list(ROWS).index(line.row) + line.number] = line
    yield f"| row | {' | '.join(ways)} |\n|---|{'--:|' * len(ways)}"
    for row in (*ROWS, "all"):
        cells = []
        for way in ways:
            each = found[row][way].values()
            words = sum(line.words for line in each)
            wrong, invented = sum(each.wrong for each in each), sum(e.invented for e in each)
            cells.append(
                f"{100 * wrong / words:.1f} ({100 * invented / words:.1f})" if words else "-"
            )
        yield f"| {row} | {' | '.join(cells)} |"
    first, *others = ways
    yield f"\n| {first} is worse by | {' | '.join(others)} |\n|---|{'--:|' * len(others)}"
    for row in (*ROWS, "all"):
        cells = []
        for way in others:
            ours, theirs = found[row][first], found[row][way]
            pairs = [(ours[n], theirs[n]) for n in sorted(ours.keys() & theirs.keys())]
            if not pairs:
                cells.append("-")
                continue
            points, low, high = interval(pairs)
            cells.append(f"{points:+.1f} ({low:+.1f} to {high:+.1f})")
        yield f"| {row} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, required=True, help="file of results, appended to")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS, metavar="ROW")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS, metavar="WAY")
    parser.add_argument("--every", type=int, default=1, help="only each Nth utterance")
    parser.add_argument("--label", default="", help="added to the names of EdgeApp's ways")
    parser.add_argument("--model", type=Path, default=SHARED / "models" / "whisper-base")
    parser.add_argument("--compute-type", default="int8")
    arguments = parser.parse_args()
    lines: list[Line] = []
    if arguments.results.exists():
        lines = [Line(**json.loads(each)) for each in arguments.results.read_text().splitlines()]
    done = {(line.row, line.number, line.way) for line in lines}
    utterances = read_utterances(SHARED / "data")
    numbers = range(0, len(utterances), arguments.every)
    hear = Ways(arguments.model, arguments.compute_type)
    labels = {w: w if w.startswith("faster") else w + arguments.label for w in arguments.ways}
    for row in arguments.rows:
        for utterance in row_sounds(row, utterances, numbers):
            for way, label in labels.items():
                if (row, utterance.number, label) in done:
                    continue
                text = hear(way, utterance.recording.samples)
                line = compared(row, utterance.number, label, utterance.recording.text, text)
                lines.append(line)
                with arguments.results.open("a") as file:
                    file.write(json.dumps(asdict(line)) + "\n")
    kept = [each for each in lines if each.row in arguments.rows]
    print("\n".join(report(kept, list(labels.values()))))


if __name__ == "__main__":
    main()
