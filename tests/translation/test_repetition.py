"""Loops, translations without an end, empty ones, and sentences longer than the model."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.engine import Engine, NoRepeatNgram, Request
from pipelines.translation import SentenceTranslation, Translation, Translator
from pipelines.translation.fallback import _lost_numbers
from pipelines.translation.repetition import RepetitionDetector, max_target_tokens
from tests.translation.scripted import Script, ScriptedEngine, scripted

SENTENCE = "We went for a walk because the weather was fine."
GOOD = "Wir gingen spazieren, weil das Wetter schön war."


def _looped_at(tokens: list[int], source: list[int] | None = None) -> tuple[int, int] | None:
    """(tokens taken, tokens that stand) when a loop is noticed."""
    watch = RepetitionDetector(source or [])
    for count, token in enumerate(tokens, 1):
        if watch.push(token):
            return count, watch.cut
    return None


@pytest.mark.parametrize("period", [1, 2, 3, 5, 12, 24])
def test_a_repeated_phrase_is_a_loop(period: int) -> None:
    start, phrase = [1, 2, 3], list(range(10, 10 + period))
    noticed = _looped_at(start + phrase * 60)
    assert noticed is not None
    taken, stands = noticed
    assert taken <= 3 + max(8, 4 * period)
    assert stands == 3 + period, "the phrase itself stands, once"


def test_a_phrase_repeated_between_others_is_a_loop() -> None:
    tokens = [token for i in range(30) for token in (1, 2, 3, 4, 100 + i)]
    noticed = _looped_at(tokens)
    assert noticed is not None
    assert noticed[0] <= 30
    assert noticed[1] <= 10


def test_ordinary_text_is_no_loop() -> None:
    draw = random.Random(0)
    assert all(_looped_at([draw.randrange(500) for _ in range(200)]) is None for _ in range(50))
    very = [5, *[6, 7] * 3, 8]  # "sehr, sehr, sehr"
    assert _looped_at(very) is None


def test_a_source_that_repeats_itself_may_be_translated() -> None:
    ha = [1] * 30
    assert _looped_at([2] * 30) is not None
    assert _looped_at([2] * 30, ha) is None
    assert _looped_at([2] * 500, ha) is not None


def test_what_may_become_a_loop_is_not_settled() -> None:
    watch = RepetitionDetector()
    for token in (1, 2, 3, 4, 5, 6):
        watch.push(token)
        assert watch.settled == len(watch._tokens)
    for token in (4, 5, 6):
        watch.push(token)
    assert watch.settled == 6
    watch.push(9)
    assert watch.settled == 10


def test_the_length_grows_with_the_source() -> None:
    assert max_target_tokens(1, 512) == 19
    assert max_target_tokens(10, 512) == 46
    assert max_target_tokens(400, 512) == 512


# From here on with a scripted model.

Say = Callable[[str], tuple[int, ...]]


@pytest.fixture(scope="module")
def say(demo: Translator) -> Say:
    """Tokens without eos. The bundled model's two sides share their vocabulary."""
    return lambda text: tuple(demo.tokenizer.encode(text)[:-1])


def _translate(demo: Translator, script: Script, text: str) -> tuple[Translation, ScriptedEngine]:
    translator, engine = scripted(demo, script)
    return translator.translate(text), engine


def _is_second(request: Request) -> bool:
    return any(isinstance(rule, NoRepeatNgram) for rule in request.options.logit_filters)


