"""Corrections in a session: when they come, when they do not, and what waits for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edgeapp.cli import main
from edgeapp.commands.live import _run
from edgeapp.live.corrections import SettledEvents
from edgeapp.live.event_encoder import EventEncoder
from edgeapp.live.events import (
    AudioLost,
    SessionEnded,
    SessionEvent,
    SpeakerEvent,
    Status,
    TextSettled,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
)
from edgeapp.live.pair_translators import PairTranslators
from edgeapp.live.session import LiveSession
from edgeapp.live.sources import FileSource, LiveSource, Notice
from edgeapp.live.speech_channel import SpeechChannel
from edgeapp.live.view import CaptionView, TextView
from pipelines import (
    CommittedText,
    EngineError,
    LiveTranscriber,
    LiveTranslator,
    PartialText,
    SegmentDone,
    Transcriber,
    Word,
)
from pipelines.asr import (
    CorrectedText,
    CorrectionDue,
    LiveEvent,
    Samples,
    SpeechEnded,
    SpeechStarted,
)
from pipelines.errors import DeviceLost
from pipelines.hub import assets_folder
from tests.edgeapp.live.test_session import Clock, Shouting
from tests.edgeapp.live.test_view import Screen

SAID = CommittedText(" ask not", 0.2, 0.9, (), "en")
DUE = CorrectionDue(np.zeros(16_000, np.float32), 0, SAID.text, SAID.start, SAID.end, "en")
CORRECTED = CorrectedText(" Ask not.", SAID.start, SAID.end, SAID.text, (), "en")
UTTERANCE: list[LiveEvent] = [SpeechStarted(0.1), SAID, DUE, SpeechEnded(1.0)]


class Scripted:
    """A recognizer that says at each block of 0.1 s what a script has for it.

    Args:
        script: By the number of the block; a function is called.
        answer: What is corrected, once `ready` is set.
    """

    level, language, corrects = 0.0, "en", True

    def __init__(self, script: dict[int, Any], answer: CorrectedText | Exception | None) -> None:
        self._script, self._answer, self._blocks = script, answer, 0
        self.ready = threading.Event()
        self.at_end: Callable[[], object] = lambda: None
        self.was_wanted: bool | None = None
        self.answered = threading.Event()

    def feed(self, samples: Samples) -> list[LiveEvent]:
        self._blocks += 1
        found = self._script.get(self._blocks, [])
        if callable(found):
            found()
            return []
        return list(found)

    def finish(self) -> list[LiveEvent]:
        self.at_end()
        return []

    def skip(self, samples: int) -> list[LiveEvent]:
        return []

    def correct(self, due: CorrectionDue, is_wanted: Callable[[], bool]) -> CorrectedText | None:
        assert self.ready.wait(60)
        self.was_wanted = is_wanted()
        self.answered.set()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def events_of(
    recognizer: Scripted,
    clock: Clock | None = None,
    translator: Shouting | None = None,
    seconds: int = 2,
) -> list[SessionEvent]:
    channel = SpeechChannel(
        cast(LiveTranscriber, recognizer),
        cast(LiveTranslator, translator),
        clock=clock or Clock(),
    )
    source = FileSource(np.zeros(seconds * 16_000, np.float32), 0)
    events = list(LiveSession(channel, clock=clock or Clock()).run(source))
    return [e for e in cast(list[SessionEvent], events) if not isinstance(e, Status)]


def test_captions_go_on_until_the_correction_comes() -> None:
    recognizer = Scripted({10: UTTERANCE, 12: [PartialText(" what your")]}, CORRECTED)
    recognizer._script[14] = recognizer.ready.set
    events = events_of(recognizer)
    assert [e for e in events if not isinstance(e, SpeechStarted)] == [
        SAID, SpeechEnded(1.0), PartialText(" what your"), CORRECTED, SessionEnded(2.0),
    ]  # fmt: skip


@pytest.mark.parametrize("late_s", [2.9, 3.1])
def test_a_correction_comes_within_three_seconds_or_not_at_all(late_s: float) -> None:
    clock = Clock()
    recognizer = Scripted({10: UTTERANCE, 12: lambda: clock.sleep(late_s)}, CORRECTED)
    recognizer._script[14] = recognizer.ready.set
    in_time = late_s < 3
    events = events_of(recognizer, clock)
    assert (CORRECTED in events) == in_time
    assert (TextSettled(SAID.end) in events) != in_time
    assert recognizer.was_wanted == in_time


def test_a_correction_that_is_ready_too_late_is_dropped_though_the_session_was_busy() -> None:
    clock = Clock()
    recognizer = Scripted({10: UTTERANCE}, CORRECTED)

    def work() -> None:
        clock.sleep(3.1)
        recognizer.ready.set()
        assert recognizer.answered.wait(60)

    recognizer._script[11] = work
    events = events_of(recognizer, clock)
    assert TextSettled(SAID.end) in events
    assert CORRECTED not in events
    assert recognizer.was_wanted is False


def test_at_the_end_a_correction_is_wanted_though_it_is_late() -> None:
    clock = Clock()
    recognizer = Scripted({18: UTTERANCE}, CORRECTED)

    def come_late() -> None:
        clock.sleep(9.0)
        recognizer.ready.set()

    recognizer.at_end = lambda: threading.Timer(0.2, come_late).start()
    assert events_of(recognizer, clock)[-2:] == [CORRECTED, SessionEnded(2.0)]
    assert recognizer.was_wanted


class Interrupted:
    """A microphone that is lost, or pauses, after the utterance.

    Args:
        interruption: A Notice of a gap, or an error.
        clock: Of the session.
    """

    waiting_s = 0.0

    def __init__(self, interruption: Notice | DeviceLost, clock: Clock) -> None:
        self._blocks: list[Samples | Notice | DeviceLost | None] = [
            np.zeros(1_600, np.float32), interruption, np.zeros(1_600, np.float32), None,
        ]  # fmt: skip
        self._interruption, self._clock = interruption, clock

    def read(self, timeout_s: float) -> Samples | Notice | None:
        block = self._blocks.pop(0)
        if block is self._interruption:
            self._clock.sleep(2.9)  # of the three seconds
        if isinstance(block, DeviceLost):
            raise block
        return block


@pytest.mark.parametrize("interruption", [Notice("asleep", gap_s=1_000.0), DeviceLost("gone")])
def test_a_correction_keeps_a_microphone_waiting_for_three_seconds_at_most(
    interruption: Notice | DeviceLost,
) -> None:
    clock = Clock()
    recognizer = Scripted({1: UTTERANCE, 2: []}, CORRECTED)
    recognizer._script[2] = recognizer.ready.set
    channel = SpeechChannel(cast(LiveTranscriber, recognizer), clock=clock)
    source = cast(LiveSource, Interrupted(interruption, clock))
    after = iter([source])  # the microphone is opened again
    session = LiveSession(channel, clock=clock)
    events = [
        e for e in session.run(source, lambda: next(after, None)) if not isinstance(e, Status)
    ]
    assert CORRECTED not in events
    said = next(e for e in events if isinstance(e, AudioLost | WarningRaised))
    assert events.index(TextSettled(SAID.end)) < events.index(said)


def test_a_gap_does_not_make_the_session_wait_for_corrections() -> None:
    clock = Clock()
    recognizer = Scripted({1: UTTERANCE}, CORRECTED)
    recognizer.at_end = recognizer.ready.set
    channel = SpeechChannel(cast(LiveTranscriber, recognizer), clock=clock)
    source = cast(LiveSource, Interrupted(Notice("lost", gap_s=9.0), clock))
    events = list(LiveSession(channel, clock=clock).run(source))
    assert CORRECTED in events


def test_a_recording_that_runs_ahead_of_the_clock_waits() -> None:
    recognizer = Scripted({1: UTTERANCE, 60: [PartialText(" what")]}, CORRECTED)
    threading.Timer(0.2, recognizer.ready.set).start()
    events = events_of(recognizer, seconds=7)
    assert events.index(CORRECTED) < events.index(PartialText(" what"))


def test_corrections_are_waited_for_at_the_end() -> None:
    recognizer = Scripted({18: UTTERANCE}, CORRECTED)
    recognizer.at_end = lambda: threading.Timer(0.1, recognizer.ready.set).start()
    assert events_of(recognizer)[-2:] == [CORRECTED, SessionEnded(2.0)]


@pytest.mark.parametrize("error", [EngineError("no room"), ValueError("no room")])
def test_captions_go_on_where_a_correction_fails(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    recognizer = Scripted({10: UTTERANCE}, error)
    recognizer.ready.set()
    events = events_of(recognizer)
    is_expected = isinstance(error, EngineError)
    message = "no room" if is_expected else "unexpected error (ValueError: no room)"
    assert WarningRaised(f"{message}; what was said is not corrected") in events
    assert ("Traceback" in capsys.readouterr().err) != is_expected
    assert events[-2:] == [TextSettled(SAID.end), SessionEnded(2.0)]


@pytest.mark.parametrize("answer", [CORRECTED, None])
def test_a_sentence_is_translated_once_after_its_correction(answer: CorrectedText | None) -> None:
    recognizer = Scripted({10: UTTERANCE}, answer)
    recognizer._script[14] = recognizer.ready.set
    events = events_of(recognizer, translator=Shouting())
    finals = [e.text for e in events if isinstance(e, TranslationFinal)]
    assert finals == ["ASK NOT." if answer else "ASK NOT"]


def test_the_incomplete_sentence_is_translated_before_its_correction() -> None:
    said = CommittedText(" ka ke ki ko", 0.2, 0.9, (), "en")
    script = {
        2: [SpeechStarted(0.1), said, PartialText(" ku ba")],
        4: [PartialText(""), SpeechEnded(1.0)],
    }
    recognizer = Scripted(script | {6: [SpeechStarted(1.1), PartialText(" be bi")]}, None)
    running = [
        e.text
        for e in events_of(recognizer, translator=Shouting())
        if isinstance(e, TranslationPartial)
    ]
    assert running == ["KO KU BA", "BE BI"]


def test_text_waits_for_its_correction_and_what_follows_it_of_the_speaker_too() -> None:
    settled, later = SettledEvents(corrects=True), CommittedText(" Yes", 0.5, 0.8)
    me, them = (lambda e, name=name: SpeakerEvent(name, e) for name in ("Me", "Them"))
    for event in (me(SAID), them(later), me(SpeechEnded(1.0)), AudioLost(1.0, 2.0, "lost")):
        assert settled.add(event) == []
    assert (settled.open_text("Me"), settled.open_text("Them")) == (SAID.text, later.text)
    for event in (me(PartialText(" what")), WarningRaised("loud")):
        assert settled.add(event) == [event]
    assert settled.add(them(TextSettled(0.8))) == [them(later)]
    assert settled.add(them(SpeechStarted(2.1))) == [], "it follows the loss, which waits"
    assert settled.add(me(CORRECTED)) == [
        me(CommittedText(CORRECTED.text, 0.2, 0.9, (), "en")),
        me(SpeechEnded(1.0)),
        AudioLost(1.0, 2.0, "lost"),
        them(SpeechStarted(2.1)),
    ]
    assert settled.add(me(SAID)) == []
    assert settled.add(SessionEnded(2.0)) == [me(SAID), SessionEnded(2.0)]


def test_a_translation_waits_for_its_text_only() -> None:
    settled, next_text = SettledEvents(corrects=True), CommittedText(" what", 1.5, 1.9)
    translation = TranslationFinal("Frag nicht.", 0.2, 0.9, "Ask not.")
    for event in (SAID, translation, SpeechEnded(1.0), SpeechStarted(1.4), next_text):
        assert settled.add(event) == []
    final = CommittedText(CORRECTED.text, 0.2, 0.9, (), "en")
    rest = [translation, SpeechEnded(1.0), SpeechStarted(1.4)]
    assert settled.add(CORRECTED) == [final, *rest]
    assert settled.add(translation) == [translation], "though the next utterance is open"
    assert settled.add(TextSettled(1.9)) == [next_text]


def test_nothing_waits_if_nothing_is_corrected() -> None:
    assert SettledEvents(corrects=False).add(SAID) == [SAID]


def test_programs_learn_which_texts_are_replaced() -> None:
    encoder = EventEncoder(lambda: "en")
    words = (Word(" Ask", 0.2, 0.5, 0.9), Word(" not.", 0.5, 0.9, 0.7))
    corrected = CorrectedText(" Ask not.", 0.2, 0.9, " ask not", words, "en")
    events: list[SessionEvent] = [
        SpeechStarted(0.1), CommittedText(" ask", 0.2, 0.5), CommittedText(" not", 0.5, 0.9),
        SpeechEnded(1.0), SpeechStarted(2.0), CommittedText(" what", 2.1, 2.4), corrected,
    ]  # fmt: skip
    content = [encoder.content(event) for event in events][-1]
    assert (content["type"], content["replaces"], content["utterance"]) == ("corrected", [2, 3], 1)
    assert (content["text"], content["start"], content["end"]) == (" Ask not.", 0.2, 0.9)
    assert (content["language"], content["confidence"]) == ("en", 0.8)
    assert "replaced_text" not in content


def test_a_terminal_prints_what_was_held_back_when_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen(monkeypatch)
    with CaptionView(translated=False, corrects=True) as view:
        for event in (SAID, SpeechEnded(1.0)):
            view.show(event)
    assert "ask not" in screen.everything.partition("00:00")[2]


def test_a_pipe_gets_what_was_held_back_when_it_is_interrupted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Session:
        corrects = True

        def run(self, *sources: object) -> Iterator[SessionEvent]:
            yield from (SAID, SpeechEnded(1.0))
            raise KeyboardInterrupt

    capture: Any = SimpleNamespace(
        source=None, is_recording=False, reopen_microphone=None, take_failure=lambda: None
    )
    with pytest.raises(KeyboardInterrupt):
        _run(cast(LiveSession, Session()), capture, [], TextView())
    assert capsys.readouterr().out == "ask not\n"


class Pairs:
    """Translators of all languages."""

    def prepare(self, source: str) -> None:
        pass

    def find(self, source: str, *, wait: bool) -> Shouting:
        return Shouting()


def test_the_first_utterance_of_a_detected_language_is_translated_while_it_runs() -> None:
    recognizer = Scripted({1: [SpeechStarted(0.1), SAID], 2: [PartialText(" what", "en")]}, None)
    pairs = cast(PairTranslators, Pairs())
    channel = SpeechChannel(cast(LiveTranscriber, recognizer), pairs=pairs, clock=Clock())
    events = list(LiveSession(channel).run(FileSource(np.zeros(16_000, np.float32), 0)))
    assert TranslationPartial("ASK NOT WHAT") in events


def test_a_terminal_prints_a_line_when_it_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch)
    with CaptionView(translated=False, corrects=True) as view:
        for event in (SAID, SpeechEnded(1.0), PartialText(" what")):
            view.show(event)
        assert screen.frame[0] == "ask not what", "it is shown meanwhile"
        assert "00:00" not in screen.everything
        view.show(CORRECTED)
        assert screen.frame[0] == "what"
    assert "Ask not." in screen.everything


@pytest.mark.slow
@pytest.mark.parametrize("corrects", [True, False])
def test_files_and_a_pipe_get_the_corrected_text(
    corrects: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is decoded once more is made to differ, so that it can be told from what was heard."""
    stream_chunks = Transcriber.stream_chunks

    def shout(self: Transcriber, *arguments: Any, **options: Any) -> Any:
        from dataclasses import replace

        for event in stream_chunks(self, *arguments, **options):
            if isinstance(event, SegmentDone):
                words = tuple(replace(w, word=w.word.upper()) for w in event.segment.words)
                said = replace(event.segment, text=event.segment.text.upper(), words=words)
                event = SegmentDone(said)
            yield event

    monkeypatch.setattr(Transcriber, "stream_chunks", shout)
    monkeypatch.chdir(tmp_path)
    question = str(assets_folder() / "samples" / "question.flac")
    outputs = [x for name in ("a.txt", "a.srt", "a.jsonl") for x in ("-o", name)]
    command = ["live", "-m", "demo", "--from-file", question, "--speed", "0", *outputs]
    with pytest.raises(SystemExit) as stop:
        main([*command, *["--correct"] * corrects])
    assert stop.value.code in (0, None)
    written = {path.suffix: path.read_text("utf-8") for path in tmp_path.iterdir()}
    expected = "TRAIN TO BOSTON" if corrects else "train to Boston"
    assert expected in written[".txt"]
    assert expected in " ".join(written[".srt"].split())
    assert written[".txt"] == capsys.readouterr().out
    events = [json.loads(line) for line in written[".jsonl"].splitlines()]
    said = "".join(event["text"] for event in events if event["type"] == "committed")
    assert said.split() == written[".txt"].split()
    assert {event["type"] for event in events} == {"speech_start", "committed", "speech_end", "end"}
