"""Streaming: the events of a translation while it is generated."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from pipelines.engine import NoRepeatNgram, Request
from pipelines.translation import (
    SentenceDone,
    TranslateOptions,
    Translation,
    TranslationDelta,
    TranslationDone,
    TranslationEvent,
    Translator,
)
from pipelines.translation.text.invisible import visible
from tests.translation.corpus import ODD, SENTENCES
from tests.translation.scripted import scripted


def _consistent(events: list[TranslationEvent]) -> Translation:
    """Deltas add up, sentence by sentence and in all; Done is last, and once."""
    assert [isinstance(event, TranslationDone) for event in events[:-1]] == [False] * (
        len(events) - 1
    )
    done = events[-1]
    assert isinstance(done, TranslationDone)
    text = since = ""
    sentences = []
    for event in events[:-1]:
        if isinstance(event, TranslationDelta):
            assert event.text
            text, since = text + event.text, since + event.text
        elif isinstance(event, SentenceDone):
            assert since.endswith(event.text)
            # Before it there are white space and controls of direction.
            assert not visible(since.removesuffix(event.text)).text.strip()
            sentences.append((event.source, event.text))
            since = ""
    translation = done.translation
    assert text == translation.text
    assert sentences == [(part.source, part.text) for part in translation.sentences]
    return translation


def _gist(translation: Translation) -> Translation:
    """Without the log-probabilities, which depend on batch mates in their last digits."""
    sentences = (
        replace(sentence, avg_logprob=0.0, logprobs=()) for sentence in translation.sentences
    )
    return replace(translation, sentences=tuple(sentences))


def test_one_sentence_grows_word_by_word(demo: Translator) -> None:
    events = list(demo.stream("I would like a cup of coffee."))
    deltas = [event.text for event in events if isinstance(event, TranslationDelta)]
    assert len(deltas) >= 5
    assert "".join(deltas) == "Ich hätte gerne eine Tasse Kaffee."
    assert events[-2] == SentenceDone("I would like a cup of coffee.", "".join(deltas))
    assert _consistent(events).source == "I would like a cup of coffee."


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        " ".join(SENTENCES[:12]),
        "  Good morning.\n\n- Where is the station? - It is (still) closed.\r\n",
        "“I'm tired. Let's go home.” Milk\nPIZZA 🍕 and www.example.com",
        *ODD[:-1],
    ],
)
def test_streamed_is_the_same_as_not_streamed(demo: Translator, text: str) -> None:
    streamed = _consistent(list(demo.stream(text)))
    whole = demo.translate(text)
    if any("looped" in w or "did not end" in w for w in (*whole.warnings, *streamed.warnings)):
        return  # what has been shown is not taken back, so that a second try can say less
    assert _gist(streamed) == _gist(whole)


def test_a_retry_after_a_loop_keeps_the_text_already_streamed(demo: Translator) -> None:
    good, loop = (demo.tokenizer.encode(text)[:-1] for text in ("Wir gingen weg", "und dann " * 40))

    def script(source: tuple[int, ...], request: Request) -> list[int]:
        if not any(isinstance(rule, NoRepeatNgram) for rule in request.options.logit_filters):
            return good + loop
        shown = list(request.prompt[1:])
        assert (good + loop)[: len(shown)] == shown
        assert shown[: len(good)] == good
        return [*demo.tokenizer.encode("nach Hause.")]

    translator, _ = scripted(demo, script)
    translation = _consistent(list(translator.stream("We left, and that was that.")))
    assert translation.text.startswith("Wir gingen weg und dann")
    assert translation.text.endswith("nach Hause.")
    assert translation.text.count("dann") <= 2
    assert "it looped" in translation.warnings[0]


def test_a_full_stop_that_may_be_removed_is_held_back(demo: Translator) -> None:
    translator, _ = scripted(demo, lambda *_: [*demo.tokenizer.encode("Milch.")])
    events = list(translator.stream("milk"))
    assert not any("." in event.text for event in events if isinstance(event, TranslationDelta))
    assert _consistent(events).text == "Milch"


def test_closing_early_cancels_all_generations(demo: Translator) -> None:
    translator, engine = scripted(demo, lambda source, request: source)
    stream = translator.stream(" ".join(SENTENCES))
    for _ in range(4):
        next(stream)
    assert len(engine.streams) > 4
    submitted = len(engine.streams)
    stream.close()
    assert all(request.cancelled for request in engine.streams)
    assert len(engine.streams) == submitted

    lines = translator.translate_lines(itertools.cycle(SENTENCES))
    next(lines)
    lines.close()
    assert all(request.cancelled for request in engine.streams)


def test_the_real_engine_goes_on_after_a_stream_was_closed(demo: Translator) -> None:
    stream = demo.stream(" ".join(SENTENCES))
    next(stream)
    stream.close()
    assert list(stream) == []
    unfinished = demo.stream("Good morning. " * 30)
    next(unfinished)
    del unfinished
    assert demo.translate("Good morning.").text == "Guten Morgen!"


@pytest.mark.slow
def test_two_streams_side_by_side(demo: Translator) -> None:
    texts = (" ".join(SENTENCES[:6]), " ".join(SENTENCES[6:12]))
    first, second = (demo.stream(text) for text in texts)
    events: tuple[list[TranslationEvent], list[TranslationEvent]] = ([], [])
    for pair in itertools.zip_longest(first, second):
        for event, kept in zip(pair, events, strict=True):
            if event is not None:
                kept.append(event)
    streamed = [_gist(_consistent(kept)) for kept in events]
    assert streamed == [_gist(translation) for translation in demo.translate(texts)]


@pytest.mark.parametrize("priority", range(4))
def test_priority_reaches_the_engine(demo: Translator, priority: int) -> None:
    translator, engine = scripted(demo, lambda source, request: source)
    options = TranslateOptions(priority=priority)
    list(translator.stream("Good morning. How are you?", options))
    translator.translate("Yes.", options)
    assert [stream.request.priority for stream in engine.streams] == [priority] * 3


def test_an_error_in_the_model_reaches_the_reader(demo: Translator) -> None:
    def script(source: tuple[int, ...], request: Request) -> list[int]:
        raise MemoryError("no memory for this")

    translator, _ = scripted(demo, script)
    with pytest.raises(MemoryError, match="no memory"):
        list(translator.stream("Good morning."))
