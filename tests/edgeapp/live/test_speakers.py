"""Two speakers on two channels: what each says is labelled, and as if each were alone."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from edgeapp.live.event_encoder import EventEncoder
from edgeapp.live.events import SessionEnded, SessionEvent, SpeakerEvent, speaker_and_event
from edgeapp.live.files import LiveOutputFile
from edgeapp.live.session import LiveSession
from edgeapp.live.sources import FileSource, JoinedSource, Notice
from edgeapp.live.speakers import checked_speakers
from edgeapp.live.speech_channel import SpeechChannel
from edgeapp.live.view import TextView
from pipelines import OptionError, load_audio
from pipelines.asr.audio.arrays import Samples
from pipelines.asr.audio.vad import VoiceActivity
from pipelines.asr.live.events import CommittedText, LiveEvent, SpeechEnded, SpeechStarted
from pipelines.asr.live.transcriber import LiveOptions, LiveTranscriber
from pipelines.asr.transcriber import Transcriber
from pipelines.errors import AudioError, DeviceLost, EngineError
from pipelines.translation.live import LiveTranslator
from tests.asr.tones import ToneTranscriber, loudness, speak
from tests.edgeapp.live.test_session import Shouting

MINE, THEIRS = [3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8, 1, 8]


def channel(speaker: str = "") -> SpeechChannel:
    options = LiveOptions(min_chunk_s=0.3)
    recognizer = cast(Transcriber, ToneTranscriber())
    live = LiveTranscriber(recognizer, options, VoiceActivity(options.vad, loudness))
    return SpeechChannel(live, cast(LiveTranslator, Shouting()), speaker)


def together(one: Samples, other: Samples) -> Samples:
    """Two recordings as two channels [n, 2]."""
    count = max(len(one), len(other))
    return np.stack([np.pad(each, (0, count - len(each))) for each in (one, other)], axis=1)


def spoken() -> tuple[Samples, Samples]:
    return speak(MINE, seed=1)[0], speak(THEIRS, seed=2, pause_every=3)[0]


def conversation() -> list[SessionEvent]:
    session = LiveSession(channel("Me"), channel("Them"))
    return cast(list[SessionEvent], list(session.run(FileSource(together(*spoken()), 0))))


@pytest.mark.slow
def test_each_channel_is_recognized_as_if_it_were_alone() -> None:
    events = conversation()
    for number, name in enumerate(("Me", "Them")):
        alone = together(*spoken())[:, number]
        expected = list(LiveSession(channel()).run(FileSource(alone, 0)))
        own = [
            each.event for each in events if isinstance(each, SpeakerEvent) and each.speaker == name
        ]
        # The state of the session and its end belong to no speaker.
        assert own == [each for each in expected if type(each) in set(map(type, own))]
        assert "".join(e.text for e in own if isinstance(e, CommittedText)).split()
    assert isinstance(events[-1], SessionEnded)


class Talker:
    """A channel on which the same is heard in each block, unless it fails."""

    def __init__(self, speaker: str, error: Exception | None = None) -> None:
        self.speaker, self.error, self.fed = speaker, error, 0
        self.recognizer = SimpleNamespace(language="en", level=0.0)

    def feed(self, audio: Samples) -> list[LiveEvent]:
        self.fed += 1
        if self.error is not None:
            raise self.error
        return [SpeechStarted(0.0), CommittedText(f" {self.speaker}", 0.0, 0.1)]

    def finish(self) -> list[LiveEvent]:
        return []

    def correct(self, **how: bool) -> list[LiveEvent]:
        return []

    def translate(self, is_behind: object, *, ended: bool, wait: bool) -> list[LiveEvent]:
        return []

    def close(self) -> None:
        pass


def talk(*talkers: Talker) -> Generator[SessionEvent, None, None]:
    session = LiveSession(*cast(list[SpeechChannel], talkers))
    blocks = [np.zeros((1_600, 2), np.float32)] * 2
    return cast(Generator[SessionEvent, None, None], session.run(Scripted(*blocks)))


@pytest.mark.parametrize("seen", [1, 2, 3, 4])
def test_a_session_of_two_ends_where_it_is_closed(seen: int) -> None:
    talkers = Talker("Me"), Talker("Them")
    events = talk(*talkers)
    for _ in range(seen):
        next(events)
    events.close()
    assert [talker.fed for talker in talkers] == [1, 1]
    assert list(events) == []


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_speaker_does_not_lose_what_the_other_said(failing: int) -> None:
    talkers = Talker("Me"), Talker("Them")
    talkers[failing].error = EngineError("out of memory")
    said = []
    with pytest.raises(EngineError, match="out of memory"):
        said.extend(talk(*talkers))
    other = talkers[1 - failing].speaker
    assert SpeakerEvent(other, CommittedText(f" {other}", 0.0, 0.1)) in said
    assert isinstance(said[-1], SessionEnded)


def test_lines_files_and_json_name_the_speakers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events: list[SessionEvent] = [
        SpeakerEvent("Me", SpeechStarted(0.0)),
        SpeakerEvent("Them", SpeechStarted(0.5)),
        SpeakerEvent("Me", CommittedText(" Can you", 0.0, 1.0)),
        SpeakerEvent("Them", CommittedText(" Hello.", 0.5, 1.2)),
        SpeakerEvent("Me", CommittedText(" hear me?", 1.0, 2.0)),
        SpeakerEvent("Me", SpeechEnded(2.0)),
        SessionEnded(3.0),
    ]
    files = {kind: LiveOutputFile(tmp_path / f"talk.{kind}") for kind in ("txt", "srt", "vtt")}
    view, encoder = TextView(), EventEncoder(lambda: "en")
    contents = []
    for event in events:
        view.show(event)
        contents.append(encoder.content(event))
        for file in files.values():
            file.write(event)
    for file in files.values():
        file.close()
    lines = "Them: Hello.\nMe: Can you hear me?\n"
    assert capsys.readouterr().out == lines
    assert files["txt"].path.read_text() == lines
    assert "\nMe: Can you hear me?\n" in files["srt"].path.read_text()
    assert "\n<v Them>Hello.\n" in files["vtt"].path.read_text()
    assert [(c.get("speaker"), c.get("utterance")) for c in contents[:4]] == [
        ("Me", 1), ("Them", 2), ("Me", 1), ("Them", 2),
    ]  # fmt: skip


def test_two_microphones_are_one_source_of_two_channels() -> None:
    mine, theirs = np.full(16_000, 0.1, np.float32), np.full(20_000, 0.2, np.float32)
    source = JoinedSource(FileSource(mine, 0), FileSource(theirs, 0))
    joined = np.stack(read_all(source)[0], axis=1)
    assert joined.shape == (20_000, 2)
    assert np.array_equal(joined[:16_000, 0], mine)
    assert not joined[16_000:, 0].any(), "silence after its end"
    assert np.array_equal(joined[:, 1], theirs)


def test_a_microphone_that_delivers_nothing_does_not_hold_the_other_back() -> None:
    class Still(FileSource):
        def read(self, wait_s: float) -> Samples:
            return np.zeros(0, np.float32)

    nothing, spoken_samples = np.zeros(0, np.float32), np.ones(48_000, np.float32)
    source = JoinedSource(Still(nothing), FileSource(spoken_samples, 0))
    heard = sum(len(cast(Samples, source.read(0))) for _ in range(31))
    assert heard >= 2 * 16_000


class Scripted:
    """A source of given blocks; an error among them is raised."""

    waiting_s = 0.0

    def __init__(self, *blocks: Samples | Notice | DeviceLost | None) -> None:
        self.blocks = list(blocks)

    def read(self, wait_s: float) -> Samples | Notice | None:
        block = self.blocks.pop(0) if self.blocks else None
        if isinstance(block, DeviceLost):
            raise block
        return block

    def stop(self) -> None: ...


def read_all(source: JoinedSource) -> tuple[list[Samples], list[tuple[float, Notice]]]:
    """The channels, and the notices with the duration of the audio before them."""
    blocks: list[Samples] = [np.zeros((0, 2), np.float32)]
    notices = []
    while (piece := source.read(0)) is not None:
        if isinstance(piece, Notice):
            notices.append((sum(map(len, blocks)) / 16_000, piece))
        else:
            blocks.append(piece)
    return list(np.concatenate(blocks).T), notices


def test_a_microphone_that_begins_later_is_not_shifted() -> None:
    nothing, tenth = np.zeros(0, np.float32), np.ones(1_600, np.float32)
    late = Scripted(*[nothing] * 5, Notice("", 0.5), *[tenth] * 4)
    source = JoinedSource(Scripted(*[tenth] * 9), late)
    (first, second), notices = read_all(source)
    assert not notices
    assert first.all()
    assert not second[: 5 * 1_600].any()
    assert second[5 * 1_600 :].all()


def test_a_gap_of_both_microphones_is_one_of_the_session() -> None:
    tenth = np.ones(1_600, np.float32)
    mine = Scripted(tenth, Notice("lost", 60.0, 60.0), *[tenth] * 3)
    theirs = Scripted(tenth, tenth, Notice("lost", 59.9, 59.9), *[tenth] * 3)
    source = JoinedSource(mine, theirs, since_s=7.0)
    (first, second), ((before_s, notice),) = read_all(source)
    assert (notice.message, notice.lost_s) == ("lost", 60.0)
    assert before_s == pytest.approx(0.2)
    assert before_s + notice.gap_s == pytest.approx(60.1)
    assert len(first) == 5 * 1_600, "no minute of silence"
    assert first[:1_600].all()
    assert not first[1_600:3_200].any(), "the gap of this one began sooner"
    assert first[3_200:].all()
    assert second.all()
    assert source.end_s == pytest.approx(7.0 + 60.4)


def test_a_gap_of_one_microphone_is_silence_on_its_channel() -> None:
    nothing, half = np.zeros(0, np.float32), np.ones(8_000, np.float32)
    mine = Scripted(half, *[nothing] * 6, Notice("3 s are missing", 3.0, 3.0), half, half)
    source = JoinedSource(mine, Scripted(*[half] * 9))
    (first, second), ((_, notice),) = read_all(source)
    assert (notice.gap_s, notice.lost_s) == (0.0, 3.0)
    assert second.all()
    assert len(second) == 9 * 8_000
    assert first[:8_000].all()
    assert not first[8_000 : 7 * 8_000].any()
    assert first[7 * 8_000 :].all()


@pytest.mark.parametrize("kept_s", [(24, 13), (13, 24)])
def test_a_gap_of_two_microphones_of_which_unequal_amounts_were_kept(
    kept_s: tuple[int, int],
) -> None:
    """Only the part that was kept of one alone has silence on the other's channel."""
    second = np.ones(16_000, np.float32)
    scripts = [
        [*[second] * kept, Notice(f"{900 - kept} s are missing", 900.0 - kept, 900.0 - kept)]
        for kept in kept_s
    ]
    source = JoinedSource(*(Scripted(*script, *[second] * 3) for script in scripts))
    channels, ((before_s, notice),) = read_all(source)
    assert (before_s, notice.gap_s) == (24, 900 - 24)
    assert (notice.lost_s, notice.message) == (900 - 13, "887 s are missing")
    for channel, kept in zip(channels, kept_s, strict=True):
        assert len(channel) == (24 + 3) * 16_000, "no quarter of an hour of silence"
        assert channel[: kept * 16_000].all()
        assert not channel[kept * 16_000 : 24 * 16_000].any()
        assert channel[24 * 16_000 :].all()
    assert source.end_s == 903


