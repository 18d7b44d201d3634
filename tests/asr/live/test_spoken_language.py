"""The language of live speech: detected once there is enough of it, then kept, and doubted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from pipelines.asr.audio.arrays import Samples
from pipelines.asr.live.events import CommittedText, LiveEvent, OtherLanguage, PartialText
from pipelines.asr.live.options import LiveOptions
from pipelines.asr.live.spoken_language import SpokenLanguage
from pipelines.asr.options import TranscribeOptions
from pipelines.errors import OptionError, UnsupportedTask
from tests.asr.live.listening import OPTIONS, every, listen
from tests.asr.tones import ToneTranscriber, speak

Heard = dict[str, float]


def heard(code: str, probability: float, **others: float) -> Heard:
    """What was detected, most of it in one language; the rest is Welsh."""
    rest = 1 - probability - sum(others.values())
    return {"en": 0.0, "de": 0.0, "ja": 0.0, "cy": rest} | {code: probability} | others


def never() -> Heard:
    raise AssertionError("nothing is to be detected here")


def test_less_than_a_second_waits_for_its_end() -> None:
    spoken = SpokenLanguage(None, usual=("en", "de"))
    assert spoken.waits(0.9)
    assert spoken.hear(0.9, never) is None
    assert spoken.hear(0.9, lambda: heard("ja", 0.6, de=0.3, en=0.1), ended=True) == "de"
    spoken.begin()
    assert spoken.language is None, "one word is no evidence of what comes next"


def test_a_certain_language_is_believed_at_once() -> None:
    spoken = SpokenLanguage(None)
    assert spoken.hear(1.1, lambda: heard("de", 0.95)) == "de"
    assert spoken.is_sure
    assert spoken.hear(1.6, never) == "de", "it is not detected again in every update"
    spoken.begin()
    assert not spoken.waits(0.2)
    assert spoken.hear(0.2, never) == "de", "what was spoken before goes on"
    assert not spoken.is_sure, "until more is heard"


def test_two_updates_have_to_agree() -> None:
    spoken = SpokenLanguage(None)
    assert spoken.hear(1.1, lambda: heard("ja", 0.6)) is None
    assert spoken.hear(1.6, lambda: heard("de", 0.6)) is None
    assert spoken.hear(2.1, lambda: heard("de", 0.7)) == "de"
    assert spoken.is_sure


def test_what_two_updates_agree_on_is_heard_on_until_it_is_certain() -> None:
    spoken = SpokenLanguage(None)
    for speech_s in (1.1, 1.6):
        spoken.hear(speech_s, lambda: heard("en", 0.85))
    assert spoken.is_sure
    assert spoken.hear(2.1, lambda: heard("de", 0.7, en=0.2)) == "en"
    assert spoken.hear(2.6, lambda: heard("de", 0.95)) == "de", "it began with a name"
    assert spoken.hear(3.1, never) == "de"


def test_the_language_of_the_session_is_kept_until_another_is_believed() -> None:
    spoken = SpokenLanguage(None)
    spoken.hear(1.1, lambda: heard("en", 0.95))
    spoken.begin()
    assert spoken.hear(1.1, lambda: heard("de", 0.8)) == "en"
    assert not spoken.is_sure
    assert spoken.hear(1.6, lambda: heard("de", 0.8)) == "de"
    spoken.begin()
    assert spoken.language == "de"
    for speech_s in (1.5, 2.0, 2.5, 3.0, 3.5, 4.0):
        assert spoken.hear(speech_s, lambda: heard("ja", 0.4, en=0.3)) == "de"
    assert spoken.is_sure, "unclear speech does not wait for ever"


def test_unclear_speech_of_a_new_session_is_shown_in_the_end() -> None:
    spoken = SpokenLanguage(None)
    for speech_s in (1.5, 2.0, 2.5, 3.0, 3.5):
        assert spoken.hear(speech_s, lambda: heard("de", 0.4, en=0.3)) is None
    assert spoken.hear(4.0, lambda: heard("de", 0.4, en=0.3)) == "de"
    for probability, expected in ((0.6, "en"), (0.75, "ja")):
        other = SpokenLanguage(None, usual=("en",))
        found = other.hear(1.3, lambda p=probability: heard("ja", p), ended=True)
        assert found == expected, "an unclear end is English"


def test_only_candidates_are_detected() -> None:
    spoken = SpokenLanguage(None, ("en", "de"))
    assert spoken.hear(1.1, lambda: heard("ja", 0.6, de=0.3, en=0.01)) is None
    assert spoken.hear(1.6, lambda: heard("ja", 0.6, de=0.3, en=0.01)) == "de"
    short = SpokenLanguage(None, ("en", "de"))
    assert short.hear(0.5, lambda: heard("ja", 0.6, de=0.2, en=0.1), ended=True) == "de"


def test_a_decision_is_checked_in_long_speech() -> None:
    spoken = SpokenLanguage(None)
    spoken.hear(1.1, lambda: heard("en", 0.95))
    for speech_s in (1.6, 2.1, 2.6, 3.1):
        spoken.hear(speech_s, never)
    assert spoken.hear(3.6, lambda: heard("de", 0.95)) == "de"


def test_a_given_language_is_doubted_after_ten_seconds_once() -> None:
    spoken = SpokenLanguage("en")
    assert spoken.is_sure
    assert spoken.hear(0.3, never) == "en"

    def doubts(what: Heard, seconds: int) -> list[str | None]:
        spoken.begin()
        found = []
        for half in range(2 * seconds + 1):
            assert spoken.hear(half / 2, lambda: what) == "en"
            found.append(spoken.take_doubt())
        return found

    first = doubts(heard("de", 0.95, en=0.02), 9)
    assert first == [None] * 19
    second = doubts(heard("de", 0.95, en=0.02), 9)
    assert [each for each in second if each] == ["de"]
    assert not any(doubts(heard("de", 0.95, en=0.02), 20)), "once"
    assert not any(doubts(heard("ja", 0.4, en=0.02, de=0.4), 20)), "no language is clear"
    assert not any(doubts(heard("de", 0.5, en=0.4), 20)), "it may be English"
    assert [each for each in doubts(heard("ja", 0.95), 20) if each] == ["ja"], "a new episode"


def test_another_language_than_the_candidates_is_said_of_short_utterances_too() -> None:
    spoken = SpokenLanguage(None, ("en", "de"))

    def doubts(what: Heard, utterances: int) -> list[str | None]:
        found = []
        for _ in range(utterances):
            spoken.begin()
            for half in range(2, 6):
                spoken.hear(half / 2, lambda: what)
                found.append(spoken.take_doubt())
            spoken.hear(2.6, lambda: what, ended=True)
            found.append(spoken.take_doubt())
        return found

    assert not any(doubts(heard("ja", 0.95, de=0.02, en=0.01), 3))
    assert not any(doubts(heard("de", 0.95), 1)), "German in between is expected"
    japanese = doubts(heard("ja", 0.95, de=0.02, en=0.01), 8)
    assert [each for each in japanese if each] == ["ja"]


class Bilingual(ToneTranscriber):
    """The low words are English, the high ones German; the latest words count most."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities.languages = ("en", "de", "fr")
        self.detected = self.decoded = 0
        self.languages: set[str] = set()

    def language_probs(self, encoded: Any) -> Heard:
        self.detected += 1
        tokens, _ = self._recognize(encoded)
        words = [token for token in tokens if token < 16]
        german = sum(word >= 8 for word in words) / max(1, len(words))
        return {"en": 0.98 * (1 - german), "de": 0.98 * german, "fr": 0.02}

    def window_decoder(self, language: str, options: object) -> ToneTranscriber:
        self.languages.add(language)
        return self

    def redecode(self, encoded: Tensor, *args: Any, priority: int = 0) -> Any:
        self.decoded += 1
        return super().redecode(encoded, *args)


