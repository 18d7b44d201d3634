"""Microphone: complete audio at 16 kHz; dropped audio is counted, lost devices are reported."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soxr

from edgeapp.live import microphone
from edgeapp.live.microphone import InputDevice, Microphone
from pipelines.asr.audio.decode import load_audio
from pipelines.errors import DeviceLost
from tests.edgeapp.live.fake_sounddevice import FakeSoundDevice, FakeStream, installed
from tests.fixtures.pulse import PulseMicrophone

SAMPLES = Path(__file__).resolve().parents[3] / "assets" / "samples"


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> FakeSoundDevice:
    monkeypatch.setattr(microphone, "_STOP_TIMEOUT_S", 0.02)
    monkeypatch.setattr(microphone, "_FIRST_BLOCK_TIMEOUT_S", 0.1)
    return installed(monkeypatch)


def noise(count: int, seed: int = 3) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(count) * 0.2).astype(np.float32)


def speak(stream: FakeStream, samples: np.ndarray, frames: int = 2400) -> None:
    for start in range(0, len(samples), frames):
        stream.hear(samples[start : start + frames])


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000, 96_000])
def test_blocks_are_the_whole_recording_resampled_without_seams(
    sound: FakeSoundDevice, rate: int
) -> None:
    device = InputDevice(1, "any", 1, float(rate), True)
    said = noise(rate)
    with Microphone(device) as recording:
        speak(sound.streams[0], said, rate // 20 + 1)
        recording.stop()
        blocks = list(recording.blocks())
    assert all(block.dtype == np.float32 and block.ndim == 1 and len(block) for block in blocks)
    heard = np.concatenate(blocks)
    expected = soxr.resample(said, rate, 16_000)
    assert abs(len(heard) - 16_000) <= 1
    np.testing.assert_allclose(heard[: len(expected)], expected[: len(heard)], atol=1e-4)


def test_channels_are_averaged(sound: FakeSoundDevice) -> None:
    left, right = noise(1600, 1), noise(1600, 2)
    with Microphone(InputDevice(1, "any", 2, 16_000.0, True)) as recording:
        sound.streams[0].hear(np.stack([left, right], axis=1))
        block = recording.try_read(1.0)
    assert block is not None
    np.testing.assert_allclose(block.samples, (left + right) / 2, atol=1e-7)


def test_try_read_times_out_without_ending(sound: FakeSoundDevice) -> None:
    with Microphone() as recording:
        assert recording.try_read(0.01) is None
        assert not recording.ended


def test_stop_keeps_the_audio_up_to_it_only(
    sound: FakeSoundDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(microphone, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(FakeStream, "latency", 0.05)
    with Microphone(InputDevice(1, "any", 1, 16_000.0, True)) as recording:
        stream = sound.streams[0]
        stream.hear(np.full(800, 0.1, np.float32))
        recording.stop()
        # Said before Stop, but on its way through the sound system for 50 ms.
        stream.hear(np.full(800, 0.2, np.float32))
        now = 0.06
        stream.hear(np.full(800, 0.3, np.float32))
        stream.hear(np.full(800, 0.4, np.float32))
        heard = np.concatenate(list(recording.blocks()))
        assert recording.ended
        assert recording.try_read(1.0) is None
    np.testing.assert_allclose(heard, np.repeat([0.1, 0.2, 0.3], 800), atol=1e-7)


def test_stop_from_another_thread_ends_a_reader_that_waits(sound: FakeSoundDevice) -> None:
    with Microphone(stall_s=60.0) as recording:
        speak(sound.streams[0], noise(4800))
        threading.Timer(0.05, recording.stop).start()
        began = time.monotonic()
        assert 1500 < sum(map(len, recording.blocks())) <= 1601
        assert time.monotonic() - began < 30


def test_leaving_the_block_ends_the_reader(sound: FakeSoundDevice) -> None:
    with Microphone() as recording:
        speak(sound.streams[0], noise(4800))
    assert sound.streams[0].closed
    assert list(recording.blocks()) == []


def test_audio_beyond_the_queue_is_dropped_and_counted(
    sound: FakeSoundDevice,
) -> None:
    device = InputDevice(1, "any", 1, 16_000.0, True)
    with Microphone(device, block_s=0.05, queue_s=0.5) as recording:
        said = noise(16_000)
        speak(sound.streams[0], said, 800)
        assert recording.dropped_s == pytest.approx(0.5)
        assert recording.queued_s == pytest.approx(0.5)
        recording.stop()
        heard = np.concatenate(list(recording.blocks()))
    np.testing.assert_array_equal(heard, said[:8000])
    assert recording.overruns == 0


def test_overruns_of_the_sound_system_are_counted(sound: FakeSoundDevice) -> None:
    with Microphone() as recording:
        for overflow in (False, True, True):
            sound.streams[0].hear(noise(2400), overflow=overflow)
        assert recording.overruns == 2
        assert recording.dropped_s == 0


def test_an_unplugged_device_returns_its_audio_first(sound: FakeSoundDevice) -> None:
    said, heard = noise(48_000), []
    with Microphone() as recording:
        speak(sound.streams[0], said)
        sound.streams[0].break_off()
        with pytest.raises(DeviceLost, match="'Built-in Microphone' was disconnected"):
            heard.extend(recording.blocks())
        assert recording.ended
        assert list(recording.blocks()) == []
    assert sum(map(len, heard)) == 16_000


def test_a_stalled_device_is_lost(sound: FakeSoundDevice) -> None:
    with Microphone(stall_s=0.05) as recording:
        speak(sound.streams[0], noise(4800))
        with pytest.raises(DeviceLost, match=r"has sent nothing for 0\.05 s"):
            list(recording.blocks())


def test_a_device_may_start_slowly(sound: FakeSoundDevice) -> None:
    with Microphone(stall_s=0.01) as recording:
        assert recording.try_read(0.05) is None
        speak(sound.streams[0], noise(4800))
        assert recording.try_read(1.0) is not None


def test_a_pause_of_the_reader_is_no_stall(sound: FakeSoundDevice) -> None:
    """A long step of the recognizer, or Ctrl-Z: the device had no chance to be heard."""
    with Microphone(stall_s=0.05) as recording:
        speak(sound.streams[0], noise(4800))
        while recording.try_read(0.01) is not None:
            pass
        time.sleep(0.1)
        assert recording.try_read(0.01) is None
        assert not recording.ended


def test_stop_on_a_stalled_device_is_no_loss(sound: FakeSoundDevice) -> None:
    with Microphone(stall_s=60.0) as recording:
        recording.stop()
        assert list(recording.blocks()) == []


RECORDING = """
import json, sys, threading
import numpy as np
from edgeapp.live.microphone import Microphone, find_device, list_devices
from pipelines.errors import DeviceError, DeviceLost

