"""BLEU of the bundled model on sentences of its domain."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import sacrebleu

from pipelines.engine import Engine
from pipelines.translation import Translator

pytestmark = pytest.mark.slow

_FLOOR = 36.0
"""The first version has 42.0 on this part of the test set, against all references."""


def _sample(shared_data: Path) -> tuple[list[str], list[list[str]]]:
    """100 sentences out of 2,000, evenly, and the human translations of each."""
    folder = shared_data / "tatoeba-eng-deu"
    with gzip.open(folder / "test.tsv.gz", "rt", encoding="utf-8") as lines:
        sources = [line.split("\t")[0] for line in lines][:2000:20]
    references = json.loads((folder / "test-references.json").read_text(encoding="utf-8"))
    return sources, [references[source] for source in sources]


def _bleu(translations: list[str], references: list[list[str]]) -> float:
    most = max(map(len, references))
    columns = [[few[i % len(few)] for few in references] for i in range(most)]
    return sacrebleu.corpus_bleu(translations, columns).score


def test_bleu_and_warnings(shared_data: Path, demo: Translator) -> None:
    sources, references = _sample(shared_data)
    translations = demo.translate(sources)
    assert _bleu([translation.text for translation in translations], references) > _FLOOR
    assert sum(bool(translation.warnings) for translation in translations) <= 2
    assert all(translation.text for translation in translations)


def test_compute_type_auto_is_as_good(shared_data: Path, demo: Translator) -> None:
    sources, references = _sample(shared_data)
    exact = [translation.text for translation in demo.translate(sources)]
    with Engine(device="cpu", compute_type="auto", threads=1) as engine:
        fast = Translator(demo.model.folder, engine=engine)
        translations = [translation.text for translation in fast.translate(sources)]
    assert abs(_bleu(translations, references) - _bleu(exact, references)) < 3
    same = sum(one == other for one, other in zip(translations, exact, strict=True))
    assert same >= 85, f"{same} of {len(exact)} translations are those of float32"
