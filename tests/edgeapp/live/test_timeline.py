"""Times of live audio agree with a second recorder, whatever is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import soundfile

from edgeapp.live import capture, microphone
from edgeapp.live.capture import LiveCapture
from edgeapp.live.event_encoder import EventEncoder
from edgeapp.live.events import AudioLost, SessionEnded, TranslationFinal, WarningRaised
from edgeapp.live.files import LiveOutputFile
from edgeapp.live.sources import LiveSource, Notice
from edgeapp.live.timeline import elapsed_s
from pipelines.asr.live.events import CommittedText, SpeechStarted
from pipelines.errors import DeviceLost
from tests.edgeapp.live.fake_sounddevice import FakeSoundDevice, FakeStream, installed
from tests.fixtures.pulse import PulseMicrophone

RATE, BLOCK = 44_100, 2_205  # of the headset
HOUR = 3_600.0


class World:
    """A room in which the sound tells the time, and a computer that may be stopped in it.

    The level of the sound rises by one in five hours.
    """

    def __init__(self, sound: FakeSoundDevice) -> None:
        self._sound, self.now = sound, 1_000.0
        self._recorded = self.now

    @property
    def stream(self) -> FakeStream:
        return self._sound.streams[-1]

    def level(self, time_s: float) -> float:
        return (time_s - 1_000) / (5 * HOUR)

    def hear(self, seconds: float) -> None:
        """Let time pass, with a computer that listens."""
        for _ in range(round(seconds * RATE / BLOCK)):
            self.now += BLOCK / RATE
            self._deliver()

    def wait(self, seconds: float, kept_s: float = 0.0) -> None:
        """Let time pass, with a stopped computer or without a device.

        Args:
            seconds: how long.
            kept_s: how much the sound system keeps: the first of it. All is delivered at the end.
        """
        self.now += seconds
        for _ in range(round(kept_s * RATE / BLOCK)):
            self._deliver()
        self._recorded = self.now

    def _deliver(self) -> None:
        times = self._recorded + np.arange(1, BLOCK + 1) / RATE
        self._recorded = times[-1]
        self.stream.hear(self.level(times).astype(np.float32))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(capture, "_RETRY_S", 0.01)
    world = World(installed(monkeypatch))
    for module in (capture, microphone):
        monkeypatch.setattr(module, "elapsed_s", lambda: world.now)
    return world


@pytest.fixture
def capturing(world: World) -> Iterator[LiveCapture]:
    with ExitStack() as stack:
        yield LiveCapture(stack, None, 1.0, ["headset"])


def arrived(source: LiveSource) -> Iterator[np.ndarray | Notice]:
    """What has arrived at a source; all of one that was stopped."""
    idle = 0
    while idle < 3 and (piece := source.read(0.0)) is not None:
        yield piece
        idle = idle + 1 if not isinstance(piece, Notice) and not len(piece) else 0


class Position:
    """Reads a source and compares the place of its audio with the time that the audio tells."""

    def __init__(self, world: World) -> None:
        self._world, self.seconds, self.notices = world, 0.0, list[Notice]()

    def read(self, source: LiveSource) -> None:
        """Read what has arrived."""
        for piece in arrived(source):
            if isinstance(piece, Notice):
                self.notices.append(piece)
                self.seconds += piece.gap_s
                continue
            # The resampler's filter rings for some milliseconds where the level jumps.
            for part in np.array_split(piece, max(1, len(piece) // 1_600)):
                told = np.median(part) * 5 * HOUR if len(part) else self.seconds
                middle = self.seconds + len(part) / 32_000
                assert told == pytest.approx(middle, abs=0.2)
                self.seconds += len(part) / 16_000


def finish(world: World, capturing: LiveCapture, position: Position) -> None:
    capturing.stop()
    threading.Timer(0.0, world.stream.break_off).start()
    position.read(capturing.source)
    assert position.seconds == pytest.approx(world.now - 1_000, abs=0.2)


@pytest.mark.parametrize("kept_s", [0.0, 12.0])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_stopped_program(
    world: World, capturing: LiveCapture, kept_s: float, is_read: bool
) -> None:
    position = Position(world)
    world.hear(5)
    if is_read:  # before and after, not only in the end
        position.read(capturing.source)
    world.wait(60, kept_s)
    world.hear(0.5)
    if is_read:
        position.read(capturing.source)
    world.hear(4.5)
    finish(world, capturing, position)
    (notice,) = position.notices
    assert notice.gap_s == pytest.approx(60 - kept_s, abs=0.1)
    assert notice.lost_s == notice.gap_s
    assert notice.message.startswith(f"{60 - kept_s:.0f} s of audio are missing or late: ")


def test_a_delay_without_a_loss_is_no_gap(world: World, capturing: LiveCapture) -> None:
    position = Position(world)
    for _ in range(5):
        world.hear(1)
        world.wait(1.5, kept_s=1.5)
        position.read(capturing.source)
    finish(world, capturing, position)
    assert not position.notices


def test_a_short_delay_at_the_end_is_no_gap(world: World, capturing: LiveCapture) -> None:
    """Ctrl-C on a busy machine: no later blocks tell whether audio is missing."""
    world.hear(5)
    world.wait(0.5, kept_s=0.1)
    capturing.stop()
    world.stream.break_off()
    assert not [piece for piece in arrived(capturing.source) if isinstance(piece, Notice)]


def test_a_long_loss_just_before_the_end_is_a_gap(world: World, capturing: LiveCapture) -> None:
    position = Position(world)
    world.hear(5)
    world.wait(60)
    world.hear(0.5)
    finish(world, capturing, position)
    (notice,) = position.notices
    assert notice.gap_s == pytest.approx(60, abs=0.1)


def test_small_losses_add_up_to_a_gap(world: World, capturing: LiveCapture) -> None:
    position = Position(world)
    for _ in range(20):
        world.hear(2)
        world.wait(0.1)
    world.hear(2)
    finish(world, capturing, position)
    assert sum(notice.gap_s for notice in position.notices) == pytest.approx(2.0, abs=0.2)


def test_a_clock_of_a_device_that_runs_slow_is_no_gap(world: World, capturing: LiveCapture) -> None:
    for _ in range(600):
        world.hear(1)
        world.now += 2e-4
        assert not [piece for piece in arrived(capturing.source) if isinstance(piece, Notice)]


def test_a_device_that_is_away(world: World, capturing: LiveCapture) -> None:
    position = Position(world)
    world.hear(5)
    world.stream.break_off()
    with pytest.raises(DeviceLost):
        position.read(capturing.source)
    world.wait(13)
    source = capturing.reopen_microphone()
    assert source is not None
    world.hear(5)
    finish(world, capturing, position)
    (notice,) = position.notices
    assert notice.gap_s == pytest.approx(13, abs=0.1)
    assert notice.message == "13 s of audio are missing: no microphone was there"


def test_what_was_dropped_has_its_place(world: World) -> None:
    position = Position(world)
    with ExitStack() as stack:
        capturing = LiveCapture(stack, None, 1.0, ["headset"])
        world.hear(150)  # of which two minutes are kept
        position.read(capturing.source)
        world.hear(5)
        finish(world, capturing, position)
    (notice,) = position.notices
    assert notice.gap_s == pytest.approx(30)
    assert notice.message.startswith("this machine is too slow: 30 s of audio were lost, and ")


def test_a_device_that_starts_late_shifts_nothing(world: World, capturing: LiveCapture) -> None:
    position = Position(world)
    world.wait(3)
    world.hear(3)
    finish(world, capturing, position)
    (notice,) = position.notices
    assert (notice.message, notice.lost_s) == ("", 0), "nothing was lost"


def test_a_clock_that_is_set_changes_no_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    shift = timedelta()

    class Wall(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return noon + shift

    monkeypatch.setattr(capture, "datetime", Wall)
    with ExitStack() as stack:
        capturing = LiveCapture(stack, None, 1.0, ["headset"])
        encoder = EventEncoder(lambda: "en", capturing.now, capturing.began)
        position = Position(world)
        world.hear(5)
        shift = timedelta(hours=1)
        world.hear(5)
        clock = encoder.content(SpeechStarted(7.0))["clock"]
        warned = encoder.content(WarningRaised("so"))["clock"]
        finish(world, capturing, position)
    assert not position.notices
    assert datetime.fromisoformat(clock) == noon + timedelta(seconds=7)
    assert datetime.fromisoformat(warned) == noon + timedelta(seconds=10)


def saved_with_a_gap(world: World, path: Path, gap_s: float) -> Position:
    """Save ten seconds of audio, with a gap in the middle."""
    position = Position(world)
    with ExitStack() as stack:
        capturing = LiveCapture(stack, None, 1.0, ["headset"])
        capturing.record_to(path)
        world.hear(5)
        world.wait(gap_s)
        world.hear(5)
        finish(world, capturing, position)
    return position


def test_the_saved_audio_has_silence_in_a_gap(world: World, tmp_path: Path) -> None:
    saved_with_a_gap(world, tmp_path / "talk.wav", 20)
    kept, rate = soundfile.read(tmp_path / "talk.wav")
    assert len(kept) / rate == pytest.approx(30, abs=0.2)
    assert not kept[6 * rate : 24 * rate].any()
    after = np.median(kept[-rate:])
    assert after == pytest.approx(world.level(1_029.5), abs=0.2 / 5 / HOUR + 1 / 32768)


def test_after_a_long_gap_files_begin_anew(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    position = saved_with_a_gap(world, tmp_path / "talk.wav", 2 * HOUR)
    for name in ("talk.wav", "talk-2.wav"):
        assert soundfile.info(tmp_path / name).duration == pytest.approx(5, abs=0.2)
    (notice,) = position.notices
    assert notice.message.startswith("2 h 0 min of audio are missing or late: ")
    after = 5 + notice.gap_s
    (tmp_path / "talk-2.srt").write_text("of another day")
    outputs = [LiveOutputFile(tmp_path / f"talk.{end}") for end in ("srt", "vtt", "txt", "jsonl")]
    outputs.append(LiveOutputFile(tmp_path / "talk.de.srt", translated=True))
    for event in (
        CommittedText(" Before", 1.0, 2.0),
        AudioLost(5.0, after, notice.message),
        CommittedText(" After", after + 1, after + 2),
        TranslationFinal("Danach", after + 1, after + 2, "After"),
        SessionEnded(after + 5),
    ):
        for output in outputs:
            output.write(event)
    for output in outputs:
        output.close()
    assert (tmp_path / "talk-2.srt").read_text() == "of another day"
    assert "Before" in (tmp_path / "talk.srt").read_text()
    cue = "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n"
    assert (tmp_path / "talk-3.srt").read_text() == cue.format("After")
    assert (tmp_path / "talk-2.de.srt").read_text() == cue.format("Danach")
    assert (tmp_path / "talk-2.vtt").read_text().startswith("WEBVTT\n\n00:01.000")
    assert (tmp_path / "talk-2.txt").read_text() == "After\n"
    lines = [json.loads(line) for line in (tmp_path / "talk.jsonl").read_text().splitlines()]
    assert [line["type"] for line in lines] == [
        "committed",
        "gap",
        "committed",
        "translation_final",
        "end",
    ]
    err = capsys.readouterr().err
    assert f"captions go on in {tmp_path / 'talk-3.srt'}" in err
    assert f"the audio goes on in {tmp_path / 'talk-2.wav'}" in err


def test_two_devices_of_a_stopped_program_have_one_gap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The sound server has kept 24 s of one and 13 s of the other: files begin anew after that."""
    sound, now = installed(monkeypatch), 1_000.0
    for module in (capture, microphone):
        monkeypatch.setattr(module, "elapsed_s", lambda: now)

    def deliver(stream: FakeStream) -> None:
        stream.hear(np.full(round(stream.samplerate / 20), 0.5, np.float32))

    with ExitStack() as stack:
        capturing = LiveCapture(stack, None, 1.0, ["headset", "built-in"], channels=2)
        capturing.record_to(tmp_path / "talk.wav")
        now += 900
        for stream, kept_s in zip(sound.streams, (24, 13), strict=True):
            for _ in range(kept_s * 20):
                deliver(stream)
        for _ in range(5 * 20):
            now += 0.05
            for stream in sound.streams:
                deliver(stream)
        pieces = list(arrived(capturing.source))
    (notice,) = (piece for piece in pieces if isinstance(piece, Notice))
    assert notice.gap_s == pytest.approx(900 - 24, abs=0.1)
    assert soundfile.info(tmp_path / "talk.wav").duration == pytest.approx(24, abs=0.1)
    assert soundfile.info(tmp_path / "talk-2.wav").duration == pytest.approx(5, abs=0.1)