def test_a_loop_is_translated_again_in_parts(demo: Translator, say: Say) -> None:
    def script(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        whole = len(source) == len(demo.tokenizer.encode(SENTENCE))
        return say("sehr gut " * 50) if whole else (*say("Ein Teil"), 0)

    translation, engine = _translate(demo, script, SENTENCE)
    assert translation.text == "Ein Teil Ein Teil"
    assert translation.warnings == (f'"{SENTENCE[:39]}…": it looped; translated in parts',)
    assert engine.streams[0].cancelled
    assert engine.streams[0].read < 30, "it is stopped when it is noticed, not at its length"


def test_a_loop_in_a_short_sentence_is_translated_without_repetitions(
    demo: Translator, say: Say
) -> None:
    def script(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        return (*say("Gut."), 0) if _is_second(request) else say("sehr " * 50)

    translation, _ = _translate(demo, script, "Good.")
    assert translation.text == "Gut."
    assert "it looped; translated again without repetitions" in translation.warnings[0]
    assert not translation.sentences[0].truncated


def test_capitals_that_loop_are_retried_in_lower_case(demo: Translator, say: Say) -> None:
    def script(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        small = source == tuple(demo.tokenizer.encode("We are late."))
        return (*say("Wir sind spät dran."), 0) if small else say("W W W " * 50)

    translation, _ = _translate(demo, script, "WE ARE LATE.")
    assert translation.text == "WIR SIND SPÄT DRAN."
    assert translation.sentences[0].source == "WE ARE LATE."


def test_a_retry_reads_the_same_plain_quotes(demo: Translator, say: Say) -> None:
    """Marian models know typewriter quotes only: for others they have no token, or a rare one."""
    capitals = "WE AREN’T LATE."
    sentence = SENTENCE.replace("the weather was", "it wasn’t late and the weather was")
    read: set[tuple[int, ...]] = set()

    def script(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        read.add(source)
        first = source in [tuple(demo.tokenizer.encode(plain(t))) for t in (capitals, sentence)]
        return say("sehr gut " * 50) if first else (*say("Gut."), 0)

    def plain(text: str) -> str:
        return text.replace("’", "'")

    _translate(demo, script, capitals)
    assert tuple(demo.tokenizer.encode("We aren't late.")) in read
    _translate(demo, script, sentence)
    assert not any("’" in demo.tokenizer.source_text(source) for source in read)


def test_a_translation_that_never_ends_is_cut_and_says_so(demo: Translator, say: Say) -> None:
    """Both attempts loop after a sound beginning, which is what remains."""

    def script(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        return say(GOOD + " Und dann" * 60)

    text = "We left."
    translation, _ = _translate(demo, script, text)
    (sentence,) = translation.sentences
    assert sentence.truncated
    assert sentence.text.startswith(GOOD)
    assert sentence.text.count("Und dann") <= 1
    assert translation.warnings == (f'"{text}": the translation did not end and was cut',)


def test_a_translation_that_is_only_a_loop_copies_the_source(demo: Translator, say: Say) -> None:
    def script(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        return say("ja " * 200)

    text = "We will come back tomorrow."
    translation, _ = _translate(demo, script, text)
    assert translation.text == text
    assert all(sentence.copied for sentence in translation.sentences)
    assert "kept as it is" in translation.warnings[0]


@pytest.mark.parametrize("second", ["Gut.", ""])
def test_an_empty_translation_is_retried_or_copied(demo: Translator, say: Say, second: str) -> None:
    def script(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        again = len(request.options.logit_filters) > len(
            engine.streams[0].request.options.logit_filters
        )
        return (*say(second), 0) if again else (0,)

    translator, engine = scripted(demo, lambda source, request: ())
    engine.script = lambda source, request: (0,) if not engine.streams else script(source, request)
    translation = translator.translate("Good.")
    assert translation.text == (second or "Good.")
    assert translation.sentences[0].copied is not bool(second)
    assert "the translation was empty" in translation.warnings[0]


def test_an_endless_stream_of_different_tokens_is_cut(demo: Translator) -> None:
    def script(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        return tuple(range(100, 2000))

    translation, engine = _translate(demo, script, "We left.")
    source = len(demo.tokenizer.encode("We left."))
    assert {stream.read for stream in engine.streams} == {max_target_tokens(source, 256)}
    assert translation.sentences[0].truncated
    assert "did not end" in translation.warnings[0]


def test_a_long_sentence_is_cut_into_parts_and_none_is_lost(demo: Translator) -> None:
    """Longer than the positions of the model: 256, of which a source may take half."""
    clauses = [f"on day {number} we walked to the next town" for number in range(10, 70)]
    text = "At first, " + ", ".join(clauses) + "."

    def echo(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        return source

    translation, engine = _translate(demo, echo, text)
    assert max(len(stream.tokens) for stream in engine.streams) <= 128
    assert len(translation.sentences) > 5
    assert translation.text == text
    assert " ".join(part.source for part in translation.sentences) == text
    assert translation.warnings == ()


@pytest.mark.slow
def test_a_model_may_state_how_long_its_sentences_are(
    demo_folder: Path, exact_engine: Engine, tmp_path: Path
) -> None:
    """It was trained on short ones, and long before its positions end it leaves clauses out."""
    folder = shutil.copytree(demo_folder, tmp_path / "demo")
    path = folder / "tokenizer_config.json"
    path.unlink()  # the copy may be read-only
    config = json.loads((demo_folder / path.name).read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"model_max_length": 20}), encoding="utf-8")
    translator = Translator(folder, engine=exact_engine)
    clauses = ["the dog is sleeping on the sofa", "she has two brothers", "the soup is too hot"]
    text = "I think that " + ", and ".join(clauses * 12) + "."
    translation = translator.translate(text)
    assert len(translator.tokenizer.encode(text)) > 256
    assert all(len(translator.tokenizer.encode(s.source)) <= 20 for s in translation.sentences)
    for word in ("Hund", "Brüder", "Suppe"):
        assert translation.text.count(word) >= 10


@pytest.mark.slow
def test_real_loops_do_not_reach_the_user(demo: Translator) -> None:
    for text in ("ha " * 30, "A B C D E F G H " * 3, "1 a " * 20, "NO " * 15, "buy " * 50):
        translation = demo.translate(text)
        words = translation.text.split()
        assert len(words) <= 3 * len(text.split()) + 16
        assert translation.text


def test_numbers_that_get_lost_are_reported(demo: Translator, say: Say) -> None:
    def script(source: tuple[int, ...], request: Request) -> tuple[int, ...]:
        return (*say("Er kam 1984."), 0)

    translation, _ = _translate(demo, script, "He came in 1985.")
    assert translation.warnings == ('"He came in 1985.": the translation lacks 1985',)
    assert _translate(demo, script, "He came in 1984.")[0].warnings == ()


@pytest.mark.parametrize(
    ("source", "translated", "lost"),
    [
        ("1,000,000 dollars", "1.000 Dollar", "1,000,000"),
        ("1,000,000 dollars", "1.000.000 Dollar", ""),
        ("1,000,000 dollars", "1 000 000 Dollar", ""),
        ("1000000 dollars", "1'000'000 Dollar", ""),
        ("1.234,56", "1,234.56", ""),
        ("1.234,56", "1.234", "1.234,56"),
        ("3.9 per cent", "39 Prozent", "3.9"),
        ("3.9 per cent", "3,9 Prozent", ""),
        ("We paid 30.48.", "Wir haben 30 bezahlt.48", "30.48"),
        ("1,2,3", "1, 2, 3", ""),
        ("30.48", "30 Euro 48", "30.48"),
        ("3.50", "3 Euro 50", ""),
        ("Um 20.15 Uhr", "À 20h15", ""),
        ("12.05.2024", "05/12/2024", ""),
        ("555 123 456", "555 123 465", "555 123 456"),
        ("at 10:30", "um 10.30 Uhr", ""),
        ("at 10:30", "um halb elf", "10:30"),
        ("on 5/12/2020", "am 5.12.2020", ""),
        ("in 1914-1918", "in den Jahren 1914–1918", ""),
        ("for 10-12 people", "für 10 bis 12 Leute", ""),
        ("for 10-12 people", "für 10 Leute", "10-12"),
        ("in 2019 100 people", "2019 waren es 100", ""),
        ("5 of them", "fünf davon", ""),
        ("2,500 and 2,500", "2.500", "2,500"),
        ("\u0661\u0662\u0663\u0664", "1234", ""),
    ],
)
def test_numbers_with_separators_are_there_or_named(
    source: str, translated: str, lost: str
) -> None:
    warnings = _lost_numbers(SentenceTranslation(source, translated))
    assert warnings == ((f"the translation lacks {lost}",) if lost else ())
