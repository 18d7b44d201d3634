"""Translation of a pair of languages, through English where no model translates it directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipelines.engine import Engine
from pipelines.errors import ModelNotFound, OptionError, UnsupportedTask
from pipelines.translation import (
    PairTranslator,
    Translation,
    TranslationDelta,
    TranslationDone,
    Translator,
)

TEXTS = ["Wo ist der Bahnhof?", "Guten Morgen.", ""]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def there_and_back(engine: Engine) -> PairTranslator:
    """German → English → German, which stands for another language."""
    models = [Translator("demo-de-en", engine=engine), Translator("demo-en-de", engine=engine)]
    return PairTranslator(models, "de", "fr")


def by_hand(pair: PairTranslator, text: str, beam_size: int = 1) -> tuple[str, str]:
    first, second = pair.translators
    english = next(iter(first.translate_lines([text]))).text
    return english, next(iter(second.translate_lines([english]))).text


def test_a_pair_with_a_model_of_its_own(engine: Engine) -> None:
    with Translator.for_pair("English", "deu", engine=engine) as translator:
        assert (translator.source_language, translator.target_language) == ("en", "de")
    with Translator.for_pair("en", "German", engine=engine) as translator:
        assert translator.pivot is None
        assert translator.translate("Good morning.", source_language="eng", target=">>deu<<").text
        for wrong in ({"target": "fr"}, {"source_language": "nl"}):
            with pytest.raises(OptionError, match="this translator is from en into de"):
                translator.translate("Good morning.", **wrong)  # type: ignore[call-overload]
        assert translator.translate("Where is the station?").text == "Wo ist der Bahnhof?"
        assert translator.translate("Good morning.").via is None
    assert Translator("demo-en-de", engine=engine).translate("Good morning.").text  # still open


def test_a_pair_that_no_model_here_translates(engine: Engine) -> None:
    with pytest.raises(ModelNotFound) as caught:
        Translator.for_pair("de", "fr", engine=engine)
    assert caught.value.download == "opus-mt-de-fr"
    with pytest.raises(UnsupportedTask, match="two different languages"):
        Translator.for_pair("de", "de", engine=engine)


def test_for_pair_goes_through_english(
    engine: Engine, there_and_back: PairTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.translation import translator as module

    real = module.choose_default

    def choose(task: str, source: str, target: str) -> object:
        if (source, target) == ("de", "fr"):
            raise ModelNotFound("none")
        return real("translation", source, "de" if target == "fr" else target)

    monkeypatch.setattr(module, "choose_default", choose)
    with Translator.for_pair("de", "fr", engine=engine) as translator:
        assert translator.pivot == "en"
        done = translator.translate(TEXTS[0])
    assert done.via is not None
    assert (done.via.text, done.text) == by_hand(there_and_back, TEXTS[0])
    assert (done.source, done.via.source) == (TEXTS[0], TEXTS[0])


def test_every_way_gives_the_same(there_and_back: PairTranslator) -> None:
    expected = [by_hand(there_and_back, text)[1] for text in TEXTS]
    assert [each.text for each in there_and_back.translate(TEXTS)] == expected
    lines: list[str | None] = [*TEXTS[:1], None, *TEXTS[1:]]
    assert [each.text for each in there_and_back.translate_lines(lines)] == expected
    for text, translation in zip(TEXTS, expected, strict=True):
        events = list(there_and_back.stream(text))
        deltas = [event.text for event in events if isinstance(event, TranslationDelta)]
        assert "".join(deltas) == translation
        assert isinstance(events[-1], TranslationDone)
        assert events[-1].translation.text == translation


def test_a_pause_of_the_lines_gives_all_before_it(there_and_back: PairTranslator) -> None:
    read: list[str] = []

    def lines() -> Iterator[str | None]:
        read.append("first")
        yield TEXTS[0]
        yield None
        read.append("second")
        yield TEXTS[1]

    results = there_and_back.translate_lines(lines())
    assert isinstance(next(results), Translation)
    assert read == ["first"]
    results.close()


def test_the_alignment_spans_both_models(there_and_back: PairTranslator) -> None:
    done = there_and_back.translate(TEXTS[0], word_alignments=True)
    assert done.alignment is not None
    assert len(done.alignment.source_words) == len(TEXTS[0].split())
    assert done.alignment.links


def test_the_wording_is_for_the_last_model(there_and_back: PairTranslator) -> None:
    done = there_and_back.translate(TEXTS[1], prefix="Nun,", beam_size=2, n_best=2)
    assert done.text.startswith("Nun,")
    assert done.via is not None
    assert not done.via.text.startswith("Nun")
    assert len(done.sentences[0].alternatives) == 2
