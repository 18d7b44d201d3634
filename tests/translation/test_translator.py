"""Translator: order, laziness, white space, choice of language, closing, downloads."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.engine import Engine, Request
from pipelines.errors import EngineError, ModelNotFound, OptionError, UnsupportedTask
from pipelines.hub import ResolvedModel
from pipelines.translation import TranslateOptions, Translation, Translator
from tests.translation.corpus import SENTENCES
from tests.translation.scripted import scripted


@pytest.fixture(scope="module")
def multilingual(marian_folder: Callable[..., Path], exact_engine: Engine) -> Translator:
    return Translator(marian_folder("opus-mt-en-mul"), engine=exact_engine)


@pytest.fixture(scope="module")
def alone(demo: Translator) -> dict[str, Translation]:
    return {sentence: demo.translate(sentence) for sentence in SENTENCES[:40]}


def test_everyday_sentences(demo: Translator) -> None:
    texts = [
        "Where is the station?",
        "I would like a cup of coffee.",
        "Open the window, please.",
        "My brother wants to become a pilot.",
    ]
    assert [translation.text for translation in demo.translate(texts)] == [
        "Wo ist der Bahnhof?",
        "Ich hätte gerne eine Tasse Kaffee.",
        "Öffnen Sie bitte das Fenster.",
        "Mein Bruder will Pilot werden.",
    ]
    assert (demo.source_language, demo.target_language, demo.target_codes) == ("en", "de", ())


def test_a_string_gives_one_translation_and_a_sequence_a_list(demo: Translator) -> None:
    translation = demo.translate("Good morning.")
    assert translation.source == "Good morning."
    assert translation.warnings == ()
    (sentence,) = translation.sentences
    assert sentence.text == translation.text == "Guten Morgen!"
    assert -1 < sentence.avg_logprob < 0
    assert demo.tokenizer.decode(sentence.tokens) == sentence.text
    assert demo.translate(["Good morning."]) == [translation]
    assert demo.translate(("Good morning.",)) == [translation]


@pytest.mark.slow
def test_hundreds_of_lines_keep_their_order(
    demo: Translator, alone: dict[str, Translation]
) -> None:
    """Whatever is decoded beside it, and in whatever order, a line's translation is the same."""
    draw = random.Random(0)
    lines = []
    for _ in range(400):
        lines.append(" ".join(draw.choices(list(alone), k=draw.choice((0, 1, 1, 1, 2, 5)))))
    done = list(demo.translate_lines(lines))
    assert [translation.source for translation in done] == lines
    for translation in done:
        for sentence in translation.sentences:
            assert sentence.text == alone[sentence.source].text
        assert translation.text == " ".join(sentence.text for sentence in translation.sentences)


def test_empty_input_gives_empty_output(demo: Translator) -> None:
    assert demo.translate([]) == []
    assert list(demo.translate_lines(iter(()))) == []
    blank = ["", " ", "\t", "\n\n", " \r\n "]
    assert demo.translate(blank) == [Translation(text, text) for text in blank]


def test_white_space_stays_as_it_is(demo: Translator) -> None:
    text = "  Good morning.\r\n\r\n\tWhere is the station?  I have a headache. \n"
    assert demo.translate(text).text == (
        "  Guten Morgen!\r\n\r\n\tWo ist der Bahnhof?  Ich habe Kopfschmerzen. \n"
    )


def test_a_text_of_several_sentences_can_be_taken_as_one(demo: Translator) -> None:
    text = "He is tired. He is ill.\nSo am I."
    counts = [
        [sentence.source for sentence in demo.translate(text, options).sentences]
        for options in (TranslateOptions(), TranslateOptions(split_sentences=False))
    ]
    assert counts == [
        ["He is tired.", "He is ill.", "So am I."],
        ["He is tired. He is ill.", "So am I."],
    ]


@pytest.mark.slow
def test_lines_are_read_no_further_than_needed(demo: Translator) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield SENTENCES[taken % len(SENTENCES)]

    lines = demo.translate_lines(endless())
    assert taken == 0, "no line is read before the first result is requested"
    next(lines)
    assert taken <= 32, "the first need not wait for hundreds"
    for _ in range(300):
        next(lines)
    assert 301 < taken <= 301 + 256
    lines.close()
    before = taken
    assert list(lines) == []
    assert taken == before


@pytest.mark.slow
def test_long_lines_are_read_less_far_ahead(demo: Translator) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield " ".join(SENTENCES[:60])

    lines = demo.translate_lines(endless())
    next(lines)
    assert taken <= 12
    lines.close()


