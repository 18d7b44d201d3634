"""Sessions in several languages: translated by the right pair, and said where none is right."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias, cast

import pytest

from edgeapp.english_only import choosing_language
from edgeapp.live.event_encoder import EventEncoder
from edgeapp.live.events import (
    SessionEnded,
    SessionEvent,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
    as_content,
)
from edgeapp.live.pair_translators import PairTranslators
from edgeapp.live.session import LiveSession
from edgeapp.live.sources import FileSource, Notice
from edgeapp.live.speech_channel import SpeechChannel
from edgeapp.model_pool import ModelPool
from pipelines import (
    CommittedText,
    LiveOptions,
    LiveTranscriber,
    ModelNotFound,
    PartialText,
    TranscribeOptions,
    Transcriber,
)
from pipelines.asr import Samples, SpeechEnded
from pipelines.asr.audio.vad import VoiceActivity
from pipelines.errors import DeviceLost
from tests.asr.live.listening import OPTIONS
from tests.asr.live.test_spoken_language import ENGLISH, GERMAN, Bilingual, pieces
from tests.asr.tones import loudness
from tests.edgeapp.live.test_session import Scripted

Task: TypeAlias = Literal["transcribe", "translate"]


class Shouting:
    """A model that translates into upper case, with the pair before it."""

    target_codes = source_codes = ()

    def __init__(self, pair: str) -> None:
        self.pair = pair

    def translate(self, text: str, options: Any) -> Any:
        return SimpleNamespace(text=f"{self.pair}: {text.upper()}", warnings=())

    def word_probabilities(self, translation: object) -> list[Any]:
        return []

    def retranslate(self, text: str, *rest: Any, **named: Any) -> tuple[str, tuple[int, ...], str]:
        return text.upper(), (), ""


class Pool:
    """Has some pairs; each opens when it may."""

    def __init__(self, *pairs: str) -> None:
        self.pairs = pairs
        self.may_open = threading.Event()
        self.may_open.set()
        self.in_use = 0

    def translator(self, name: str | None, source: str, target: str) -> Shouting:
        assert self.may_open.wait(60)
        if f"{source}-{target}" not in self.pairs:
            model = f"opus-mt-{source}-{target}"
            raise ModelNotFound(f"no translator from {source} to {target}", download=model)
        return Shouting(f"{source}-{target}")

    @contextmanager
    def using(self, *models: object) -> Iterator[None]:
        self.in_use += 1
        yield
        self.in_use -= 1


def channel(pairs: PairTranslators | None, options: LiveOptions = OPTIONS) -> SpeechChannel:
    recognizer = cast(Transcriber, Bilingual())
    live = LiveTranscriber(recognizer, options, VoiceActivity(options.vad, loudness))
    return SpeechChannel(live, pairs=pairs)


def run(pool: Pool, target: str, *sentences: Sequence[int]) -> Iterator[SessionEvent]:
    pairs = PairTranslators(cast(ModelPool, pool), None, target)
    source = FileSource(pieces(*sentences), 0)
    for event in LiveSession(channel(pairs)).run(source):
        yield cast(SessionEvent, event)
    pairs.close()


def said(events: Sequence[SessionEvent], language: str) -> str:
    found = (e for e in events if isinstance(e, CommittedText) and e.language == language)
    return "".join(event.text for event in found).strip()


def test_each_utterance_is_translated_by_its_pair() -> None:
    pool = Pool("en-fr", "de-fr")
    events = list(run(pool, "fr", ENGLISH, GERMAN))
    english, german = (said(events, code) for code in ("en", "de"))
    translated = [e.text for e in events if isinstance(e, TranslationFinal)]
    assert translated == [f"en-fr: {english.upper()}", f"de-fr: {german.upper()}"]
    assert [e.source for e in events if isinstance(e, TranslationFinal)] == [english, german]
    assert any(isinstance(e, TranslationPartial) for e in events)
    assert not [e for e in events if isinstance(e, WarningRaised)]
    assert pool.in_use == 0, "models may be unloaded again"


def test_what_is_in_the_target_language_is_its_own_translation() -> None:
    events = list(run(Pool("en-de"), "de", ENGLISH, GERMAN))
    translated = [e.text for e in events if isinstance(e, TranslationFinal)]
    assert translated == [f"en-de: {said(events, 'en').upper()}", said(events, "de")]


def test_a_language_without_a_pair_is_said_once_and_captions_go_on() -> None:
    events = list(run(Pool("en-fr"), "fr", ENGLISH, GERMAN, ENGLISH, GERMAN))
    assert len(said(events, "de").split()) == 24
    assert [e.message for e in events if isinstance(e, WarningRaised)] == [
        "German is not translated: no translator is on this machine; `edgeapp models pull "
        "opus-mt-de-fr` downloads it"
    ]
    translated = [e.text for e in events if isinstance(e, TranslationFinal)]
    assert len(translated) == 2
    assert all(text.startswith("en-fr: ") for text in translated)


def test_captions_do_not_wait_for_a_translator() -> None:
    pool = Pool("en-fr")
    pool.may_open.clear()
    events, words = list[SessionEvent](), 0
    for event in run(pool, "fr", ENGLISH):
        events.append(event)
        words += len(event.text.split()) if isinstance(event, CommittedText) else 0
        assert not isinstance(event, TranslationFinal) or pool.may_open.is_set()
        if words == len(ENGLISH):
            pool.may_open.set()
    assert words == len(ENGLISH)
    assert [e.source for e in events if isinstance(e, TranslationFinal)] == [said(events, "en")]


@pytest.mark.parametrize("wait", ["a long gap", "a lost device"])
def test_audio_does_not_wait_for_a_translator(wait: str) -> None:
    pool = Pool("en-fr")
    pool.may_open.clear()
    pairs = PairTranslators(cast(ModelPool, pool), None, "fr")
    gap = [Notice("the computer slept", 700.0, 700.0)] if wait == "a long gap" else []

    class Interrupted(Scripted):
        def read(self, wait_s: float) -> Samples | Notice | None:
            if not self._pieces and not gap:
                raise DeviceLost("the microphone was disconnected")
            return super().read(wait_s)

    def other() -> FileSource:
        assert not pool.may_open.is_set()
        return FileSource(pieces(ENGLISH), 0)

    last = [pieces(ENGLISH)] if gap else []
    events = list[Any]()
    for event in LiveSession(channel(pairs)).run(Interrupted(pieces(ENGLISH), *gap, *last), other):
        events.append(event)
        if sum(isinstance(e, SpeechEnded) for e in events) == 2:
            pool.may_open.set()
        assert pool.may_open.is_set() or not isinstance(event, TranslationFinal)
    pairs.close()
    assert len([e for e in events if isinstance(e, TranslationFinal)]) == 2


def test_a_translator_that_cannot_be_opened_is_said_and_captions_go_on() -> None:
    class Broken(Pool):
        def translator(self, name: str | None, source: str, target: str) -> Shouting:
            raise OSError("Input/output error")

    events = list(run(Broken(), "fr", ENGLISH, ENGLISH))
    assert len(said(events, "en").split()) == 24
    assert [e.message for e in events if isinstance(e, WarningRaised)] == [
        "English is not translated: Input/output error"
    ]
    assert isinstance(events[-1], SessionEnded)


@pytest.mark.parametrize(("task", "done"), [("transcribe", "written"), ("translate", "translated")])
def test_another_language_than_the_given_one_is_said_once(task: Task, done: str) -> None:
    transcribe = TranscribeOptions(language="en", task=task)
    session = LiveSession(channel(None, LiveOptions(transcribe=transcribe, min_chunk_s=0.3)))
    events = list(session.run(FileSource(pieces(*[GERMAN] * 5), 0)))
    assert [e.message for e in events if isinstance(e, WarningRaised)] == [
        f"this sounds like German, but is {done} as English, which was given"
    ]


def test_events_have_the_language_of_their_text() -> None:
    encoder = EventEncoder(lambda: "de")
    assert encoder.content(PartialText(" hello", "en"))["language"] == "en"
    assert encoder.content(PartialText(""))["language"] == "de"
    assert as_content(CommittedText(" hello", 0.0, 1.0, (), "en"))["language"] == "en"
    assert "language" not in as_content(PartialText(""))


@pytest.mark.parametrize(
    ("languages", "expected"),
    [((), None), (("en", "de"), "de"), (("en",), "en"), (("fr", "en"), "fr")],
)
def test_a_recognizer_of_several_languages_is_chosen(
    languages: tuple[str, ...], expected: str | None
) -> None:
    assert choosing_language(TranscribeOptions(languages=languages)) == expected
