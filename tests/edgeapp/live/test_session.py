"""LiveSession: sources in, events out; lag, dropped audio and lost devices are reported."""

from __future__ import annotations

import collections
import json
from typing import Any, cast

import numpy as np
import pytest

from edgeapp.live.doubts import doubtful_words
from edgeapp.live.events import (
    AudioLost,
    SessionEnded,
    SessionEvent,
    Status,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
    as_json,
)
from edgeapp.live.session import LiveSession
from edgeapp.live.sources import FileSource, LiveSource, Notice, TeeSource
from edgeapp.live.speech_channel import SpeechChannel
from pipelines import OutputError
from pipelines.asr.audio.arrays import Samples
from pipelines.asr.audio.vad import VoiceActivity
from pipelines.asr.live.events import CommittedText, PartialText, SpeechEnded, UpdateDecoded
from pipelines.asr.live.transcriber import LiveOptions, LiveTranscriber
from pipelines.asr.transcriber import Transcriber
from pipelines.asr.window import LiveWindowResult
from pipelines.errors import DeviceLost, EngineError
from pipelines.translation.live import LiveTranslation, LiveTranslator
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

    def final(self, sentence: str) -> LiveTranslation:
        return LiveTranslation(sentence, sentence.upper(), ("cut",) if "ki" in sentence else ())

    def running_after(self, unsettled: str) -> str:
        _, ended, rest = unsettled.rpartition("\n")
        words = [*([] if ended else self._open), *rest.split()]
        return " ".join(words[len(words) // 3 * 3 :])

    def partial(self, tail: str = "", unsettled: str = "") -> LiveTranslation | None:
        source = (self.running_after(unsettled) + tail).strip()
        return LiveTranslation(source, source.upper()) if source else None


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Slow(ToneTranscriber):
    """A recognizer on a machine that takes a second and a half for every update."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def redecode(self, *args: Any, priority: int = 0) -> LiveWindowResult:
        self._clock.sleep(1.5)
        return super().redecode(*args)


def session(
    *,
    translated: bool = False,
    clock: Clock | None = None,
    recognizer: ToneTranscriber | None = None,
) -> LiveSession:
    options = LiveOptions(min_chunk_s=0.3)
    stub = cast(Transcriber, recognizer or ToneTranscriber())
    live = LiveTranscriber(stub, options, VoiceActivity(options.vad, loudness))
    translator = cast(LiveTranslator, Shouting()) if translated else None
    channel = SpeechChannel(live, translator)
    return LiveSession(channel, show_decoding=True, clock=clock or Clock())


def words_of(events: list[SessionEvent | UpdateDecoded]) -> list[str]:
    return "".join(e.text for e in events if isinstance(e, CommittedText)).split()


def truth(spoken: list[Spoken]) -> list[str]:
    return [s.word.strip() for s in spoken]


def test_a_recording_played_in_real_time() -> None:
    samples, spoken = speak(WORDS)
    clock = Clock()
    feed = FileSource(samples, 1.0, clock=clock, sleep=clock.sleep)
    events = list(session(clock=clock).run(feed))
    assert words_of(events) == truth(spoken)
    assert events[-1] == SessionEnded(len(samples) / 16_000)
    assert clock.now == pytest.approx(len(samples) / 16_000, abs=0.3)
    states = [e for e in events if isinstance(e, Status)]
    assert len(states) > len(samples) / 16_000
    assert all(state.dropped == 0 and state.lag < 0.3 for state in states)


def test_a_slow_machine_takes_larger_steps_and_keeps_up() -> None:
    samples, spoken = speak(WORDS * 5)
    clock = Clock()
    feed = FileSource(samples, 1.0, clock=clock, sleep=clock.sleep)
    events = list(session(clock=clock, recognizer=Slow(clock)).run(feed))
    assert words_of(events) == truth(spoken)
    seconds = len(samples) / 16_000
    states = [e for e in events if isinstance(e, Status)]
    lags = [state.lag for state in states]
    assert max(lags) < 5, "never more than what arrives during an update or two"
    assert np.mean(lags[-5:]) < np.mean(lags[:5]) + 1, "no growing backlog"
    assert all(state.dropped == 0 for state in states), "a file never loses anything"
    assert max(state.real_time_factor for state in states) > 0.8
    assert clock.now < seconds + 5
    assert sum(isinstance(e, UpdateDecoded) for e in events) < seconds, "fewer updates than are due"


def test_finished_sentences_and_the_running_one_are_translated() -> None:
    # A pause of 1.8 s, which ends a sentence, after the seventh word.
    first, spoken = speak(WORDS[:7])
    before_s = len(first) / 16_000 + 1.2
    second, later = speak(WORDS[7:])
    spoken += [Spoken(s.word, before_s + s.start, before_s + s.end) for s in later]
    samples = np.concatenate([first, np.zeros(19_200, np.float32), second])
    events = list(session(translated=True).run(FileSource(samples, 0)))
    finals = [e for e in events if isinstance(e, TranslationFinal)]
    assert " ".join(f.text for f in finals).split() == [w.upper() for w in truth(spoken)]
    assert any(isinstance(e, TranslationPartial) for e in events)
    for final, first in zip(finals, [0, 3, 6, 7, 10], strict=True):
        assert final.start == pytest.approx(spoken[first].start, abs=0.8)
        assert final.start < final.end
    assert sum(isinstance(e, WarningRaised) for e in events) == sum(
        "ki" in f.source for f in finals
    )


def test_captions_go_on_where_the_translation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    translate = Shouting.final

    def fail(self: Shouting, sentence: str) -> LiveTranslation:
        if sentence.split()[0] == truth(spoken)[3]:
            raise EngineError("not enough memory on the GPU")
        return translate(self, sentence)

    monkeypatch.setattr(Shouting, "final", fail)
    samples, spoken = speak(WORDS)
    events = list(session(translated=True).run(FileSource(samples, 0)))
    assert words_of(events) == truth(spoken)
    finals = [e.text for e in events if isinstance(e, TranslationFinal)]
    assert finals == [" ".join(truth(spoken)[:3]).upper()]
    said = [e.message for e in events if isinstance(e, WarningRaised) and e.message != "cut"]
    assert said == ["not enough memory on the GPU; captions go on without translation"]
    assert isinstance(events[-1], SessionEnded)


class Saying:
    """A recognizer that hears one text in every block."""

    level, language, corrects = 0.0, "en", False

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)

    def feed(self, samples: Samples) -> list[CommittedText | PartialText]:
        return [CommittedText(self._texts.pop(0), 0.0, 1.0), PartialText(" and so on")]


def test_a_sentence_that_has_waited_for_three_seconds_is_the_next_work() -> None:
    clock = Clock()
    recognizer = cast(LiveTranscriber, Saying(" one two three", " four five six seven"))
    channel = SpeechChannel(recognizer, cast(LiveTranslator, Shouting()), clock=clock)

    def translated(*, behind: bool) -> list[str]:
        events = channel.translate(lambda: behind, ended=False)
        return [e.text for e in events if isinstance(e, TranslationFinal | TranslationPartial)]

    channel.feed(np.zeros(160, np.float32))
    clock.sleep(1.0)
    channel.feed(np.zeros(160, np.float32))
    clock.sleep(1.9)
    assert translated(behind=True) == [], "audio that waits goes first"
    clock.sleep(0.2)
    assert translated(behind=True) == ["ONE TWO THREE"]
    assert translated(behind=True) == [], "the second one has waited for two seconds"
    clock.sleep(5.0)
    assert translated(behind=True) == ["FOUR FIVE SIX"]
    assert translated(behind=True) == [], "the running sentence is not translated"
    assert translated(behind=False) == ["SEVEN AND SO ON"]


def test_sentences_that_wait_take_turns_with_recognition() -> None:
    clock = Clock()
    recognizer = cast(LiveTranscriber, Saying(" one two three four five six"))
    channel = SpeechChannel(recognizer, cast(LiveTranslator, Shouting()), clock=clock)
    channel.feed(np.zeros(160, np.float32))
    clock.sleep(10.0)
    assert len(list(channel.translate(lambda: True, ended=False))) == 1
    assert len(list(channel.translate(lambda: True, ended=False))) == 1


def test_stop_keeps_the_words_before_it() -> None:
    samples, spoken = speak(WORDS)
    clock = Clock()
    feed = FileSource(samples, 1.0, clock=clock, sleep=clock.sleep)
    events: list[SessionEvent | UpdateDecoded] = []
    for event in session(clock=clock).run(feed):
        events.append(event)
        if clock.now > spoken[4].end:
            feed.stop()
    assert words_of(events)[:5] == truth(spoken)[:5]
    assert len(words_of(events)) < len(WORDS)


class Unplugged:
    """A feed whose device goes away."""

    waiting_s = 0.0

    def __init__(self, samples: Samples) -> None:
        self._samples: Samples | None = samples

    def read(self, wait_s: float) -> Samples | Notice | None:
        if self._samples is None:
            raise DeviceLost("the microphone was disconnected")
        samples, self._samples = self._samples, None
        return samples

    def stop(self) -> None:
        pass


def test_a_lost_device_keeps_its_words_and_another_continues() -> None:
    samples, spoken = speak(WORDS)
    again = iter([FileSource(samples, 0)])
    events = list(session().run(Unplugged(samples), lambda: next(again)))
    assert words_of(events) == truth(spoken) * 2
    assert [e.message for e in events if isinstance(e, WarningRaised)] == [
        "the microphone was disconnected"
    ]
    starts = [e.start for e in events if isinstance(e, CommittedText)]
    assert starts == sorted(starts)
    assert starts[-1] > len(samples) / 16_000


def test_a_lost_device_without_another_is_an_error_at_the_end() -> None:
    samples, spoken = speak(WORDS)
    events: list[SessionEvent | UpdateDecoded] = []
    run = session().run(Unplugged(samples))
    with pytest.raises(DeviceLost):
        collections.deque(map(events.append, run), maxlen=0)
    assert words_of(events) == truth(spoken)
    assert isinstance(events[-1], SessionEnded)


class Scripted:
    """A source of given pieces."""

    waiting_s = 0.0

    def __init__(self, *pieces: Samples | Notice) -> None:
        self._pieces = list(pieces)

    def read(self, wait_s: float) -> Samples | Notice | None:
        return self._pieces.pop(0) if self._pieces else None

    def stop(self) -> None: ...


def test_a_gap_ends_what_is_said_and_its_time_passes() -> None:
    samples, spoken = speak(WORDS)
    cut = round(spoken[5].end * 16_000)  # between two words of one utterance
    gap = Notice("20 s are missing", 20.0, 20.0)
    clock = Clock()
    source = Scripted(samples[:cut], gap, samples[cut:])
    live = session(translated=True, clock=clock, recognizer=Slow(clock))
    events = list(live.run(source))
    (lost,) = (e for e in events if isinstance(e, AudioLost))
    assert (lost.start, lost.end) == (cut / 16_000, cut / 16_000 + 20)
    assert lost.message == "20 s are missing"
    at = events.index(lost)
    assert words_of(events[:at]) == truth(spoken)[:6]
    assert words_of(events[at:]) == truth(spoken)[6:]
    assert any(isinstance(e, SpeechEnded) for e in events[:at]), "no sentence spans the gap"
    starts = [e.start for e in events[at:] if isinstance(e, CommittedText)]
    assert starts[0] == pytest.approx(spoken[6].start + 20, abs=0.3)
    assert events[-1] == SessionEnded(len(samples) / 16_000 + 20)
    assert [e.dropped for e in events if isinstance(e, Status)][-1] == 20


def test_a_word_of_the_source_is_passed_on_and_costs_no_time() -> None:
    samples, spoken = speak(WORDS)
    said = Notice("the microphone is muted")
    events = list(session().run(Scripted(samples[:48_000], said, samples[48_000:])))
    assert [e.message for e in events if isinstance(e, WarningRaised)] == [said.message]
    assert words_of(events) == truth(spoken)
    assert not any(isinstance(e, AudioLost) for e in events)


def test_audio_can_be_recorded() -> None:
    samples, _ = speak(WORDS)
    kept, failures = list[Samples](), list[OutputError]()

    class Sink:
        def write(self, samples: Samples) -> None:
            kept.append(samples)

        def skip(self, seconds: float) -> None: ...

    feed: LiveSource = TeeSource(FileSource(samples, 0), Sink(), failures.append)
    list(session().run(feed))
    assert np.array_equal(np.concatenate(kept), samples)
    assert not failures


def test_captions_go_on_where_the_audio_cannot_be_written() -> None:
    samples, _ = speak(WORDS)
    failures: list[OutputError] = []

    class FullDisk:
        def write(self, samples: Samples) -> None:
            raise OutputError("talk.wav cannot be written: No space left on device")

        def skip(self, seconds: float) -> None: ...

    feed: LiveSource = TeeSource(FileSource(samples, 0), FullDisk(), failures.append)
    heard = list(session().run(feed))
    assert heard == list(session().run(FileSource(samples, 0)))
    assert len(failures) == 1, "it is written to no more"


def test_events_as_json() -> None:
    assert as_json(PartialText(" né")) == '{"type": "partial", "text": " né"}'
    whole = json.loads(as_json(TranslationFinal("ja", 0.12345, 1.0, "yes")))
    assert whole == {
        "type": "translation_final", "text": "ja", "start": 0.123, "end": 1.0, "source": "yes",
    }  # fmt: skip
    assert json.loads(as_json(WarningRaised("so")))["type"] == "warning"


def test_words_in_doubt() -> None:
    words = [((0, 5), 0.9), ((6, 7), 0.1), ((8, 15), 0.4), ((16, 18), 0.5)]
    assert doubtful_words("Guten 🌞 Morgen. Wo", words) == ((9, 16),), "letters below one half"
    assert json.loads(as_json(TranslationFinal("ja", 0.0, 1.0, "yes", ((0, 2),))))["doubts"] == [
        [0, 2]
    ]
