"""Live text: shown, retracted, and replaced by segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.asr import (
    Retract,
    Segment,
    SegmentDone,
    TextDelta,
    Transcriber,
    TranscriptEvent,
    TranscriptionInfo,
)
from pipelines.engine import Engine
from tests.asr.conftest import Pair
from tests.asr.recordings import PHRASES, RECORDINGS, samples_of
from tests.asr.scripted import Turn, scripted

SOUND = np.zeros(31 * 16_000, np.float32)
EVERY_TIME: dict[str, Any] = {
    "temperature": (0.0, 0.4, 0.8),
    "logprob_threshold": 0.0,
    "no_speech_threshold": None,
    "openai_rules": True,
}


@dataclass
class Screen:
    """Follows the events as a terminal does.

    Attributes:
        lives: The live text at the end of each window.
        rejected: The live texts that were retracted.
    """

    live: str = ""
    final: str = ""
    lives: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def show(self, events: Iterable[TranscriptEvent]) -> Screen:
        for event in events:
            if isinstance(event, TextDelta):
                assert event.text, "a TextDelta has text"
                self.live += event.text
            elif isinstance(event, Retract):
                assert self.live, "Retract follows live text"
                self.rejected.append(self.live)
                self.live = ""
            elif isinstance(event, SegmentDone):
                if not self.segments or self.segments[-1].seek != event.segment.seek:
                    self.lives.append(self.live)
                self.live = ""
                self.final += event.segment.text
                self.segments.append(event.segment)
            else:
                assert isinstance(event, TranscriptionInfo)
        assert not self.live, "segments replace all live text"
        return self


def tokens_of(real: Transcriber, *parts: float | str) -> tuple[int, ...]:
    tokens: list[int] = []
    for part in parts:
        if isinstance(part, str):
            tokens += real.tokenizer.encode(part)
        else:
            tokens.append(real.tokenizer.special.timestamp_begin + round(part / 0.02))
    return tuple(tokens)


def play(real: Transcriber, turns: Sequence[Turn], **options: Any) -> list[TranscriptEvent]:
    return list(scripted(real, turns)[0].stream(SOUND, language="en", **options))


@pytest.mark.parametrize("name", RECORDINGS)
def test_live_text_is_the_segments_text(fitted: Pair, name: str) -> None:
    samples = samples_of(RECORDINGS[name])
    events = list(fitted.ours.stream(samples, temperature=0.0))
    assert events[0] == fitted.ours.transcribe(samples).info
    assert [type(e) for e in events].count(TranscriptionInfo) == 1
    screen = Screen().show(events)
    assert "".join(screen.lives) == screen.final
    assert screen.segments == list(fitted.ours.transcribe(samples, temperature=0.0))
    # Token by token, but never part of a character.
    deltas = [e.text for e in events if isinstance(e, TextDelta)]
    assert len(deltas) > 3 * len(screen.segments)
    assert "\ufffd" not in "".join(deltas)


def test_live_text_decodes_each_token_once(
    real: Transcriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or until its character is complete: the work grows with the text, not with its square."""
    tokens, decoded, text = (
        tokens_of(real, 0.0, " Rain, 春の雨 🌧 again." * 12, 25.0),
        0,
        real.tokenizer.text,
    )

    def counted(ids: Iterable[int]) -> str:
        nonlocal decoded
        ids = list(ids)
        decoded += len(ids)
        return text(ids)

    monkeypatch.setattr(real.tokenizer, "text", counted)
    screen = Screen().show(play(real, [Turn(tokens)], compression_ratio_threshold=None))
    assert "".join(screen.lives) == screen.final == " Rain, 春の雨 🌧 again." * 24
    assert decoded <= 5 * 2 * len(tokens)


def test_rejected_windows_are_retracted(fitted: Pair) -> None:
    events = list(fitted.ours.stream(samples_of(RECORDINGS["short"]), seed=3, **EVERY_TIME))
    screen = Screen().show(events)
    windows = len({segment.seek for segment in screen.segments})
    assert len(screen.rejected) == 2 * windows
    assert any(phrase in screen.rejected[0] for phrase in PHRASES)
    assert {segment.temperature for segment in screen.segments} == {0.8}
    again = fitted.ours.transcribe(samples_of(RECORDINGS["short"]), seed=3, **EVERY_TIME)
    assert list(again) == screen.segments, "sampling with a seed is repeatable"


@pytest.mark.slow
def test_a_silent_window_is_retracted(real: Transcriber) -> None:
    silent = Turn(tokens_of(real, 0.0, " Thank you.", 30.0), -1.5, 0.9)
    events = play(real, [silent])
    assert not [e for e in events if isinstance(e, SegmentDone)]
    assert Screen().show(events).rejected == [" Thank you."] * 2