def test_a_pause_yields_all_lines_before_it(demo: Translator) -> None:
    """What a terminal or a slow pipe needs: None is a pause, in which no line can be read."""
    done: list[str] = []
    seen_at_pause: list[list[str]] = []

    def typing() -> Iterator[str | None]:
        for line in ("Good morning.", "", "Where is the station?", None, None, "Yes."):
            if line is None:
                seen_at_pause.append(done.copy())
            yield line

    for translation in demo.translate_lines(typing()):
        done.append(translation.text)
    assert done == ["Guten Morgen!", "", "Wo ist der Bahnhof?", "Ja."]
    # The item after a pause is requested only when all lines before it were yielded.
    assert seen_at_pause[1] == done[:3]


def test_empty_lines_do_not_wait(demo: Translator) -> None:
    lines = iter(["", " ", "Good morning."])
    results = demo.translate_lines(lines)
    assert [next(results).text, next(results).text] == ["", " "]
    assert next(lines, None) == "Good morning."
    results.close()


def test_sentences_share_passes_of_the_encoder(demo: Translator) -> None:
    def echo(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        return source

    translator, engine = scripted(demo, echo)
    translator.translate(SENTENCES)
    assert sum(engine.encoded) == len(SENTENCES)
    assert len(engine.encoded) < len(SENTENCES) / 3


def test_a_sentence_that_cannot_be_encoded_fails_alone(
    demo: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised in its turn; those read with it are encoded, and come before it."""
    translator, engine = scripted(demo, lambda source, request: source)
    bad, encode = tuple(demo.tokenizer.encode(SENTENCES[3])), engine.encode

    def refusing(sources: Sequence[Sequence[int]], priority: int = 0) -> list[Any]:
        if bad in map(tuple, sources):
            raise EngineError("out of memory")
        return encode(sources, priority)

    monkeypatch.setattr(engine, "encode", refusing)
    found: list[str] = []
    with pytest.raises(EngineError, match="out of memory"):  # noqa: PT012
        for translation in translator.translate_lines(SENTENCES[:8]):
            found.append(translation.source)  # noqa: PERF401
    assert found == SENTENCES[:3]


def test_an_error_while_reading_reaches_the_caller(demo: Translator) -> None:
    def broken() -> Iterator[str]:
        yield "Good morning."
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(demo.translate_lines(broken()))
    assert demo.translate("Yes.").text == "Ja."


@pytest.mark.slow
def test_targets_of_a_multilingual_model(multilingual: Translator) -> None:
    assert set(multilingual.target_codes) == {"deu", "fra", "spa", "ita", "nld", "por_Latn"}
    french = multilingual.translate("We see the old house.", TranslateOptions(target="fr"))
    spelt = multilingual.translate("We see the old house.", TranslateOptions(target=">>fra<<"))
    in_text = multilingual.translate(">>fra<< We see the old house.", TranslateOptions(target="de"))
    assert french.text == spelt.text
    assert in_text.text == french.text
    assert in_text.sentences[0].tokens == french.sentences[0].tokens
    german = multilingual.translate("We see the old house.", TranslateOptions(target="de"))
    assert german.sentences[0].tokens != french.sentences[0].tokens


def test_a_growing_sentence_keeps_what_stands_around_it(demo: Translator) -> None:
    text, tokens, copied = demo.retranslate("“Where is the", TranslateOptions())
    assert copied == "“"
    assert text.startswith("“Wo")
    text, _, _ = demo.retranslate("“Where is the station?”", TranslateOptions(), tokens[:1], tokens)
    assert text == "“Wo ist der Bahnhof?”"
    assert demo.retranslate("...", TranslateOptions()) == ("...", (), "")


def test_every_sentence_of_a_text_gets_the_code(multilingual: Translator) -> None:
    sources = []

    def echo(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        sources.append(source)
        return source

    translator, _ = scripted(multilingual, echo)
    translator.translate("  >>spa<< We see. They want.\nI forgot.")
    (code,) = {source[0] for source in sources}
    assert len(sources) == 3
    assert translator.tokenizer.encode("", "spa")[0] == code


def test_unknown_targets_are_refused_at_once(multilingual: Translator, demo: Translator) -> None:
    with pytest.raises(UnsupportedTask, match=r"'ja'; it has deu, fra"):
        multilingual.translate_lines(["Hello."], TranslateOptions(target="ja"))
    with pytest.raises(UnsupportedTask, match="translates into de only, not into 'fr'"):
        demo.stream("Hello.", TranslateOptions(target="fr"))
    with pytest.raises(UnsupportedTask, match="jpn"):
        multilingual.translate(">>jpn<< Hello.")
    with pytest.raises(OptionError, match="needs a target language; it has deu"):
        multilingual.translate("Hello.")
    for target in ("de", "deu", "DE", ">>deu<<"):
        assert demo.translate("Yes.", TranslateOptions(target=target)).text == "Ja."


@pytest.mark.slow
def test_a_line_with_an_unknown_target_does_not_end_the_others(
    multilingual: Translator,
) -> None:
    lines = [">>deu<< Yes.", ">>fra<< No.", ">>jpn<< Hello.", ">>deu<< Good."]
    found = []
    with pytest.raises(UnsupportedTask, match="jpn"):  # noqa: PT012
        for translation in multilingual.translate_lines(lines):
            found.append(translation.source)  # noqa: PERF401
    assert found == lines[:2]
    done = list(multilingual.translate_lines(lines, TranslateOptions(target="deu")))
    assert [translation.source for translation in done] == lines
    assert any(">>jpn<<" in warning for warning in done[2].warnings)


def test_an_unknown_code_is_read_as_text(demo: Translator) -> None:
    assert demo.translate(">>deu<< Yes.").text == "Ja."
    translation = demo.translate(">>fra<< Yes.")
    assert any(">>fra<<" in warning for warning in translation.warnings)
    assert ">>fra<<" in translation.text


def test_models_of_another_kind_are_refused(
    whisper_folder: Callable[..., Path], exact_engine: Engine
) -> None:
    with pytest.raises(UnsupportedTask, match="whisper model, which cannot translate text"):
        Translator(whisper_folder("tiny"), engine=exact_engine)


@pytest.mark.slow
def test_preprocessing_a_long_text_is_fast(demo: Translator) -> None:
    """No part of the preprocessing is quadratic in the length of a line."""
    translator, _ = scripted(demo, lambda source, request: source)
    start = time.process_time()
    translator.translate("We need more time, " * 6000)
    assert time.process_time() - start < 20


def test_close_closes_its_own_engine(demo_folder: Path) -> None:
    with Translator(demo_folder, device="cpu", compute_type="float32", threads=1) as translator:
        assert translator.translate("Yes.").text == "Ja."
        engine = translator.engine
        assert engine.models
    assert engine.models == ()
    for call in (translator.translate, translator.stream, translator.translate_lines):
        with pytest.raises(EngineError, match="this translator of demo-en-de is closed"):
            call("Yes.")
    with pytest.raises(EngineError, match="is closed"):
        translator.retranslate("Yes", TranslateOptions())
    translator.close()


def test_close_leaves_a_shared_engine_open(demo: Translator) -> None:
    with Translator(demo.model.folder, engine=demo.engine) as translator:
        assert translator.model is demo.model
    with pytest.raises(EngineError, match="is closed"):
        translator.translate("Yes.")
    assert demo.translate("Yes.").text == "Ja."


def test_a_model_that_cannot_be_loaded_leaves_no_engine_open(
    whisper_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Engine] = []
    close = Engine.close
    monkeypatch.setattr(Engine, "close", lambda engine: (closed.append(engine), close(engine)))
    with pytest.raises(UnsupportedTask, match="cannot translate"):
        Translator(whisper_folder("tiny"), device="cpu", threads=1)
    assert len(closed) == 1


def test_an_absent_model_is_fetched_on_request(
    demo_folder: Path, exact_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def absent(name: object) -> Path:
        raise ModelNotFound(f"{name} is not on this machine")

    def fetch(name: str) -> ResolvedModel:
        fetched.append(name)
        return ResolvedModel(name, "translation", demo_folder, "hub")

    monkeypatch.setattr("pipelines.hub.download.folder_of", absent)
    monkeypatch.setattr("pipelines.hub.download.pull", fetch)
    with pytest.raises(ModelNotFound):
        Translator("opus-mt-en-de", engine=exact_engine)
    for path in (Path("opus-mt-en-de"), "./opus-mt-en-de"):
        with pytest.raises(ModelNotFound):
            Translator(path, engine=exact_engine, download=True)
    assert fetched == []
    translator = Translator("opus-mt-en-de", engine=exact_engine, download=True)
    assert fetched == ["opus-mt-en-de"]
    assert translator.translate("Yes.").text == "Ja."
