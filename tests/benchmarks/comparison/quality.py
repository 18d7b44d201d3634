"""Loss of quality by precision: word error rate and BLEU of the bundled models vs float32."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from edgeapp.bench.word_lag import plain_words, word_errors
from pipelines.asr import Transcriber, load_audio
from pipelines.asr.audio.arrays import Samples
from pipelines.engine import Engine
from pipelines.hub import assets_folder, bundled_folder
from pipelines.translation import Translator

__all__ = ["TARGET", "Cost", "quality"]

TARGET = 0.3  # maximum loss against float32, in points
_PRECISIONS = ("float32", "auto", "int8", "bfloat16", "float16")
_DIGITS = "zero one two three four five six seven eight nine".split()
_TEST_TAKES = range(5)  # of each digit and speaker: the official test part


@dataclass(frozen=True)
class Cost:
    """The quality of one bundled model in one precision.

    Attributes:
        model: Name of the model.
        measure: "word error rate, %" or "BLEU".
        compute_type: The precision.
        value: The quality in `measure`.
        worse: Loss against float32, in points; above 0 is worse.
        over: The test data.
    """

    model: str
    measure: str
    compute_type: str
    value: float
    worse: float
    over: str


def quality(
    data: Path | None, device: str, threads: int | Literal["auto"], said: Callable[[str], None]
) -> list[Cost]:
    """Measure both bundled models in every precision.

    Args:
        data: A folder with digits/recordings.tar and tatoeba-eng-deu/. None measures only the
            bundled recordings: no reference translations are bundled.
        device: Device of the engine.
        threads: Threads of the engine.
        said: Receives progress messages.
    """
    recordings = list(_recordings(data))
    pairs = _pairs(data)
    costs: list[Cost] = []
    for compute_type in _PRECISIONS:
        said(f"quality of {compute_type}")
        with Engine(device=device, compute_type=compute_type, threads=threads) as engine:
            error_rate = _word_error_rate(engine, recordings)
            words = sum(len(reference) for _, reference in recordings)
            over = f"{words} words in {len(recordings)} recordings"
            _add(costs, Cost("demo", "word error rate, %", compute_type, error_rate, 0.0, over))
            if pairs:
                over = f"{len(pairs)} sentences"
                bleu = _bleu(engine, pairs)
                _add(costs, Cost("demo-en-de", "BLEU", compute_type, bleu, 0.0, over))
    return sorted(costs, key=lambda cost: cost.model)


def _add(costs: list[Cost], cost: Cost) -> None:
    exact = next((each for each in costs if each.model == cost.model), cost)
    worse = cost.value - exact.value if cost.model == "demo" else exact.value - cost.value
    costs.append(Cost(cost.model, cost.measure, cost.compute_type, cost.value, worse, cost.over))


def _word_error_rate(engine: Engine, recordings: Sequence[tuple[Samples, list[str]]]) -> float:
    """In percent, over all recordings."""
    transcriber = Transcriber(bundled_folder("demo"), engine=engine)
    errors = 0
    for samples, reference in recordings:
        segments = transcriber.transcribe(samples, batch_size=1)
        text = " ".join(segment.text for segment in segments)
        errors += word_errors(reference, plain_words(text))
    return 100 * errors / sum(len(reference) for _, reference in recordings)


def _bleu(engine: Engine, pairs: Sequence[tuple[str, Sequence[str]]]) -> float:
    import sacrebleu

    translator = Translator(bundled_folder("demo-en-de"), engine=engine)
    texts = [each.text for each in translator.translate_lines([source for source, _ in pairs])]
    # One list per reference number; sentences with fewer references are padded with None.
    references = [list(each) for each in zip_longest(*(known for _, known in pairs))]
    return float(sacrebleu.corpus_bleu(texts, references).score)


def _recordings(data: Path | None) -> Iterator[tuple[Samples, list[str]]]:
    for path in sorted((assets_folder() / "samples").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        yield load_audio(path.with_suffix(".flac")), plain_words(text)
    if data is None:
        return
    with tarfile.open(data / "digits" / "recordings.tar") as recordings:
        for name in sorted(recordings.getnames()):
            digit, _, take = Path(name).stem.partition("_")
            if name.endswith(".flac") and int(take.rpartition("_")[2]) in _TEST_TAKES:
                file = recordings.extractfile(name)
                assert file is not None
                yield load_audio(io.BytesIO(file.read())), [_DIGITS[int(digit)]]


def _pairs(data: Path | None) -> list[tuple[str, Sequence[str]]]:
    if data is None:
        return []
    folder = data / "tatoeba-eng-deu"
    known = json.loads((folder / "test-references.json").read_text(encoding="utf-8"))
    with gzip.open(folder / "test.tsv.gz", "rt", encoding="utf-8") as lines:
        sources = [line.split("\t")[0] for line in lines]
    return [(source, known[source]) for source in sources]