def record(wanted):
    lost, blocks = None, []
    with Microphone(find_device(wanted)) as mic:
        try:
            for block in mic.blocks():
                if not blocks:
                    print("recording", flush=True)
                    threading.Thread(target=lambda: (sys.stdin.readline(), mic.stop())).start()
                blocks.append(block)
        except DeviceLost as error:
            lost = str(error)
    np.save(sys.argv[1], np.concatenate(blocks))
    said = {"lost": lost, "dropped_s": mic.dropped_s, "overruns": mic.overruns}
    print(json.dumps(said), flush=True)

for line in sys.stdin:
    if line == "list\\n":
        print(json.dumps([device.name for device in list_devices()]), flush=True)
    else:
        record(line.strip() or None)
"""


class Recording:
    """A program that records, told by lines on its stdin."""

    def __init__(self, pulse: PulseMicrophone, folder: Path) -> None:
        self.path = folder / "heard.npy"
        self.program = subprocess.Popen(
            [sys.executable, "-c", RECORDING, str(self.path)],
            env={**pulse.environment, "PYTHONPATH": str(SAMPLES.parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, line: str) -> None:
        assert self.program.stdin is not None
        self.program.stdin.write(line + "\n")
        self.program.stdin.flush()

    def said(self) -> str:
        assert self.program.stdout is not None
        return self.program.stdout.readline().strip()

    def heard(self) -> np.ndarray:
        return np.load(self.path)


@pytest.fixture
def recording(pulse_microphone: PulseMicrophone, tmp_path: Path) -> Iterator[Recording]:
    recording = Recording(pulse_microphone, tmp_path)
    with recording.program as program:
        yield recording
        program.kill()


def test_a_real_portaudio_device_is_recorded(
    pulse_microphone: PulseMicrophone, recording: Recording, tmp_path: Path
) -> None:
    spoken = load_audio(SAMPLES / "question.flac")
    with wave.open(str(tmp_path / "question.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes((spoken * 32767).astype("<i2").tobytes())
    recording.tell("list")
    assert {"desk", "default"} <= set(json.loads(recording.said()))
    whole = False
    for _ in range(4):  # a sound server that gets no time on a busy machine loses sound itself
        recording.tell("")
        assert recording.said() == "recording"
        pulse_microphone.play(tmp_path / "question.wav")
        recording.tell("stop")
        told, heard = json.loads(recording.said()), recording.heard()
        likeness, start = best_match(heard, spoken)
        whole = told["overruns"] == 0 and likeness > 0.98
        if whole:
            break
    assert whole, (told, likeness)
    assert told == {"lost": None, "dropped_s": 0, "overruns": 0}
    assert start >= 0
    assert len(heard) - start >= len(spoken)  # with its last sample, though Stop came at once


def test_a_real_device_unplugged_and_plugged_in_again(
    pulse_microphone: PulseMicrophone, recording: Recording
) -> None:
    recording.tell("desk")
    assert recording.said() == "recording"
    pulse_microphone.unplug()
    try:
        assert "'desk' was disconnected" in json.loads(recording.said())["lost"]
        assert len(recording.heard())
        recording.tell("")  # read by the thread that waits for Stop
    finally:
        pulse_microphone.plug()
    recording.tell("desk")
    assert recording.said() == "recording"
    recording.tell("stop")
    assert json.loads(recording.said())["lost"] is None


def best_match(heard: np.ndarray, spoken: np.ndarray) -> tuple[float, int]:
    """The largest normalised correlation, and from which sample of `heard` on it is found."""
    size = 1 << (len(heard) + len(spoken)).bit_length()
    product = np.fft.rfft(heard, size) * np.conj(np.fft.rfft(spoken, size))
    products = np.fft.irfft(product, size)[: len(heard) - len(spoken) + 1]
    energy = np.concatenate([[0], np.cumsum(heard.astype(np.float64) ** 2)])
    energies = energy[len(spoken) :] - energy[: -len(spoken)]
    likeness = products / np.sqrt(np.maximum(energies, 1e-9) * (spoken**2).sum())
    return float(likeness.max()), int(likeness.argmax())
