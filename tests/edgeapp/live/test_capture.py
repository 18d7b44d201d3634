"""What a live session listens to, and how it gets over the loss of it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from edgeapp.live import capture
from edgeapp.live.capture import LiveCapture
from edgeapp.live.event_encoder import EventEncoder
from pipelines.asr.live.events import SpeechStarted
from tests.edgeapp.live.fake_sounddevice import FakeSoundDevice, installed


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
            heard += len(block)
        assert heard == pytest.approx(100 * 16_000, abs=100)
        assert capturing.source.dropped_s == 0
