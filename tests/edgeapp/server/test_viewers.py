"""Shared captions: what viewers get, in which language, until when, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from edgeapp.live.events import SessionEnded, TranslationFinal
from edgeapp.server.page.picker_options import PickerOptions, TranslatorOption
from edgeapp.server.tasks.caption_lines import CaptionLines
from edgeapp.server.viewers import broadcast as broadcasts_module
from edgeapp.server.viewers.broadcast import Broadcast, Broadcasts
from pipelines import CommittedText, ModelError, OptionError, PartialText
from pipelines.asr import CorrectedText, SpeechEnded, SpeechStarted


class Viewer:
    """A browser: keeps what it is sent, and waits for it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.lines: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()

    def __call__(self, message: dict[str, Any]) -> None:
        with self._changed:
            self.messages.append(message)
            if message["type"] == "view":
                self.lines.clear()
            for line in message.get("lines", [message]):
                if line["type"] == "live_line":
                    self.lines[line["id"]] = line
            self._changed.notify_all()

    def wait(self, satisfied: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(satisfied, 60), (self.messages, self.lines)

    @property
    def view(self) -> dict[str, Any]:
        """The last message with the languages and all lines."""
        return [message for message in self.messages if message["type"] == "view"][-1]

    @property
    def said(self) -> list[str]:
        return [line["text"] for line in self.lines.values()]

    @property
    def running(self) -> list[str]:
        return [line["running"] for line in self.lines.values()]

    @property
    def meant(self) -> list[str]:
        return [line["translation"] for line in self.lines.values()]


class Upper:
    """A pool of translators that shout, and count what they translate."""

    def __init__(self) -> None:
        self.translated: list[tuple[str | None, str]] = []
        self.used = 0

    def translator(self, name: str | None, source: str | None, target: str | None) -> Any:
        if target == "fr":
            raise ModelError("the French model is damaged")

        def translate(text: str, options: object) -> Any:
            self.translated.append((target, text))
            return SimpleNamespace(text=f"{target}: {text.upper()}", warnings=())

        return SimpleNamespace(
            target_codes=(),
            source_language="en",
            translate=translate,
            word_probabilities=lambda translation: (),
            retranslate=lambda text, options, prefix, draft: (f"{text.upper()} …", (), ""),
        )

    @contextmanager
    def using(self, *models: object) -> Iterator[None]:
        self.used += 1
        yield
        self.used -= 1


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    pairs = tuple(TranslatorOption("m", "en", code) for code in ("de", "es", "fr"))
    options = PickerOptions((), (*pairs, TranslatorOption("n", "de", "en")))
    monkeypatch.setattr(broadcasts_module, "picker_options", lambda: options)
    return Upper()


@pytest.fixture
def shared(pool: Any) -> Broadcast:
    broadcast = Broadcasts(pool).open("anna")
    broadcast.begin("en", None, CaptionLines())
    return broadcast


def say(broadcast: Broadcast, *sentences: str) -> None:
    for sentence in sentences:
        broadcast.put(SpeechStarted(0.0))
        broadcast.put(PartialText(f" {sentence}"))
        broadcast.put(CommittedText(f" {sentence}", 0.0, 1.0))
        broadcast.put(PartialText(""))
        broadcast.put(SpeechEnded(1.0))


def test_each_viewer_reads_in_a_language_of_their_own(shared: Broadcast, pool: Any) -> None:
    speech, german, second, spanish = Viewer(), Viewer(), Viewer(), Viewer()
    for viewer, target in ((speech, ""), (german, "de"), (second, "de"), (spanish, "es")):
        shared.join(viewer, target)
    assert speech.messages[0]["languages"] == [
        ["fr", "French"],
        ["de", "German"],
        ["es", "Spanish"],
    ]
    say(shared, "Good morning.", "Where is it?")
    german.wait(lambda: german.meant == ["de: GOOD MORNING.", "de: WHERE IS IT?"])
    spanish.wait(lambda: spanish.meant == ["es: GOOD MORNING.", "es: WHERE IS IT?"])
    second.wait(lambda: second.meant == german.meant)
    assert speech.said == german.said == ["Good morning.", "Where is it?"]
    assert speech.meant == ["", ""]
    assert len(pool.translated) == 4, "viewers of one language share its translation"
    assert shared.viewers == 4


def test_who_comes_late_or_changes_the_language_reads_all_lines(
    shared: Broadcast, pool: Any
) -> None:
    say(shared, "One.", "Two.", "Three.", "Four.")
    viewer = Viewer()
    shared.join(viewer, "")
    assert viewer.said == ["One.", "Two.", "Three.", "Four."]
    shared.join(viewer, "de")
    viewer.wait(lambda: viewer.meant == ["", "de: TWO.", "de: THREE.", "de: FOUR."])
    say(shared, "Five.")
    viewer.wait(lambda: viewer.meant[-1] == "de: FIVE.")
    shared.leave(viewer)
    say(shared, "Six.")
    assert "Six." not in viewer.said
    assert shared.viewers == 0


def test_what_is_said_while_the_model_loads_is_translated_once(
    shared: Broadcast, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, translator = threading.Event(), pool.translator

    def slow(*names: str | None) -> Any:
        assert loaded.wait(60)
        return translator(*names)

    monkeypatch.setattr(pool, "translator", slow)
    shared.put(SpeechStarted(0.0))
    shared.put(CommittedText(" This", 0.0, 1.0))
    viewer = Viewer()
    shared.join(viewer, "de")
    shared.put(CommittedText(" is it.", 1.0, 2.0))
    shared.put(SpeechEnded(2.0))
    loaded.set()
    say(shared, "Good.")
    viewer.wait(lambda: viewer.meant == ["de: THIS IS IT.", "de: GOOD."])


@pytest.mark.parametrize("comes_late", [False, True])
def test_viewers_read_corrected_text_and_its_translation(
    shared: Broadcast, pool: Any, *, comes_late: bool
) -> None:
    shared.begin("en", None, CaptionLines(corrects=True))
    viewer, speech = Viewer(), Viewer()
    shared.join(speech, "")
    if not comes_late:
        shared.join(viewer, "de")
    shared.put(SpeechStarted(0.0))
    shared.put(CommittedText(" So. Ask", 0.0, 1.0))
    if comes_late:
        shared.join(viewer, "de")
    shared.put(CommittedText(" knot.", 1.0, 2.0))
    shared.put(SpeechEnded(2.0))
    assert speech.said == ["So. Ask knot."]
    shared.put(CorrectedText(" So. Ask not.", 0.0, 2.0, " So. Ask knot."))
    assert speech.said == ["So. Ask not."]
    viewer.wait(lambda: viewer.meant == ["de: SO. de: ASK NOT."])
    assert viewer.said == speech.said
    assert [text for _, text in pool.translated] == ["So.", "Ask not."]


def test_who_comes_late_reads_each_open_utterance_as_a_sentence_of_its_own(
    shared: Broadcast, pool: Any
) -> None:
    shared.begin("en", None, CaptionLines(corrects=True))
    shared.put(SpeechStarted(0.0))
    shared.put(CommittedText(" I said", 0.0, 1.0))
    shared.put(CorrectedText(" I say", 0.0, 1.0, " I said"))
    shared.put(CommittedText(" yes please", 1.0, 2.0))
    shared.put(SpeechEnded(2.0))
    shared.put(SpeechStarted(3.0))
    shared.put(CommittedText(" what now", 3.0, 4.0))
    viewer = Viewer()
    shared.join(viewer, "de")
    shared.put(SpeechEnded(4.0))
    shared.put(CorrectedText(" yes, please", 1.0, 2.0, " yes please"))
    shared.put(CorrectedText(" what now?", 3.0, 4.0, " what now"))
    viewer.wait(lambda: viewer.meant == ["de: I SAY YES, PLEASE", "de: WHAT NOW?"])
    assert [text for _, text in pool.translated] == ["I say yes, please", "what now?"]


def test_only_the_incomplete_sentence_runs_while_text_waits_for_its_correction(
    shared: Broadcast,
) -> None:
    shared.begin("en", None, CaptionLines(corrects=True))
    viewer = Viewer()
    shared.join(viewer, "de")
    say(shared, "I said yes please")
    shared.put(SpeechStarted(2.0))
    shared.put(CommittedText(" It is. But what", 2.0, 3.0))
    shared.put(PartialText(" is this"))
    viewer.wait(lambda: viewer.running == ["", "BUT WHAT IS THIS …"])
    shared.put(CorrectedText(" I said yes, please.", 0.0, 1.0, " I said yes please"))
    viewer.wait(lambda: viewer.meant == ["de: I SAID YES, PLEASE.", ""])
    assert viewer.running == ["", "BUT WHAT IS THIS …"]


def test_the_translation_of_the_speakers_page_is_not_made_again(
    shared: Broadcast, pool: Any
) -> None:
    shared.begin("en", "de", CaptionLines())
    viewer, other = Viewer(), Viewer()
    shared.join(viewer, "de")
    shared.join(other, "es")
    say(shared, "Yes.")
    shared.put(TranslationFinal("Ja.", 0.0, 1.0, "Yes."))
    assert viewer.meant == ["Ja."]
    other.wait(lambda: other.meant == ["es: YES."])
    assert [target for target, _ in pool.translated] == ["es"]


def test_a_broadcast_goes_on_with_the_next_session(shared: Broadcast) -> None:
    viewer = Viewer()
    shared.join(viewer, "de")
    say(shared, "One.")
    viewer.wait(lambda: viewer.meant == ["de: ONE."])
    shared.put(SessionEnded(2.0))
    shared.end_session()
    assert {"type": "view_live", "live": False} in viewer.messages
    shared.begin("en", None, CaptionLines())
    say(shared, "Two.")
    viewer.wait(lambda: viewer.meant == ["de: TWO."])
    shared.begin("de", None, CaptionLines())
    assert viewer.view["target"] == "", "from German there is no German"
    assert viewer.view["languages"] == [["en", "English"]]


def test_captions_wait_neither_for_viewers_who_choose_nor_for_the_models_on_the_disk(
    shared: Broadcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewers = [Viewer() for _ in range(20)]
    for viewer in viewers:
        shared.join(viewer, "de")
    reading, go_on = threading.Semaphore(0), threading.Event()
    read = broadcasts_module.picker_options

    def slow() -> PickerOptions:
        reading.release()
        assert go_on.wait(60)
        return read()

    monkeypatch.setattr(broadcasts_module, "picker_options", slow)
    choosing = threading.Thread(target=shared.join, args=(viewers[0], "es"))
    choosing.start()
    try:
        assert reading.acquire(timeout=60)
        say(shared, "One.")
        viewers[1].wait(lambda: viewers[1].meant == ["de: ONE."])
        shared.end_session()
        shared.begin("en", None, CaptionLines())
        assert [viewer.view["target"] for viewer in viewers] == ["de"] * 20
    finally:
        go_on.set()
        choosing.join(60)
    viewers[0].wait(lambda: viewers[0].view["target"] == "es")
    assert not reading.acquire(blocking=False), "once for the one who chose, for no session"


def test_a_translation_that_fails_is_said_and_the_speech_goes_on(shared: Broadcast) -> None:
    viewer = Viewer()
    shared.join(viewer, "fr")
    viewer.wait(lambda: viewer.messages[-1]["type"] == "view_problem")
    assert viewer.messages[-1]["message"] == "the French model is damaged"
    say(shared, "Still here.")
    assert viewer.said == ["Still here."]


def test_a_language_that_is_not_offered_yet_is_remembered(pool: Any) -> None:
    broadcast = Broadcasts(pool).open("anna")
    viewer = Viewer()
    broadcast.join(viewer, "de")  # the speaker has not started
    assert (viewer.view["languages"], viewer.view["live"]) == ([], False)
    broadcast.begin("en", None, CaptionLines())
    assert viewer.view["target"] == "de"
    say(broadcast, "One.")
    viewer.wait(lambda: viewer.meant == ["de: ONE."])


def test_limits_and_ends(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broadcasts = Broadcasts(pool)
    shared = broadcasts.open("anna")
    shared.begin("en", None, CaptionLines())
    assert broadcasts.of("anna", shared.token) is shared
    assert broadcasts.of("ben", shared.token) is None, "another user's"
    monkeypatch.setattr(broadcasts_module, "_MAX_VIEWERS", 2)
    viewers = [Viewer() for _ in range(3)]
    for viewer in viewers[:2]:
        shared.join(viewer, "de")
    with pytest.raises(OptionError, match="2 people are watching"):
        shared.join(viewers[2], "")
    monkeypatch.setattr(broadcasts_module, "_MAX_LANGUAGES", 1)
    shared.join(viewers[1], "")
    shared.join(viewers[1], "es")
    assert "1 languages already" in viewers[1].messages[-1]["message"]
    broadcasts.end(shared)
    assert broadcasts.find(shared.token) is None
    assert [viewer.messages[-1]["type"] for viewer in viewers[:2]] == ["view_ended"] * 2
    timed = broadcasts.open("anna")
    monkeypatch.setattr(broadcasts_module.time, "time", lambda: timed.ends_at)
    assert broadcasts.find(timed.token) is None, "its time is over"
