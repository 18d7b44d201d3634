"""What a precision costs: word errors and BLEU of the bundled models, against float32."""

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

__all__ = ["AIM", "Cost", "quality"]

AIM = 0.3  # points by which a precision may be worse than float32
_PRECISIONS = ("float32", "auto", "int8", "bfloat16", "float16")
_DIGITS = "zero one two three four five six seven eight nine".split()
_TEST_TAKES = range(5)  # of each digit and speaker: the official test part


@dataclass(frozen=True)
class Cost:
    """One precision of one bundled model. measure: "word error rate, %" or "BLEU".

    worse: points against float32; above 0 is worse. over: what it was measured on.
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
    """Both bundled models in every precision.

    data: a folder with digits/recordings.tar and tatoeba-eng-deu/; None: the bundled recordings,
    and no translations, of which none are bundled with references.
    """
    heard = list(_recordings(data))
    pairs = _pairs(data)
    costs: list[Cost] = []
    for compute_type in _PRECISIONS:
        said(f"quality of {compute_type}")
        with Engine(device=device, compute_type=compute_type, threads=threads) as engine:
            wrong = _word_errors(engine, heard)
            words = sum(len(truth) for _, truth in heard)
            over = f"{words} words in {len(heard)} recordings"
            _add(costs, Cost("demo", "word error rate, %", compute_type, wrong, 0.0, over))
            if pairs:
                over = f"{len(pairs)} sentences"
                bleu = _bleu(engine, pairs)
                _add(costs, Cost("demo-en-de", "BLEU", compute_type, bleu, 0.0, over))
    return sorted(costs, key=lambda cost: cost.model)


def _add(costs: list[Cost], cost: Cost) -> None:
    exact = next((each for each in costs if each.model == cost.model), cost)
    worse = cost.value - exact.value if cost.model == "demo" else exact.value - cost.value
    costs.append(Cost(cost.model, cost.measure, cost.compute_type, cost.value, worse, cost.over))


def _word_errors(engine: Engine, heard: Sequence[tuple[Samples, list[str]]]) -> float:
    transcriber = Transcriber(bundled_folder("demo"), engine=engine)
    wrong = 0
    for samples, truth in heard:
        found = transcriber.transcribe(samples)
        wrong += word_errors(truth, plain_words(" ".join(segment.text for segment in found)))
    return 100 * wrong / sum(len(truth) for _, truth in heard)


def _bleu(engine: Engine, pairs: Sequence[tuple[str, Sequence[str]]]) -> float:
    import sacrebleu

    translator = Translator(bundled_folder("demo-en-de"), engine=engine)
    texts = [each.text for each in translator.translate_lines([source for source, _ in pairs])]
    # One list for each place among a sentence's references; some sentences have fewer.
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
