"""Terminal output of `edgeapp live`, and its JSON lines in a pipe."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime

import pytest
from rich.console import Console

from edgeapp.live.event_encoder import EventEncoder
from edgeapp.live.events import (
    SessionEnded,
    Status,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
)
from edgeapp.live.view import CaptionView, JsonView, TextView
from pipelines.asr.live.events import CommittedText, PartialText, SpeechEnded, SpeechStarted
from pipelines.asr.results import Word

DIM = "\x1b[2m"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """A terminal of 60 columns. frame: its live lines now; above: what has scrolled up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = io.StringIO()
        console = Console(file=self._file, force_terminal=True, width=60, highlight=False)
        monkeypatch.setattr("edgeapp.live.view.results_console", lambda: console)

    @property
    def raw(self) -> str:
        """The last refresh: all after the live lines were last rubbed out."""
        return self._file.getvalue().rpartition("\x1b[2K")[2]

    @property
    def frame(self) -> list[str]:
        return [line.rstrip() for line in CONTROL.sub("", self.raw).split("\n")]

    @property
    def everything(self) -> str:
        return CONTROL.sub("", self._file.getvalue())


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    return Screen(monkeypatch)


def test_committed_text_is_solid_and_partial_text_dim(screen: Screen) -> None:
    with CaptionView(translated=False) as view:
        view.show(SpeechStarted(0.0))
        view.show(CommittedText(" I am", 0.0, 0.5))
        view.show(PartialText(" here to"))
        assert screen.frame[0] == "I am here to"
        assert f"I am{DIM} here to" in screen.raw
        view.show(CommittedText(" here", 0.5, 0.8))
        assert screen.frame[0] == "I am here"


def test_complete_cues_are_printed_above(screen: Screen) -> None:
    with CaptionView(translated=False) as view:
        view.show(CommittedText(" I am here.", 61.0, 62.0))
        view.show(CommittedText(" Are", 62.2, 62.4))
        view.show(PartialText(" you"))
        assert screen.frame[0] == "Are you"
        view.show(CommittedText(" you there? Yes", 62.4, 63.0))
        assert screen.frame[0] == "Yes"
        view.show(SpeechEnded(64.0))
        assert screen.frame[0] == ""
    assert re.findall(r"01:0\d  [^\r\n]*", screen.everything) == [
        "01:01  I am here.",
        "01:02  Are you there?",
        "01:02  Yes",
    ]


def test_final_lines_break_between_words(screen: Screen) -> None:
    said = "A small dog was sitting under a tree when its owner came home from work at noon."
    with CaptionView(translated=False) as view:
        view.show(CommittedText(f" {said}", 0.0, 5.0))
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", screen.everything)]
    assert "00:00  A small dog was sitting under a tree when its owner" in lines
    assert "came home from work at noon." in lines


def test_final_lines_without_spaces_begin_beside_their_time(screen: Screen) -> None:
    with CaptionView(translated=False) as view:
        view.show(
            CommittedText(
                "小さな犬が木の下に座っていると、飼い主が仕事から家に帰ってきました。", 0.0, 5.0
            )
        )
    assert "00:00  小さな犬が木の下に" in screen.everything


def test_the_translation_is_shown_below_and_printed_above(screen: Screen) -> None:
    with CaptionView(translated=True) as view:
        view.show(PartialText(" I am"))
        view.show(TranslationPartial("Ich bin"))
        assert screen.frame[:2] == ["I am", "Ich bin"]
        view.show(TranslationFinal("Ich bin hier.", 0.0, 1.0, "I am here."))
        assert screen.frame[1] == ""
    assert "00:00  Ich bin hier." in screen.everything


def test_the_translation_of_text_that_vanishes_is_cleared(screen: Screen) -> None:
    with CaptionView(translated=True) as view:
        view.show(PartialText(" I am"))
        view.show(TranslationPartial("Ich bin"))
        view.show(PartialText(""))
        view.show(SpeechEnded(1.0))
        assert screen.frame[:2] == ["", ""]
        view.show(CommittedText(" I am here", 1.0, 2.0))
        view.show(TranslationPartial("Ich bin"))
        view.show(SpeechEnded(2.0))
        assert screen.frame[1] == "Ich bin", "until the final translation replaces it"
        view.show(TranslationFinal("Ich bin hier", 1.0, 2.0, "I am here"))
        assert screen.frame[1] == ""