ENGLISH, GERMAN = [1, 5, 2, 7, 3, 6] * 2, [9, 14, 11, 15, 10, 13] * 2


def pieces(*sentences: Sequence[int]) -> Samples:
    """Sentences with a second of silence between them."""
    silence = np.zeros(16_000, np.float32)
    spoken = [speak(words, pause_every=99)[0] for words in sentences]
    return np.concatenate([piece for each in spoken for piece in (each, silence)])


def by_language(events: Sequence[LiveEvent]) -> list[tuple[str | None, int]]:
    """The languages of the final text, and the number of words in each, in order."""
    found: list[tuple[str | None, int]] = []
    for event in events:
        if isinstance(event, CommittedText):
            words = len(event.text.split())
            if found and found[-1][0] == event.language:
                words += found.pop()[1]
            found.append((event.language, words))
    return found


def test_captions_follow_the_speaker() -> None:
    recognizer = Bilingual()
    events = listen(pieces(ENGLISH, GERMAN, ENGLISH), every(1600), OPTIONS, recognizer)
    assert by_language(events) == [("en", 12), ("de", 12), ("en", 12)]
    shown = [e.language for e in events if isinstance(e, PartialText) and e.text]
    assert shown[0] == "en", "nothing is shown before the language is known"
    assert recognizer.detected < recognizer.decoded / 3


