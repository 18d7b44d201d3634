"""What a live session listens to, and how it gets over the loss of it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from edgeapp.live import capture
from edgeapp.live.capture import LiveCapture
from edgeapp.live.event_encoder import EventEncoder
from edgeapp.live.sources import Notice
from pipelines.asr.live.events import SpeechStarted
from tests.edgeapp.live.fake_sounddevice import FakeSoundDevice, PortAudioError, installed


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> FakeSoundDevice:
    monkeypatch.setattr(capture, "_RETRY_S", 0.01)
    return installed(monkeypatch)


def test_a_lost_microphone_is_closed_and_devices_are_listed_again(
    sound: FakeSoundDevice,
) -> None:
    with ExitStack() as stack:
        source = LiveCapture(stack, None, 1.0, None)
        (first,) = sound.streams
        looked = sound.looked
        first.break_off()
        source.reopen_microphone()
        assert first.closed
        assert sound.looked > looked, "PortAudio looks only while no stream is open"
        assert len(sound.streams) == 2
        assert not sound.streams[1].closed
    assert sound.streams[1].closed


def test_ctrl_c_while_a_microphone_is_opened_again_ends_it(sound: FakeSoundDevice) -> None:
    with ExitStack() as stack:
        capturing = LiveCapture(stack, None, 1.0, ["headset"])
        sound.streams[0].break_off()
        sound.refuse = lambda options: capturing.stop()
        source = capturing.reopen_microphone()
        assert source is not None
        while source.read(0.1) is not None:  # raises DeviceLost if it was not stopped
            pass


def test_a_failed_attempt_to_open_two_microphones_leaves_none_open(sound: FakeSoundDevice) -> None:
    def refuse(options: dict[str, Any]) -> PortAudioError | None:
        is_busy = options["device"] == 2 and len(sound.streams) < 5
        return PortAudioError("Device unavailable", -9985) if is_busy else None

    with ExitStack() as stack:
        capturing = LiveCapture(stack, None, 1.0, ["built-in", "headset"])
        sound.streams[1].break_off()
        sound.refuse = refuse
        assert capturing.reopen_microphone() is not None
        assert [stream.closed for stream in sound.streams] == [True] * 4 + [False] * 2
    assert all(stream.closed for stream in sound.streams)


def test_what_is_said_while_models_load_is_kept_and_said(
    sound: FakeSoundDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(capture, "_NOTE_S", 0.01)
    said = np.random.default_rng(0).uniform(-0.5, 0.5, 100 * 48_000).astype(np.float32)
    with ExitStack() as stack:
        capturing = LiveCapture(stack, None, 1.0)
        notes = capsys.readouterr().err
        assert notes.startswith("edgeapp: recording Built-in Microphone while the models load")
        with capturing.loading():
            for block in np.split(said, 2000):
                sound.streams[0].hear(block)
            deadline = time.monotonic() + 60
            while "loading; 100 s kept\n" not in notes:
                assert time.monotonic() < deadline, notes
                time.sleep(0.01)
                notes += capsys.readouterr().err
            loaded = datetime.now(UTC)
            time.sleep(0.05)
        assert "listening" not in notes
        began = EventEncoder(lambda: "en", began=capturing.began).content(SpeechStarted(1.0))
        assert datetime.fromisoformat(began["clock"]) < loaded + timedelta(seconds=1)
        assert capsys.readouterr().err.endswith("listening to Built-in Microphone; Ctrl-C ends\n")
        capturing.stop()
        heard = 0
        while (block := capturing.source.read(0.1)) is not None:
            assert not isinstance(block, Notice)
            heard += len(block)
        assert heard == pytest.approx(100 * 16_000, abs=100)


def heard_of(sound: FakeSoundDevice, device: str, pieces: list[np.ndarray]) -> list[str]:
    """What a person is told while a device sends these samples at its rate."""
    messages: list[str] = []
    with ExitStack() as stack:
        source = LiveCapture(stack, None, 1.0, [device]).source
        for piece in pieces:
            for block in np.array_split(piece, len(piece) // 2_000):
                sound.streams[-1].hear(block)
            while (found := source.read(0.0)) is not None:
                if isinstance(found, Notice):
                    messages.append(found.message)
                elif not len(found):
                    break
    return messages


def test_a_muted_microphone_is_said_once_and_when_it_is_heard_again(
    sound: FakeSoundDevice,
) -> None:
    """Later zeros may be pauses of a noise gate: a minute of them is reported."""
    rate = 44_100
    noise = np.random.default_rng(1).uniform(-1e-4, 1e-4, 2 * rate).astype(np.float32)
    muted = "the microphone 'USB Headset: Audio (hw:1,0)' sends only silence: is it muted? "
    again = "the microphone 'USB Headset: Audio (hw:1,0)' is heard again"
    zeros = np.zeros(10 * rate, np.float32)
    pauses = [zeros, noise, zeros[: 4 * rate], noise, *[zeros] * 5, noise]
    messages = heard_of(sound, "headset", [*pauses, *[zeros] * 7])
    assert [message.startswith(muted) for message in messages] == [True, False, True]
    assert messages[1] == again
    assert not heard_of(sound, "headset", [noise] * 5), "a quiet room is not silence"


def test_a_device_that_records_what_is_played_is_not_called_muted(sound: FakeSoundDevice) -> None:
    names = ("Monitor of Speakers", "Stereo Mix (Realtek)", "BlackHole 2ch", "CABLE Output")
    for name in names:
        sound.devices = [(name, 2, 48_000.0, 0)]
        assert not heard_of(sound, name, [np.zeros(480_000, np.float32)]), name
