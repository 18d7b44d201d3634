"""Live captions of a browser: audio source, caption lines, task, spectrogram."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from edgeapp.history import History
from edgeapp.history.store import Store
from edgeapp.live.events import (
    LanguageNote,
    SessionEnded,
    SpeakerEvent,
    Status,
    TextSettled,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
)
from edgeapp.live.session import LiveSession
from edgeapp.live.setup import SessionSetup
from edgeapp.live.sources import Notice
from edgeapp.memory_limit import MemoryLimit
from edgeapp.server.page.picker_options import ModelChoice
from edgeapp.server.sessions import Session, Sessions, TaskCancelled
from edgeapp.server.tasks.browser_source import BrowserSource
from edgeapp.server.tasks.caption_lines import CaptionLines
from edgeapp.server.tasks.live_task import LiveTask
from edgeapp.server.tasks.spectrogram import spectrogram
from pipelines import Transcriber, Word
from pipelines.asr import CorrectedText
from pipelines.asr.live.events import CommittedText, PartialText, SpeechEnded, SpeechStarted
from pipelines.errors import InputError, ModelError
from pipelines.subtitles import Cue


def fake_pool(using: Any) -> Any:
    """A pool of models for a task whose session is scripted."""
    return SimpleNamespace(
        using=using, memory_limit=MemoryLimit(), name_of=lambda recognizer: "demo"
    )


def tone(rate: int, seconds: float) -> bytes:
    time = np.arange(int(rate * seconds)) / rate
    return (0.5 * 32767 * np.sin(2 * np.pi * 440 * time)).astype("<i2").tobytes()


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000])
def test_audio_is_resampled_completely(rate: int) -> None:
    source = BrowserSource(rate)
    data = tone(rate, 1.0)
    pieces = []
    for start in range(0, len(data), 4096):
        source.put(data[start : start + 4096])
        assert (piece := source.read(0)) is not None
        pieces.append(piece)
    source.stop()
    while (piece := source.read(0)) is not None:
        pieces.append(piece)
    resampled = np.concatenate(pieces)
    assert abs(len(resampled) - 16_000) <= 1
    assert resampled.dtype == np.float32
    loudest = np.abs(np.fft.rfft(resampled)).argmax() * 16_000 / len(resampled)
    assert abs(loudest - 440) < 2
    assert abs(np.abs(resampled).max() - 0.5) < 0.02


def test_audio_beyond_the_queue_is_dropped_and_counted() -> None:
    source = BrowserSource(16_000)
    for _ in range(65):
        source.put(tone(16_000, 1.0))
    assert source.waiting_s == 60.0
    heard = source.read(0)
    source.put(tone(16_000, 1.0))
    lost, more = source.read(0), source.read(0)
    assert isinstance(lost, Notice)
    assert (lost.gap_s, lost.lost_s) == (5.0, 5.0), "its place in the audio"
    assert lost.message == "this machine is too slow: 5.0 s of audio were lost"
    assert sum(len(part) for part in (heard, more)) == pytest.approx(61 * 16_000, abs=100)
    source.cancel()
    assert source.waiting_s == 0.0


def test_two_channels_are_resampled_apart() -> None:
    source = BrowserSource(48_000, 2)
    left = np.frombuffer(tone(48_000, 1.0), "<i2")
    source.put(np.stack([left, np.zeros_like(left)], axis=1).tobytes())
    assert (source.received, source.taken, source.waiting_s) == (96_000, 0, 1.0)
    source.stop()
    pieces = []
    while (piece := source.read(0)) is not None:
        pieces.append(piece)
    resampled = np.concatenate(pieces)
    assert abs(len(resampled) - 16_000) <= 1
    assert abs(np.abs(resampled[:, 0]).max() - 0.5) < 0.02
    assert np.abs(resampled[:, 1]).max() < 1e-3
    assert source.taken == 96_000
    with pytest.raises(InputError, match="groups of four bytes"):
        source.put(b"ab")


def test_invalid_audio_is_rejected() -> None:
    with pytest.raises(InputError, match="7 Hz cannot be used"):
        BrowserSource(7)
    with pytest.raises(InputError, match="pairs of bytes"):
        BrowserSource(16_000).put(b"abc")


def update(captions: CaptionLines, *events: Any) -> list[dict[str, Any]]:
    return [message for event in events for message in captions.update(event)]


def test_an_utterance_is_a_line() -> None:
    captions = CaptionLines()
    update(captions, SpeechStarted(0.5), PartialText(" Good"))
    assert [(line.start, line.text, line.tail) for line in captions.lines] == [(0.5, "", " Good")]
    messages = update(captions, CommittedText(" Good morning.", 0.5, 1.5), PartialText(" Where"))
    assert messages[0]["type"] == "live_line"
    assert (captions.lines[0].text, captions.lines[0].tail) == ("Good morning.", " Where")
    messages = update(
        captions, SpeechEnded(2.0), SpeechStarted(3.0), CommittedText(" Yes.", 3.0, 3.4)
    )
    assert [line.text for line in captions.lines] == ["Good morning.", "Yes."]
    assert captions.lines[0].tail == ""
    cues = [m for m in messages if m["type"] == "live_cue"]
    assert [(cue["start"], cue["text"], cue["translated"]) for cue in cues] == [
        (3.0, "Yes.", False)
    ]


def test_silence_leaves_no_line() -> None:
    captions = CaptionLines()
    update(captions, SpeechStarted(0.5), SpeechEnded(1.0), SpeechStarted(2.0), SpeechEnded(2.5))
    assert [line.start for line in captions.lines] == [2.0]
    assert not captions.lines[0].text


def test_the_translation_of_text_that_vanishes_is_cleared() -> None:
    captions = CaptionLines()
    update(captions, SpeechStarted(0.0), PartialText(" I am"), TranslationPartial("Ich bin"))
    messages = update(captions, PartialText(""), SpeechEnded(1.0))
    assert (messages[-1]["tail"], messages[-1]["running"]) == ("", "")
    update(
        captions,
        SpeechStarted(1.0), CommittedText(" I am here", 1.0, 2.0), TranslationPartial("Ich bin"),
        SpeechEnded(2.0),
    )  # fmt: skip
    assert captions.lines[-1].running == "Ich bin", "until the final translation replaces it"


def test_translations_belong_to_their_lines() -> None:
    captions = CaptionLines()
    update(
        captions,
        SpeechStarted(0.0), CommittedText(" Good morning.", 0.0, 1.0), SpeechEnded(1.0),
        SpeechStarted(2.0), CommittedText(" Where is it?", 2.0, 3.0),
        TranslationFinal("Guten Morgen.", 0.0, 1.0, "Good morning."),
        TranslationPartial("Wo"),
    )  # fmt: skip
    assert [(line.translation, line.running) for line in captions.lines] == [
        ("Guten Morgen.", ""),
        ("", "Wo"),
    ]
    update(captions, TranslationFinal("Wo ist es?", 2.0, 3.0, "Where is it?"))
    assert (captions.lines[1].translation, captions.lines[1].running) == ("Wo ist es?", "")


def test_each_speaker_has_lines_and_translations_of_their_own() -> None:
    captions = CaptionLines()

    def me(event: Any) -> SpeakerEvent:
        return SpeakerEvent("Me", event)

    def them(event: Any) -> SpeakerEvent:
        return SpeakerEvent("Them", event)

    early = [me(SpeechStarted(0.0)), me(CommittedText(" Can you", 0.0, 1.0))]
    update(captions, *early, them(SpeechStarted(1.0)), them(CommittedText(" Yes.", 1.0, 1.4)))
    update(
        captions,
        me(CommittedText(" hear me?", 1.0, 2.0)),
        them(TranslationFinal("Ja.", 1.0, 1.4, "Yes.")),
        me(TranslationFinal("Hörst du mich?", 0.0, 2.0, "Can you hear me?")),
        me(SpeechEnded(2.0)),
        me(SpeechStarted(3.0)),
        me(CommittedText(" Good", 3.0, 3.5)),
    )
    shown = [(line.speaker, line.text, line.translation) for line in captions.lines]
    assert shown == [
        ("Me", "Can you hear me?", "Hörst du mich?"), ("Them", "Yes.", "Ja."), ("Me", "Good", ""),
    ]  # fmt: skip
    copied = captions.copy()
    update(copied, them(CommittedText(" Hello", 4.0, 4.5)), me(CommittedText(" bye.", 3.5, 4.0)))
    assert [line.text for line in copied.lines] == ["Can you hear me?", "Yes. Hello", "Good bye."]
    assert captions.lines[2].text == "Good", "a copy goes on by itself"
    assert [line.text for line in copied.retranslate(1)] == ["Yes. Hello", "Good bye."]
    update(captions, SessionEnded(5.0))
    assert [(cue.speaker, cue.text) for cue in captions.cues] == [
        ("Them", "Yes."), ("Me", "Can you hear me?"), ("Me", "Good"),
    ]  # fmt: skip
    assert [(cue.speaker, cue.text) for cue in captions.translated] == [
        ("Them", "Ja."), ("Me", "Hörst du mich?"),
    ]  # fmt: skip


def test_doubts_of_a_translation_are_those_of_the_line() -> None:
    captions = CaptionLines()
    update(
        captions,
        SpeechStarted(0.0), CommittedText(" Good morning. Where is it?", 0.0, 1.0),
        TranslationFinal("Guten 🌞 Morgen.", 0.0, 0.5, "Good morning.", ((9, 16),)),
        TranslationFinal("Wo ist es?", 0.5, 1.0, "Where is it?", ((0, 2), (7, 10))),
    )  # fmt: skip
    (line,) = captions.lines
    shown = line.translation.encode("utf-16-le")
    marked = [shown[2 * start : 2 * end].decode("utf-16-le") for start, end in line.doubts]
    assert marked == ["Morgen.", "Wo", "es?"]
    assert [getattr(cue, "doubts", ()) for cue in captions.translated] == [
        ((9, 16),), ((0, 2), (7, 10)),
    ]  # fmt: skip
    captions.retranslate(1)
    assert not line.doubts


def test_speech_without_pauses_is_split_into_lines() -> None:
    captions = CaptionLines()
    update(captions, SpeechStarted(0.0))
    for second in range(8):
        update(
            captions,
            CommittedText(f" This is sentence number {second}, which goes on.", second, second),
        )
    assert len(captions.lines) == 2
    assert all(line.text.endswith("goes on.") for line in captions.lines)


def test_a_finished_line_shows_no_translation_of_what_follows() -> None:
    captions = CaptionLines()
    update(captions, SpeechStarted(0.0))
    update(captions, CommittedText(" A long sentence" * 12 + ".", 0.0, 5.0))
    update(captions, TranslationPartial("Die nächsten Worte"))
    assert captions.lines[0].running
    update(captions, CommittedText(" Next words", 5.0, 6.0))
    assert len(captions.lines) == 2
    assert not captions.lines[0].running


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("failure", [None, ModelError("the model is damaged")])
def test_committed_text_is_stored_when_the_tab_is_closed_or_the_session_fails(
    monkeypatch: pytest.MonkeyPatch, failure: ModelError | None, *, correct: bool
) -> None:
    """Although its cue is not complete yet."""
    kept: list[Cue] = []
    sent: list[str] = []

    class Session:
        def run(self, source: object) -> Iterator[object]:
            yield SpeechStarted(0.0)
            yield CommittedText(" Half a sentence", 0.0, 1.0)
            if failure is not None:
                raise failure
            task.cancel()
            yield SessionEnded(2.0)

    @contextmanager
    def context(*arguments: object, **options: object) -> Iterator[Any]:
        yield SimpleNamespace(add=kept.append)

    setup = SessionSetup(cast(LiveSession, Session()), cast(Transcriber, None), "en")
    monkeypatch.setattr(
        "edgeapp.server.tasks.live_task.make_live_setup", lambda pool, choice, speakers: setup
    )
    pool = fake_pool(context)
    choice = ModelChoice(correct=correct)
    history: Any = SimpleNamespace(recording=context)
    task = LiveTask(pool, history, choice, 16_000)
    with pytest.raises(TaskCancelled if failure is None else ModelError):
        task.run(lambda message: sent.append(message["type"]))
    assert [cue.text for cue in kept] == ["Half a sentence"]
    assert sent.count("live_cue") == 1, "for the page's download"


def test_captions_do_not_wait_for_the_history(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another thread may write, search or remove for seconds."""
    sentences = [f" This is sentence {number}." for number in range(20)]
    shown: list[str] = []
    go_on = threading.Event()
    run = Store.run

    def slow(self: Store, *arguments: Any, **options: Any) -> Any:
        assert go_on.wait(60)
        return run(self, *arguments, **options)

    class Session:
        def run(self, source: object) -> Iterator[object]:
            for number, text in enumerate(sentences):
                yield SpeechStarted(number)
                yield CommittedText(text, number, number + 0.9)
                yield SpeechEnded(number + 0.9)
            assert len([text for text in shown if "sentence" in text]) == len(sentences)
            go_on.set()
            yield SessionEnded(20.0)

    def send(message: dict[str, Any]) -> None:
        if message["type"] == "live_cue":
            shown.append(message["text"])

    @contextmanager
    def using(*models: object) -> Iterator[None]:
        yield

    setup = SessionSetup(cast(LiveSession, Session()), cast(Transcriber, None), "en")
    monkeypatch.setattr(
        "edgeapp.server.tasks.live_task.make_live_setup", lambda pool, choice, speakers: setup
    )
    monkeypatch.setattr(Store, "run", slow)
    pool = fake_pool(using)
    choice = ModelChoice()
    with History(tmp_path / "history.db", pytest.fail) as history:
        LiveTask(pool, history, choice, 16_000).run(send)
        (summary,) = history.list()
        record = history.open(summary.id)
    assert record is not None
    assert [cue.text for cue in record.transcript.segments] == sentences, "none is lost"


