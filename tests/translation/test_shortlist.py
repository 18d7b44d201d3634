"""The shortlist: generating only tokens of the target language's own vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.engine import Engine
from pipelines.errors import OptionError
from pipelines.translation import ParallelTranslator, Translator
from pipelines.translation.tokenizers.marian import target_vocabulary_ids
from tests.fixtures.checkpoints import write_marian

pytestmark = pytest.mark.slow


def test_the_shortlist_has_the_target_pieces_and_eos(tmp_path: Path) -> None:
    folder = write_marian(tmp_path / "opus-mt-en-de")
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    kept = {*target_vocabulary_ids(folder)}
    assert vocabulary["</s>"] in kept
    assert vocabulary["<unk>"] in kept
    assert vocabulary["<pad>"] not in kept
    assert 0 < len(kept) < len(vocabulary)


def test_only_tokens_of_the_shortlist_are_generated(tmp_path: Path, exact_engine: Engine) -> None:
    folder = write_marian(tmp_path / "opus-mt-en-de")
    short = Translator(folder, engine=exact_engine, shortlist=True)
    kept = {*target_vocabulary_ids(folder)}
    done = short.translate(["Good morning!", "Where is my book? It was here."])
    sentences = [sentence for each in done for sentence in each.sentences]
    assert len(sentences) == 3
    assert any(sentence.tokens for sentence in sentences)
    assert {token for sentence in sentences for token in sentence.tokens} <= kept


def test_a_trained_model_generates_the_same_text(
    demo: Translator, demo_folder: Path, exact_engine: Engine
) -> None:
    short = Translator(demo_folder, engine=exact_engine, shortlist=True)
    lines = ["Good morning!", "Tom lives in Boston. He likes it there.", "Where is my book?"]
    expected = [each.text for each in demo.translate(lines)]
    assert [each.text for each in short.translate(lines)] == expected
    with ParallelTranslator(short, 2) as crew:
        assert [each.text for each in crew.translate_lines(lines)] == expected


def test_a_model_without_a_separate_target_vocabulary_is_refused(
    many_folder: Callable[..., Path], exact_engine: Engine
) -> None:
    with pytest.raises(OptionError, match="no shortlist"):
        Translator(many_folder("m2m100_418M", seed=1), engine=exact_engine, shortlist=True)
