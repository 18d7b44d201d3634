"""What a live session listens to, and how it gets over the loss of it."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from edgeapp.live import capture
from edgeapp.live.capture import LiveCapture
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