def test_a_window_without_text_is_not_retracted(real: Transcriber) -> None:
    wordless = Turn(tokens_of(real, 0.0), -1.5, 0.9)
    assert [type(e) for e in play(real, [wordless])] == [TranscriptionInfo]
    # Nor are failed attempts without text.
    events = play(real, [wordless], no_speech_threshold=None)
    assert not [e for e in events if isinstance(e, Retract)]


def test_text_cut_off_by_the_window_end_is_replaced(real: Transcriber) -> None:
    cut = Turn(tokens_of(real, 0.0, " Good", 20.0, 20.0, " mor"), ended=False)
    whole = Turn(tokens_of(real, 0.0, " morning.", 5.0))
    screen = Screen().show(play(real, [cut, whole]))
    assert screen.lives == [" Good mor", " morning."]
    assert screen.final == " Good morning."


def test_segments_come_as_soon_as_their_window_is_done(real: Transcriber) -> None:
    first = Turn(tokens_of(real, 0.0, " One", 5.0, 5.0, " two", 10.0, 10.0))
    transcriber, script = scripted(real, [first, Turn(tokens_of(real, 0.0, " three", 9.0))])
    found = transcriber.transcribe(SOUND, language="en")
    assert not script.calls
    assert [next(found).text, next(found).text] == [" One", " two"]
    assert len(script.calls) == 1
    assert [segment.text for segment in found] == [" three"]


def test_a_stopped_transcription_leaves_the_model_free(fitted: Pair) -> None:
    samples = samples_of(RECORDINGS["long"])
    expected = list(fitted.ours.transcribe(samples, temperature=0.0))
    events = fitted.ours.stream(samples, temperature=0.0)
    assert isinstance(next(events), TranscriptionInfo)
    assert isinstance(next(events), TextDelta)
    events.close()
    with fitted.ours.transcribe(samples, temperature=0.0) as found:
        assert next(found) == expected[0]
    assert list(found) == []
    assert list(fitted.ours.transcribe(samples, temperature=0.0)) == expected


def test_two_recordings_at_a_time_do_not_mix(fitted: Pair) -> None:
    names = ["long", "german", "silence"]
    alone = [list(fitted.ours.transcribe(samples_of(RECORDINGS[n]))) for n in names]
    running = [fitted.ours.stream(samples_of(RECORDINGS[n])) for n in names]
    mixed: list[list[Segment]] = [[] for _ in names]
    waiting = list(range(len(names)))
    while waiting:
        for i in list(waiting):
            event = next(running[i], None)
            if event is None:
                waiting.remove(i)
            elif isinstance(event, SegmentDone):
                mixed[i].append(event.segment)
    for one, other in zip(alone, mixed, strict=True):
        assert [s.tokens for s in one] == [s.tokens for s in other]
        assert [(s.start, s.end) for s in one] == [(s.start, s.end) for s in other]


PIECES = st.lists(
    st.sampled_from([" Good", " Grüße", "春の雨、", "🌧🌧", " é", "ẞ", " 한국어"]),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    segments=st.lists(PIECES, min_size=1, max_size=4),
    broken=st.integers(0, 3),
    rejections=st.integers(0, 2),
)
def test_no_character_is_ever_cut(
    real: Transcriber, segments: list[list[str]], broken: int, rejections: int
) -> None:
    """broken: number of tokens missing at the end of each segment, as with sampling."""
    tokens: list[int] = []
    for number, pieces in enumerate(segments):
        text = real.tokenizer.encode("".join(pieces))
        text = text[: max(1, len(text) - broken)]
        tokens += tokens_of(real, 5.0 * number) + tuple(text) + tokens_of(real, 5.0 * number + 5.0)
    turn = Turn(tuple(tokens))
    bad = Turn(turn.tokens, avg_logprob=-2.0)
    events = play(real, [*[bad] * rejections, turn], compression_ratio_threshold=None)
    screen = Screen().show(events)
    assert "".join(screen.lives) == screen.final
    if not broken:
        assert screen.final == "".join("".join(pieces) for pieces in segments) * 2
        assert not any("\ufffd" in e.text for e in events if isinstance(e, TextDelta))
    assert len(screen.rejected) == 2 * rejections
    for one, other in pairwise([*screen.rejected, screen.lives[0]]):
        assert one == other


def test_ids_and_times_grow(fitted: Pair) -> None:
    found = list(fitted.ours.transcribe(samples_of(RECORDINGS["long"])))
    assert [segment.id for segment in found] == list(range(len(found)))
    for one, other in pairwise(found):
        assert one.start <= one.end <= other.end
        assert one.seek <= other.seek


@pytest.mark.slow
def test_a_model_shared_with_an_engine_of_ones_own(multilingual: Path, engine: Engine) -> None:
    one, other = Transcriber(multilingual, engine=engine), Transcriber(multilingual, engine=engine)
    assert one.model is other.model
