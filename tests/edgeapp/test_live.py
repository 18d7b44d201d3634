"""A live session: feeds in, events out; lag, losses and lost devices are said."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from edgeapp.events import (
    Ended,
    SessionEvent,
    Status,
    TranslationFinal,
    TranslationPartial,
    Warned,
    as_json,
)
from edgeapp.feeds import Feed, FileFeed, RecordedFeed
from edgeapp.live import LiveSession
from edgeapp.live_output import LiveOutput
from pipelines.asr.arrays import Samples
from pipelines.asr.live import Committed, Decoded, Partial
from pipelines.asr.streaming import LiveOptions, LiveTranscriber
from pipelines.asr.transcriber import Transcriber
from pipelines.asr.voice import VoiceActivity
from pipelines.errors import DeviceLost, OptionError, OutputError
from pipelines.translation.live import LiveTranslator, Translated
from tests.asr.tones import Spoken, ToneTranscriber, loudness, speak

WORDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


class Shouting:
    """A translator into upper case; every third word ends a sentence."""

    def __init__(self) -> None:
        self._open: list[str] = []

    @property
    def running(self) -> str:
        return " ".join(self._open)

    def add(self, committed: str) -> list[str]:
        self._open += committed.split()
        done = []
        while len(self._open) >= 3:
            done.append(" ".join(self._open[:3]))
            del self._open[:3]
        return done

    def finish(self) -> list[str]:
        rest, self._open = self._open, []
        return [" ".join(rest)] if rest else []

    def final(self, sentence: str) -> Translated:
        return Translated(sentence, sentence.upper(), ("cut",) if "ki" in sentence else ())

    def partial(self, tail: str = "") -> Translated | None:
        source = (self.running + tail).strip()
        return Translated(source, source.upper()) if source else None


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def session(*, translated: bool = False, clock: Clock | None = None) -> LiveSession:
    options = LiveOptions(min_chunk_s=0.3)
    recogniser = LiveTranscriber(
        cast(Transcriber, ToneTranscriber()), options, VoiceActivity(options.voice, loudness)
    )
    translator = cast(LiveTranslator, Shouting()) if translated else None
    return LiveSession(recogniser, translator, clock=clock or Clock())


def words_of(events: list[SessionEvent | Decoded]) -> list[str]:
    return "".join(e.text for e in events if isinstance(e, Committed)).split()


def truth(spoken: list[Spoken]) -> list[str]:
    return [s.word.strip() for s in spoken]


def test_a_recording_played_in_real_time() -> None:
    samples, spoken = speak(WORDS)
    clock = Clock()
    feed = FileFeed(samples, 1.0, clock=clock, sleep=clock.sleep)
    events = list(session(clock=clock).run(feed))
    assert words_of(events) == truth(spoken)
    assert events[-1] == Ended(len(samples) / 16_000)
    assert clock.now == pytest.approx(len(samples) / 16_000, abs=0.3)
    states = [e for e in events if isinstance(e, Status)]
    assert len(states) > len(samples) / 16_000
    assert all(state.dropped == 0 and state.lag < 0.3 for state in states)


def test_finished_sentences_and_the_running_one_are_translated() -> None:
    samples, spoken = speak(WORDS, pause_every=7)
    events = list(session(translated=True).run(FileFeed(samples, 0)))
    finals = [e for e in events if isinstance(e, TranslationFinal)]
    assert " ".join(f.text for f in finals).split() == [w.upper() for w in truth(spoken)]
    assert any(isinstance(e, TranslationPartial) for e in events)
    for final, first in zip(finals, [0, 3, 6, 7, 10], strict=True):
        assert final.start == pytest.approx(spoken[first].start, abs=0.8)
        assert final.start < final.end
    assert sum(isinstance(e, Warned) for e in events) == sum("ki" in f.source for f in finals)


def test_stop_keeps_what_was_said_before_it() -> None:
    samples, spoken = speak(WORDS)
    clock = Clock()
    feed = FileFeed(samples, 1.0, clock=clock, sleep=clock.sleep)
    events: list[SessionEvent | Decoded] = []
    for event in session(clock=clock).run(feed):
        events.append(event)
        if clock.now > spoken[4].end:
            feed.stop()
    assert words_of(events)[:5] == truth(spoken)[:5]
    assert len(words_of(events)) < len(WORDS)


class Unplugged:
    """A feed whose device goes away."""

    dropped_s = waiting_s = 0.0

    def __init__(self, samples: Samples) -> None:
        self._samples: Samples | None = samples

    def read(self, wait_s: float) -> Samples | None:
        if self._samples is None:
            raise DeviceLost("the microphone was disconnected")
        samples, self._samples = self._samples, None
        return samples

    def stop(self) -> None:
        pass


def test_a_lost_device_keeps_its_words_and_another_goes_on() -> None:
    samples, spoken = speak(WORDS)
    again = iter([FileFeed(samples, 0)])
    events = list(session().run(Unplugged(samples), lambda: next(again)))
    assert words_of(events) == truth(spoken) * 2
    assert [e.message for e in events if isinstance(e, Warned)] == [
        "the microphone was disconnected"
    ]
    starts = [e.start for e in events if isinstance(e, Committed)]
    assert starts == sorted(starts)
    assert starts[-1] > len(samples) / 16_000


def test_a_lost_device_without_another_is_an_error_at_the_end() -> None:
    samples, spoken = speak(WORDS)
    events: list[SessionEvent | Decoded] = []
    run = session().run(Unplugged(samples))
    with pytest.raises(DeviceLost):
        collections.deque(map(events.append, run), maxlen=0)
    assert words_of(events) == truth(spoken)
    assert isinstance(events[-1], Ended)


class Leaky(Unplugged):
    dropped_s = 1.5

    def read(self, wait_s: float) -> Samples | None:
        samples, self._samples = self._samples, None
        return samples


def test_lost_audio_is_said_once() -> None:
    events = list(session().run(Leaky(np.zeros(16_000, np.float32))))
    assert [e.message for e in events if isinstance(e, Warned)] == [
        "this machine is too slow: 1.5 s of audio were lost"
    ]


def test_audio_can_be_kept() -> None:
    samples, _ = speak(WORDS)
    kept: list[Samples] = []

    class Sink:
        def write(self, samples: Samples) -> None:
            kept.append(samples)

    feed: Feed = RecordedFeed(FileFeed(samples, 0), Sink())
    list(session().run(feed))
    assert np.array_equal(np.concatenate(kept), samples)


def test_events_as_json() -> None:
    assert as_json(Partial(" né")) == '{"type": "partial", "text": " né"}'
    whole = json.loads(as_json(TranslationFinal("ja", 0.12345, 1.0, "yes")))
    assert whole == {
        "type": "translation_final", "text": "ja", "start": 0.123, "end": 1.0, "source": "yes",
    }  # fmt: skip
    assert json.loads(as_json(Warned("so")))["type"] == "warning"


@pytest.mark.parametrize("kind", ["srt", "vtt", "txt", "jsonl"])
def test_output_files_are_readable_at_every_moment(kind: str, tmp_path: Path) -> None:
    output = LiveOutput(tmp_path / f"talk.{kind}")
    output.take(Committed(" I am here.", 0.0, 1.0))
    output.take(Partial(" and"))
    output.take(Committed(" And you", 1.0, 2.0))
    before = (tmp_path / f"talk.{kind}").read_text()
    output.take(Ended(2.0))
    output.close()
    after = (tmp_path / f"talk.{kind}").read_text()
    assert after.startswith(before)
    if kind == "srt":
        assert before == "1\n00:00:00,000 --> 00:00:01,000\nI am here.\n\n"
        assert after.endswith("2\n00:00:01,000 --> 00:00:02,000\nAnd you\n\n")
    if kind == "vtt":
        assert before == "WEBVTT\n\n00:00.000 --> 00:01.000\nI am here.\n\n"
    if kind == "txt":
        assert (before, after) == ("I am here.\n", "I am here.\nAnd you\n")
    if kind == "jsonl":
        types = [json.loads(line)["type"] for line in after.splitlines()]
        assert types == ["committed", "committed", "end"]


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="docx"):
        LiveOutput(tmp_path / "talk.docx")
    with pytest.raises(OutputError, match="cannot be written"):
        LiveOutput(tmp_path / "missing" / "talk.srt")