def test_one_word_has_the_language_of_the_candidates_or_of_the_session() -> None:
    options = replace(OPTIONS, transcribe=TranscribeOptions(languages=("German", "fr")))
    recognizer = Bilingual()
    events = listen(pieces([2], GERMAN, [2]), every(1600), options, recognizer)
    assert by_language(events)[1:] == [("de", 13)]
    assert recognizer.languages <= {"de", "fr"}


class Unsure(Bilingual):
    """Hears German in everything, and is not certain of it."""

    def language_probs(self, encoded: Any) -> Heard:
        return heard("de", 0.8, en=0.1)


@pytest.mark.parametrize("block", [1600, 10**6], ids=["as it comes", "one block"])
@pytest.mark.parametrize("pause", [True, False], ids=["pause", "no pause"])
def test_the_last_words_have_the_same_language_with_and_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, block: int, pause: bool
) -> None:
    monkeypatch.setattr("pipelines.asr.live.transcriber.system_language", lambda: "en")
    audio = pieces([9, 14, 11])  # less than two updates can agree on
    events = listen(audio if pause else audio[:-16_000], every(block), OPTIONS, Unsure())
    assert by_language(events) == [("de", 3)]


@pytest.mark.parametrize("block", [1600, 10**6], ids=["as it comes", "one block"])
def test_what_follows_short_speech_in_the_same_block_is_no_evidence_of_its_language(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr("pipelines.asr.live.transcriber.system_language", lambda: "en")
    events = listen(pieces([9, 14], GERMAN), every(block), OPTIONS, Bilingual())
    assert by_language(events) == [("en", 2), ("de", 12)]


def test_a_given_language_that_is_not_spoken_is_said() -> None:
    options = replace(OPTIONS, transcribe=TranscribeOptions(language="en"))
    recognizer = Bilingual()
    events = listen(pieces(*[GERMAN] * 4), every(1600), options, recognizer)
    assert [e for e in events if isinstance(e, OtherLanguage)] == [OtherLanguage("de", ("en",))]
    assert by_language(events) == [("en", 48)]
    assert not [
        e for e in listen(pieces(*[ENGLISH] * 4), every(1600), options, Bilingual())
        if isinstance(e, OtherLanguage)
    ]  # fmt: skip


def test_languages_are_checked() -> None:
    with pytest.raises(OptionError, match="unknown language 'Klingon'"):
        TranscribeOptions(languages=("en", "Klingon"))
    with pytest.raises(OptionError, match="exclude each other"):
        TranscribeOptions(languages=("en",), language="de")
    with pytest.warns(DeprecationWarning, match=r"LiveOptions\(transcribe=…\)"):
        former = LiveOptions(languages=("en", "de"))  # type: ignore[call-arg]
    assert former == LiveOptions(transcribe=TranscribeOptions(languages=("en", "de")))
    with pytest.warns(DeprecationWarning, match="transcribe"):
        assert replace(former, languages=()) == LiveOptions()

    class Checking(Bilingual):
        def check(self, options: Any) -> None:
            for code in set(options.languages) - set(self.capabilities.languages):
                raise UnsupportedTask(f"it does not recognize {code}")

    options = replace(OPTIONS, transcribe=TranscribeOptions(languages=("en", "ja")))
    with pytest.raises(UnsupportedTask, match="recognize ja"):
        listen(pieces([1]), every(1600), options, Checking())
