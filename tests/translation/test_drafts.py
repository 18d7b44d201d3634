"""Drafts of a translator change nothing but the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines import LiveTranslator
from pipelines.engine import Engine
from pipelines.errors import ModelError, OptionError
from pipelines.translation import ParallelTranslator, Translation, Translator

pytestmark = pytest.mark.usefixtures("unpaused_drafts")

LINES = ["Where is the station?", "I would like a cup of coffee, please.", "Where is the station?"]


def tokens(translation: Translation) -> list[tuple[int, ...]]:
    return [sentence.tokens for sentence in translation.sentences]


@pytest.fixture(scope="module")
def drafted(demo_folder: Path, exact_engine: Engine) -> Translator:
    return Translator(demo_folder, engine=exact_engine, draft="ngram")


@pytest.mark.slow
def test_ngrams_change_nothing(demo: Translator, drafted: Translator) -> None:
    for _ in range(2):  # the second time all is known
        for line in LINES:
            assert tokens(drafted.translate(line)) == tokens(demo.translate(line))
    assert demo.draft_report is None
    report = drafted.draft_report
    assert report is not None
    assert 0 < report.accepted <= report.drafted
    assert drafted.translate(LINES, beam_size=2) == demo.translate(LINES, beam_size=2)


@pytest.mark.slow
def test_live_translation_with_ngrams(demo: Translator, drafted: Translator) -> None:
    found = []
    for translator in (demo, drafted):
        live, texts = LiveTranslator(translator), []
        for words in ("Where is ", "the station? ", "Where is ", "the train?"):
            texts += [live.final(sentence).text for sentence in live.add(words)]
            partial = live.partial()
            texts.append("" if partial is None else partial.text)
        found.append(texts)
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_draft_model_of_the_same_files(demo: Translator, demo_folder: Path) -> None:
    with Translator(demo_folder, draft_model=demo_folder, compute_type="float32") as translator:
        for found, expected in zip(translator.translate(LINES), demo.translate(LINES), strict=True):
            assert tokens(found) == tokens(expected)
        report = translator.draft_report
    assert report is not None
    assert report.accepted == report.drafted > 0


def test_what_cannot_draft_is_refused(
    drafted: Translator, demo_folder: Path, marian_folder: Callable[..., Path]
) -> None:
    other = marian_folder("opus-mt-en-de")
    with pytest.raises(ModelError, match="opus-mt-en-de cannot draft for demo-en-de"):
        Translator(demo_folder, draft_model=other, engine=drafted.engine)
    with pytest.raises(OptionError, match="not with both"):
        Translator(demo_folder, draft_model=other, draft="ngram")
    with pytest.raises(OptionError, match="'ngram' or None"):
        Translator(demo_folder, draft="words")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="one process"):
        ParallelTranslator(drafted, 2)