RECORDING = """
import sys, threading
from dataclasses import replace
import numpy as np
from edgeapp.live.microphone import Microphone, find_device
from edgeapp.live.sources import MicrophoneSource, Notice

# Of eight channels, so that the sound server keeps three seconds of a stopped program.
with Microphone(replace(find_device("desk"), channels=8)) as microphone:
    source, begun, samples, gap_s = MicrophoneSource(microphone), False, [], 0.0
    at = microphone.began_s
    while (piece := source.read(0.05)) is not None:
        if isinstance(piece, Notice):
            gap_s += piece.lost_s
            at += piece.gap_s
            continue
        samples.append(np.stack([at + np.arange(len(piece)) / 16000, piece]))
        at += len(piece) / 16000
        if len(piece) and not begun:
            begun = True
            print("recording", flush=True)
            threading.Thread(target=lambda: (sys.stdin.readline(), microphone.stop())).start()
np.save(sys.argv[1], np.concatenate(samples, axis=1))
print(gap_s, flush=True)
"""


def test_a_program_that_was_stopped_agrees_with_a_second_recorder(
    pulse_microphone: PulseMicrophone, tmp_path: Path
) -> None:
    rising = np.arange(60 * RATE) / RATE
    sweep = 0.3 * np.sin(2 * np.pi * (300 * rising + 10 * rising**2))  # 20 Hz a second
    with wave.open(str(tmp_path / "sweep.wav"), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((sweep * 32767).astype("<i2").tobytes())
    environment = pulse_microphone.environment
    second = ["parec", "--device=mic.monitor", "--rate=16000", "--channels=1", "--format=s16le"]
    second.append("--latency-msec=10")
    play = ["paplay", "--device=mic", str(tmp_path / "sweep.wav")]
    with (
        subprocess.Popen(
            [sys.executable, "-c", RECORDING, str(tmp_path / "heard.npy")],
            env={**environment, "PYTHONPATH": str(Path(__file__).parents[3])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as first,
        subprocess.Popen(second, env=environment, stdout=subprocess.PIPE) as other,
        subprocess.Popen(play, env=environment) as player,
    ):
        blocks, began = list[bytes](), list[float]()

        def listen() -> None:
            assert other.stdout is not None
            while block := other.stdout.read1(4_096):
                blocks.append(block)
                began.append(elapsed_s() - sum(map(len, blocks)) / 32_000)

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "recording\n"
            time.sleep(3)
            first.send_signal(signal.SIGSTOP)
            time.sleep(6)
            first.send_signal(signal.SIGCONT)
            time.sleep(4)
            out, _ = first.communicate("stop\n", timeout=100)
        finally:
            for process in (first, other, player):
                process.kill()
            listener.join()
    assert float(out) > 1, "the sound server kept all"
    times, heard = np.load(tmp_path / "heard.npy")
    truth = np.frombuffer(b"".join(blocks), "<i2") / 32768
    ours = pitches(heard, lambda index: times[index])
    theirs = pitches(truth, lambda index: min(began) + index / 16_000)
    shifts = [at - np.interp(pitch, *theirs[::-1]) for at, pitch in zip(*ours, strict=True)]
    assert len(shifts) > 8
    assert np.abs(shifts).max() < 0.2, shifts


def pitches(
    samples: np.ndarray, time_of: Callable[[int], float]
) -> tuple[list[float], list[float]]:
    """Times (s) and the frequency (Hz) of the sweep there, where it sounds."""
    times, found = list[float](), list[float]()
    for start in range(0, len(samples) - 8_000, 4_000):
        part = samples[start : start + 8_000]
        whole = time_of(start + 7_999) - time_of(start) < 0.51
        if whole and np.abs(part).reshape(8, -1).max(axis=1).min() > 0.2:
            spectrum = np.abs(np.fft.rfft(part * np.hanning(8_000), 1 << 16))
            times.append(time_of(start + 4_000))
            found.append(float(spectrum.argmax()) * 16_000 / (1 << 16))
    return times, found