def test_level_lag_and_losses_are_shown(screen: Screen) -> None:
    with CaptionView(translated=False) as view:
        assert screen.frame[-1] == "listening …"
        view.show(Status(5.0, 0.2, 0.1, 0.0, -10.0))
        assert screen.frame[-1] == "▮" * 12 + "  00:05  lag 0.2 s"
        view.show(Status(6.0, 9.0, 2.0, 1.5, -90.0))
        assert screen.frame[-1] == "▯" * 12 + "  00:06  lag 9.0 s  lost 1.5 s"
        view.show(WarningRaised("this machine is too slow"))
        view.show(SessionEnded(6.0))
    assert "edgeapp: this machine is too slow" in screen.everything


def test_a_pipe_gets_a_sentence_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with TextView() as view:
        view.show(CommittedText(" I am", 0.0, 0.5))
        view.show(PartialText(" her"))
        view.show(CommittedText(" here. And", 0.5, 1.0))
        view.show(TranslationPartial("Ich"))
        view.show(TranslationFinal("Ich bin hier.", 0.0, 0.8, "I am here."))
        view.show(WarningRaised("it is late"))
        view.show(Status(1.0, 0.0, 0.1, 0.0, -20.0))
        view.show(SpeechEnded(1.5))
        view.show(SessionEnded(2.0))
    out, err = capsys.readouterr()
    assert out == "I am here.\nIch bin hier.\nAnd\n"
    assert err == "edgeapp: it is late\n"


def test_programs_get_an_event_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    began = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    words = (Word(" I am\nhere", 0.0, 0.50012, 0.98), Word("!", 0.5, 0.5, 0.5))
    with JsonView(EventEncoder(lambda: "en", lambda: began)) as view:
        view.show(SpeechStarted(0.25))
        view.show(CommittedText(" I am\nhere!", 0.25, 0.50012, words))
        view.show(PartialText(""))
        view.show(SessionEnded(1.0))
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said == [
        {"id": 1, "type": "speech_start", "clock": "2026-01-31T12:00:00.250Z", "utterance": 1,
         "language": "en", "time": 0.25},
        {"id": 2, "type": "committed", "clock": "2026-01-31T12:00:00.250Z", "utterance": 1,
         "language": "en", "confidence": 0.74, "text": " I am\nhere!", "start": 0.25, "end": 0.5,
         "words": [
             {"word": " I am\nhere", "start": 0.0, "end": 0.5, "probability": 0.98},
             {"word": "!", "start": 0.5, "end": 0.5, "probability": 0.5},
         ]},
        {"id": 3, "type": "partial", "clock": "2026-01-31T12:00:00.000Z", "utterance": 1,
         "language": "en", "text": ""},
        {"id": 4, "type": "end", "clock": "2026-01-31T12:00:01.000Z", "time": 1.0},
    ]  # fmt: skip


def test_escape_sequences_are_shown(screen: Screen) -> None:
    """A translation, or a word of a damaged model, must not command the terminal."""
    with CaptionView(translated=True) as view:
        view.show(PartialText(" a\x1b]0;partial\x07"))
        view.show(TranslationPartial("b\x1b]0;translated\x07"))
        assert screen.frame[:2] == [r"a\x1b]0;partial\x07", r"b\x1b]0;translated\x07"]
        view.show(CommittedText(" c\x1b]0;final\x07.", 0.0, 0.5))
        view.show(SpeechEnded(1.0))
        view.show(TranslationFinal("d\x9b1A", 0.0, 0.5, "c"))
    assert "\x1b]" not in screen.everything
    assert r"c\x1b]0;final\x07." in screen.everything
    assert r"d\x9b1A" in screen.everything
