"""A sounddevice module whose microphones the tests speak into, block by block."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeapp.live import devices, microphone


class PortAudioError(Exception):
    """Its arguments: words, PortAudio's code, (system, code, words)."""


class FakeStream:
    """A stream at 48 kHz or whatever it was opened with; blocks arrive when the test says so."""

    latency = 0.0

    def __init__(self, module: FakeSoundDevice, options: dict[str, Any]) -> None:
        self.options = options
        self.samplerate: float = options["samplerate"]
        self.channels: int = options["channels"]
        self.module = module
        self.started = self.closed = False

    def start(self) -> None:
        if self.module.start_error:
            raise self.module.start_error
        self.started = True

    def close(self) -> None:
        self.closed = True

    def hear(self, samples: np.ndarray, *, overflow: bool = False) -> None:
        """One callback: samples [frames] or [frames, channels]."""
        if samples.ndim == 1:
            samples = np.repeat(samples[:, None], self.channels, axis=1)
        data = memoryview(np.ascontiguousarray(samples, np.float32)).cast("B")
        flags = SimpleNamespace(input_overflow=overflow)
        self.options["callback"](data, len(samples), None, flags)

    def break_off(self) -> None:
        """What PortAudio does when the device goes away."""
        self.options["finished_callback"]()


def installed(monkeypatch: pytest.MonkeyPatch) -> FakeSoundDevice:
    """One that is there for a test, which need not wait long for it."""
    fake = FakeSoundDevice()
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    monkeypatch.setattr(devices, "_open_streams", set())
    monkeypatch.setattr(microphone, "_POLL_S", 0.005)
    return fake


class FakeSoundDevice:
    """devices: (name, input channels, rate, system). refuse: options → error or None."""

    PortAudioError = PortAudioError

    def __init__(self) -> None:
        self.devices: list[tuple[str, int, float, int]] = [
            ("Speakers", 0, 48_000.0, 0),
            ("Built-in Microphone", 2, 48_000.0, 0),
            ("USB Headset: Audio (hw:1,0)", 1, 44_100.0, 0),
        ]
        self.default = SimpleNamespace(device=[1, 0])
        self.systems = ["ALSA", "JACK"]
        self.streams: list[FakeStream] = []
        self.refuse: Callable[[dict[str, Any]], Exception | None] = lambda options: None
        self.start_error: Exception | None = None
        self.looked = 0

    def query_hostapis(self) -> list[dict[str, str]]:
        return [{"name": name} for name in self.systems]

    def query_devices(self) -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                "name": name,
                "max_input_channels": channels,
                "default_samplerate": rate,
                "hostapi": system,
            }
            for index, (name, channels, rate, system) in enumerate(self.devices)
        ]

    def RawInputStream(self, **options: Any) -> FakeStream:
        if error := self.refuse(options):
            raise error
        self.streams.append(FakeStream(self, options))
        return self.streams[-1]

    def _terminate(self) -> None:
        self.looked += 1

    def _initialize(self) -> None: ...

    def _exit_handler(self) -> None: ...