def test_the_longer_gap_of_one_microphone_is_silence_in_small_blocks() -> None:
    second = np.ones(16_000, np.float32)
    mine = Scripted(second, Notice("10 s are missing", 10.0, 10.0), *[second] * 25)
    theirs = Scripted(second, Notice("30 s are missing", 30.0, 30.0), *[second] * 5)
    source, lengths, gap_s = JoinedSource(mine, theirs), list[int](), 0.0
    while (piece := source.read(0)) is not None:
        if isinstance(piece, Notice):
            gap_s += piece.gap_s
        else:
            lengths.append(len(piece))
            assert piece[:, 0].all()
            assert (sum(lengths) <= 16_000 or sum(lengths) > 21 * 16_000) == piece[:, 1].all()
    assert (gap_s, sum(lengths)) == (10, 26 * 16_000)
    assert max(lengths) <= 16_000


def test_what_was_heard_before_a_microphone_was_lost_is_read() -> None:
    tenth, error = np.ones(1_600, np.float32), DeviceLost("unplugged")
    source = JoinedSource(Scripted(*[tenth] * 4), Scripted(tenth, np.zeros(0, np.float32), error))
    heard = sum(len(cast(Samples, source.read(0))) for _ in range(3))
    assert heard == 3 * 1_600
    with pytest.raises(DeviceLost, match="unplugged"):
        source.read(0)