def test_what_is_shown_as_final_is_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server that is killed then has not lost it, though the file is slow."""
    stored: list[int] = []
    run = Store.run

    def slow(self: Store, *arguments: Any, **options: Any) -> Any:
        if options.get("writes", True):
            time.sleep(0.5)
        return run(self, *arguments, **options)

    class Session:
        def run(self, source: object) -> Iterator[object]:
            yield SpeechStarted(0.0)
            yield CommittedText(" This is a sentence.", 0.0, 1.0)
            yield SessionEnded(2.0)

    def send(message: dict[str, Any]) -> None:
        if message["type"] == "live_line" and message["text"]:
            stored.append(len(history.search("sentence")))

    @contextmanager
    def using(*models: object) -> Iterator[None]:
        yield

    setup = SessionSetup(cast(LiveSession, Session()), cast(Transcriber, None), "en")
    module = "edgeapp.server.tasks.live_task"
    monkeypatch.setattr(f"{module}.make_live_setup", lambda pool, choice, speakers: setup)
    monkeypatch.setattr(f"{module}._WRITE_S", 60)
    monkeypatch.setattr(Store, "run", slow)
    pool = fake_pool(using)
    choice = ModelChoice()
    with History(tmp_path / "history.db", pytest.fail) as history:
        LiveTask(pool, history, choice, 16_000).run(send)
    assert stored
    assert set(stored) == {1}


def test_captions_of_two_speakers_that_are_cancelled_end_as_cancelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Speaker:
        recognizer = SimpleNamespace(language="en", level=0.0)

        def __init__(self, speaker: str) -> None:
            self.speaker = speaker

        def feed(self, audio: object) -> list[object]:
            tab.cancel("live")
            return [SpeechStarted(0.0), CommittedText(" hello", 0.0, 0.1)]

        def close(self) -> None:
            pass

    channels: Any = Speaker("Me"), Speaker("Them")
    setup = SessionSetup(LiveSession(*channels), cast(Transcriber, None), "en")
    monkeypatch.setattr(
        "edgeapp.server.tasks.live_task.make_live_setup", lambda pool, choice, speakers: setup
    )
    pool = fake_pool(nullcontext)
    choice = ModelChoice()
    messages: list[dict[str, Any]] = []
    tab = Session(Sessions(1), messages.append)
    task = LiveTask(pool, History(None), choice, 16_000, speakers=["Me", "Them"])
    task.put_audio(bytes(2 * 2 * 1_600))
    tab.start(task)
    assert tab.wait(60)
    assert messages[-1] == {"type": "idle", "kind": "live", "cancelled": True}
    assert not [message for message in messages if message["type"] == "error"]
    assert not capsys.readouterr().err


def test_a_corrected_line_is_replaced_and_its_cue_comes_then() -> None:
    captions = CaptionLines(corrects=True)
    messages = update(
        captions,
        SpeechStarted(0.0), CommittedText(" ask", 0.0, 0.5), CommittedText(" not.", 0.5, 1.0),
        SpeechEnded(1.0), SpeechStarted(2.0), CommittedText(" Yes.", 2.0, 2.4),
    )  # fmt: skip
    assert [line.text for line in captions.lines] == ["ask not.", "Yes."], "shown at once"
    assert not [m for m in messages if m["type"] == "live_cue"]
    words = (Word(" Ask", 0.0, 0.4, 0.9), Word(" not.", 0.6, 1.0, 0.9))
    messages = update(captions, CorrectedText(" Ask not.", 0.0, 1.0, " ask not.", words))
    assert [line.text for line in captions.lines] == ["Ask not.", "Yes."]
    assert [(m["type"], m["text"]) for m in messages] == [
        ("live_line", "Ask not."), ("live_cue", "Ask not."),
    ]  # fmt: skip
    messages = update(captions, SpeechEnded(2.5), TextSettled(2.4))
    assert [(m["type"], m["text"]) for m in messages] == [("live_cue", "Yes.")]


def test_the_corrected_words_of_a_long_utterance_go_to_their_lines() -> None:
    captions = CaptionLines(corrects=True)
    first, second = "a" * 160 + ".", "b c."
    update(
        captions,
        SpeechStarted(0.0), CommittedText(f" {first}", 0.0, 5.0), CommittedText(" b", 5.0, 6.0),
        CommittedText(" c.", 6.0, 7.0), CommittedText(" open", 7.0, 8.0),
    )  # fmt: skip
    assert [line.text for line in captions.lines] == [first, f"{second} open"]
    words = (Word(" A.", 0.1, 4.9, 0.9), Word(" B", 5.1, 5.9, 0.9), Word(" see.", 6.0, 7.0, 0.9))
    corrected = CorrectedText(" A. B see.", 0.0, 7.0, f" {first} {second}", words)
    update(captions, corrected, TranslationFinal("Ah.", 0.0, 5.0, "A."))
    assert [line.text for line in captions.lines] == ["A.", "B see. open"]
    assert captions.lines[0].translation == "Ah."
    update(captions, TranslationFinal("Beh.", 5.0, 7.0, "B see."))
    assert captions.lines[1].translation == "Beh.", "translations are counted in corrected letters"
    update(captions, CorrectedText(" opened.", 7.0, 8.0, " open"))
    assert captions.lines[1].text == "B see. opened."


def test_corrected_words_without_times_go_to_the_lines_that_had_them() -> None:
    spaced = ("Ask not what it can do " * 7).strip() + ".", " And so on."
    for first, second in (spaced, ("問わないで" * 31 + "。", "そして。")):
        captions = CaptionLines(corrects=True)
        update(
            captions,
            SpeechStarted(0.0), CommittedText(first.lower(), 0.0, 5.0),
            CommittedText(second.lower(), 5.0, 6.0),
        )  # fmt: skip
        assert len(captions.lines) == 2
        update(captions, CorrectedText(first + second, 0.0, 6.0, (first + second).lower()))
        assert [line.text for line in captions.lines] == [first, second.strip()]


def test_a_line_without_corrected_words_begins_with_what_follows() -> None:
    captions = CaptionLines(corrects=True)
    first = "a" * 160 + "."
    update(
        captions,
        SpeechStarted(0.0), CommittedText(f" {first}", 0.0, 5.0), CommittedText(" uh", 5.0, 6.0),
        CommittedText(" open", 6.0, 7.0),
    )  # fmt: skip
    words = (Word(" A.", 0.1, 4.9, 0.9),)
    update(captions, CorrectedText(" A.", 0.0, 6.0, f" {first} uh", words))
    assert [line.text for line in captions.lines] == ["A.", "open"]
    update(captions, CorrectedText(" Opened.", 6.0, 7.0, " open"))
    assert [line.text for line in captions.lines] == ["A.", "Opened."]


def test_the_history_gets_a_row_when_its_text_is_corrected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows: list[tuple[str, int, int]] = []

    class Session:
        def run(self, source: object) -> Iterator[object]:
            yield SpeechStarted(0.0)
            yield CommittedText(" ask knot.", 0.0, 1.0)
            yield SpeechEnded(1.0)
            yield CorrectedText(" Ask not.", 0.0, 1.0, " ask knot.")
            yield SessionEnded(2.0)

    def send(message: dict[str, Any]) -> None:
        if message["type"] == "live_line":
            found = len(history.search("knot")), len(history.search("not"))
            rows.append((message["text"], *found))

    setup = SessionSetup(cast(LiveSession, Session()), cast(Transcriber, None), "en")
    module = "edgeapp.server.tasks.live_task"
    monkeypatch.setattr(f"{module}.make_live_setup", lambda pool, choice, speakers: setup)
    monkeypatch.setattr(f"{module}._WRITE_S", 60)
    choice = ModelChoice.from_message({"correct": True})
    with History(tmp_path / "history.db", pytest.fail) as history:
        LiveTask(fake_pool(nullcontext), history, choice, 16_000).run(send)
        assert not history.search("knot")
        assert len(history.search("not")) == 1
    assert rows[0] == ("ask knot.", 0, 0)
    assert rows[-1] == ("Ask not.", 0, 1)


def test_text_that_waits_for_its_correction_is_stored_at_the_end() -> None:
    captions = CaptionLines(corrects=True)
    update(captions, SpeechStarted(0.0), CommittedText(" ask not", 0.0, 1.0))
    cues = [m["text"] for m in captions.end() if m["type"] == "live_cue"]
    assert cues == ["ask not"]


def test_status_warnings_and_end() -> None:
    messages = update(
        CaptionLines(), Status(5.0, 0.25, 0.1, 0.0, -20.0), WarningRaised("slow"), SessionEnded(6.0)
    )
    assert [m["type"] for m in messages] == ["live_status", "warning", "live_ended"]
    assert messages[0]["lag"] == 0.25


def test_a_note_about_the_session_stays() -> None:
    lines = CaptionLines()
    messages = update(lines, LanguageNote("not English"))
    assert messages == [{"type": "live_note", "message": "not English"}]
    assert lines.notes == ["not English"], "for a page that is loaded again"


@pytest.mark.slow
def test_spectrogram() -> None:
    samples = np.zeros(32_000, np.float32)
    samples[16_000:] = np.frombuffer(tone(16_000, 1.0), "<i2") / 32768
    picture = spectrogram(samples)
    import base64

    pixels = np.frombuffer(base64.b64decode(str(picture["pixels"])), np.uint8)
    pixels = pixels.reshape(int(str(picture["columns"])), int(str(picture["bands"])))
    assert picture["seconds"] == 2.0
    assert pixels[: len(pixels) // 2 - 5].max() == 0
    assert pixels[-20:-5].max() > 200
    assert pixels[-20:-5].argmax(axis=1).max() < 16, "440 Hz is among the low bands"
