"""The browser's audio as a feed, and a session's events as lines on the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeapp.live.events import (
    SessionEnded,
    Status,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
)
from edgeapp.server.sessions import TaskCancelled
from edgeapp.server.tasks.browser_source import BrowserSource
from edgeapp.server.tasks.caption_lines import CaptionLines
from edgeapp.server.tasks.live_task import LiveTask
from edgeapp.server.tasks.spectrogram import spectrogram
from edgeapp.subtitles.formats import Cue
from pipelines.asr.live.events import CommittedText, PartialText, SpeechEnded, SpeechStarted
from pipelines.errors import InputError


def tone(rate: int, seconds: float) -> bytes:
    time = np.arange(int(rate * seconds)) / rate
    return (0.5 * 32767 * np.sin(2 * np.pi * 440 * time)).astype("<i2").tobytes()


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000])
def test_audio_arrives_whole(rate: int) -> None:
    feed = BrowserSource(rate)
    data = tone(rate, 1.0)
    pieces = []
    for start in range(0, len(data), 4096):
        feed.put(data[start : start + 4096])
        assert (piece := feed.read(0)) is not None
        pieces.append(piece)
    feed.stop()
    while (piece := feed.read(0)) is not None:
        pieces.append(piece)
    heard = np.concatenate(pieces)
    assert abs(len(heard) - 16_000) <= 1
    assert heard.dtype == np.float32
    loudest = np.abs(np.fft.rfft(heard)).argmax() * 16_000 / len(heard)
    assert abs(loudest - 440) < 2
    assert abs(np.abs(heard).max() - 0.5) < 0.02


def test_what_nobody_fetches_is_lost_and_told() -> None:
    feed = BrowserSource(16_000)
    for _ in range(65):
        feed.put(tone(16_000, 1.0))
    assert feed.waiting_s == 60.0
    assert feed.dropped_s == 5.0
    feed.cancel()
    assert feed.waiting_s == 0.0


def test_what_is_no_audio_is_refused() -> None:
    with pytest.raises(InputError, match="7 Hz cannot be used"):
        BrowserSource(7)
    with pytest.raises(InputError, match="pairs of bytes"):
        BrowserSource(16_000).put(b"abc")


def told(board: CaptionLines, *events: Any) -> list[dict[str, Any]]:
    return [message for event in events for message in board.update(event)]


def test_an_utterance_is_a_line() -> None:
    board = CaptionLines()
    told(board, SpeechStarted(0.5), PartialText(" Good"))
    assert [(line.start, line.text, line.tail) for line in board.lines] == [(0.5, "", " Good")]
    messages = told(board, CommittedText(" Good morning.", 0.5, 1.5), PartialText(" Where"))
    assert messages[0]["type"] == "live_line"
    assert (board.lines[0].text, board.lines[0].tail) == ("Good morning.", " Where")
    messages = told(board, SpeechEnded(2.0), SpeechStarted(3.0), CommittedText(" Yes.", 3.0, 3.4))
    assert [line.text for line in board.lines] == ["Good morning.", "Yes."]
    assert board.lines[0].tail == ""
    cues = [m for m in messages if m["type"] == "live_cue"]
    assert [(cue["start"], cue["text"], cue["translated"]) for cue in cues] == [
        (3.0, "Yes.", False)
    ]


def test_silence_leaves_no_line() -> None:
    board = CaptionLines()
    told(board, SpeechStarted(0.5), SpeechEnded(1.0), SpeechStarted(2.0), SpeechEnded(2.5))
    assert [line.start for line in board.lines] == [2.0]
    assert not board.lines[0].text


def test_translations_stand_below_what_they_translate() -> None:
    board = CaptionLines()
    told(
        board,
        SpeechStarted(0.0), CommittedText(" Good morning.", 0.0, 1.0), SpeechEnded(1.0),
        SpeechStarted(2.0), CommittedText(" Where is it?", 2.0, 3.0),
        TranslationFinal("Guten Morgen.", 0.0, 1.0, "Good morning."),
        TranslationPartial("Wo"),
    )  # fmt: skip
    assert [(line.translation, line.running) for line in board.lines] == [
        ("Guten Morgen.", ""),
        ("", "Wo"),
    ]
    told(board, TranslationFinal("Wo ist es?", 2.0, 3.0, "Where is it?"))
    assert (board.lines[1].translation, board.lines[1].running) == ("Wo ist es?", "")


def test_somebody_who_never_pauses_gets_new_lines() -> None:
    board = CaptionLines()
    told(board, SpeechStarted(0.0))
    for second in range(8):
        told(
            board,
            CommittedText(f" This is sentence number {second}, which goes on.", second, second),
        )
    assert len(board.lines) == 2
    assert all(line.text.endswith("goes on.") for line in board.lines)


def test_a_line_that_is_over_shows_no_translation_of_what_follows() -> None:
    board = CaptionLines()
    told(board, SpeechStarted(0.0))
    told(board, CommittedText(" A long sentence" * 12 + ".", 0.0, 5.0))
    told(board, TranslationPartial("Die nächsten Worte"))
    assert board.lines[0].running
    told(board, CommittedText(" Next words", 5.0, 6.0))
    assert len(board.lines) == 2
    assert not board.lines[0].running


def test_committed_text_is_stored_when_the_tab_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though its cue is not complete yet."""
    kept: list[Cue] = []

    class Session:
        def run(self, feed: object) -> Iterator[object]:
            yield SpeechStarted(0.0)
            yield CommittedText(" Half a sentence", 0.0, 1.0)
            task.cancel()
            yield SessionEnded(2.0)

    @contextmanager
    def anything(*told: object, **more: object) -> Iterator[Any]:
        yield SimpleNamespace(add=kept.append)

    setup = SimpleNamespace(models=(), language="en", model_name="demo", session=Session())
    monkeypatch.setattr(
        "edgeapp.server.tasks.live_task.make_live_setup", lambda pool, choice: setup
    )
    pool: Any = SimpleNamespace(using=anything)
    choice: Any = SimpleNamespace(target=None)
    history: Any = SimpleNamespace(recording=anything)
    task = LiveTask(pool, history, choice, 16_000)
    with pytest.raises(TaskCancelled):
        task.run(lambda message: None)
    assert [cue.text for cue in kept] == ["Half a sentence"]


def test_the_state_of_the_session() -> None:
    messages = told(
        CaptionLines(), Status(5.0, 0.25, 0.1, 0.0, -20.0), WarningRaised("slow"), SessionEnded(6.0)
    )
    assert [m["type"] for m in messages] == ["live_status", "warning", "live_ended"]
    assert messages[0]["lag"] == 0.25


def test_a_picture_of_the_sound() -> None:
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