def test_a_channel_of_a_recording_is_loaded_alone(tmp_path: Path) -> None:
    import soundfile

    left, right = (0.5 * np.sin(np.arange(16_000) * f).astype(np.float32) for f in (0.1, 0.3))
    soundfile.write(tmp_path / "two.wav", np.stack([left, right], axis=1), 16_000, subtype="FLOAT")
    for number, expected in enumerate((left, right)):
        assert np.allclose(load_audio(tmp_path / "two.wav", channel=number), expected, atol=1e-6)
    with pytest.raises(AudioError, match=r"two\.wav has 2 channels: there is no channel 3"):
        load_audio(tmp_path / "two.wav", channel=2)
    with pytest.raises(AudioError, match="of files only"):
        load_audio(left, channel=0)


@pytest.mark.parametrize(
    "names", [["Me"], ["Me", "Me"], ["Me", " "], ["Me", "x" * 41], ["a", "b", "c"]]
)
def test_names_are_two_different_short_ones(names: list[str]) -> None:
    with pytest.raises(OptionError, match="speaker"):
        checked_speakers(names)
    assert checked_speakers([" Me ", "Anna  Lee"]) == ("Me", "Anna Lee")
    assert speaker_and_event(SessionEnded(1.0)) == ("", SessionEnded(1.0))
