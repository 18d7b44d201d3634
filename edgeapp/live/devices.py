"""The machine's microphones, through PortAudio: which there are, opening one, plain words.

PortAudio and its Python module are touched nowhere else, and only once a microphone is asked for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import DeviceError

__all__ = [
    "InputDevice",
    "close_stream",
    "find_device",
    "list_devices",
    "open_stream",
    "start_stream",
]

_SOUND_CARDS = Path("/dev/snd")  # Linux
_NOT_INSTALLED = (
    "PortAudio, through which microphones are read, is not installed: `apt install libportaudio2` "
    "(Debian, Ubuntu), `dnf install portaudio` (Fedora) or `pacman -S portaudio` (Arch)"
)
_DENIED = (
    "permission denied. Linux: `sudo usermod -aG audio $USER`, then log in again; macOS, Windows: "
    "allow the microphone for this program in the privacy settings"
)

# PortAudio's error codes (portaudio.h).
_INVALID_CHANNELS, _INVALID_RATE = -9998, -9997
_INVALID_DEVICE, _UNAVAILABLE = -9996, -9985

# Sound servers offer as many channels as anyone might want (PulseAudio 32, PipeWire 64), with the
# same sound in each: real microphones have few.
_MOST_CHANNELS = 8
_HOST_BUFFER_S = 0.2  # what PortAudio holds for us while Python is kept from taking it
_CLOSING_S = 2.0  # a sound server that hangs must not hang us

_portaudio = threading.Lock()
_open_streams: set[Any] = set()


@dataclass(frozen=True)
class InputDevice:
    """A microphone, or whatever else can be recorded from.

    index: PortAudio's number for it, until devices come or go. rate: its own, in Hz.
    system: the sound system it belongs to; Windows lists each device under several.
    """

    index: int
    name: str
    channels: int
    rate: float
    default: bool
    system: str = ""

    def __str__(self) -> str:
        return f"{self.index} {self.name}"


def list_devices() -> list[InputDevice]:
    """What can be recorded from at this moment; [] where there is nothing.

    Raises DeviceError where PortAudio is missing or does not work.
    """
    sd = _sounddevice()
    with _portaudio:
        if not _open_streams:
            # PortAudio looks for devices only when it starts; starting again ends all streams.
            _checked(sd, sd._terminate)
            _checked(sd, sd._initialize)
        systems = [api["name"] for api in sd.query_hostapis()]
        default = sd.default.device[0]
        return [
            InputDevice(
                index=found["index"],
                name=found["name"],
                channels=found["max_input_channels"],
                rate=float(found["default_samplerate"]),
                default=found["index"] == default,
                system=systems[found["hostapi"]],
            )
            for found in sd.query_devices()
            if found["max_input_channels"] > 0
        ]


def find_device(wanted: str | int | None = None) -> InputDevice:
    """The device of that number, or whose name is or holds `wanted`; None: the system's default.

    Upper and lower case are the same. Where several match, the default's sound system decides.
    Raises DeviceError, naming what there is, when none or more than one is meant.
    """
    devices = list_devices()
    if not devices:
        raise _nothing_there()
    if wanted is None:
        return next((device for device in devices if device.default), devices[0])
    matches = _matches(devices, str(wanted).strip())
    if len(matches) > 1:
        usual = {device.system for device in devices if device.default}
        matches = [device for device in matches if device.system in usual] or matches
    if len(matches) == 1:
        return matches[0]
    there = "; ".join(map(str, matches or devices))
    if matches:
        raise DeviceError(f"several microphones match {wanted!r}, choose one by number: {there}")
    raise DeviceError(f"no microphone matches {str(wanted)!r}; there are: {there}")


def _matches(devices: list[InputDevice], wanted: str) -> list[InputDevice]:
    folded = wanted.casefold()
    exact = [device for device in devices if device.name.casefold() == folded]
    if exact or not wanted:
        return exact
    if wanted.isdecimal():
        return [device for device in devices if device.index == int(wanted)]
    return [device for device in devices if folded in device.name.casefold()]


def open_stream(
    device: InputDevice,
    block_s: float,
    callback: Callable[..., None],
    finished: Callable[[], None],
) -> Any:
    """A sounddevice.RawInputStream, not started, at the device's own rate and channels if it can.

    It calls callback(bytes-like float32 interleaved, frames, time, flags) every `block_s`, and
    `finished` when it has ended in whatever way. Raises DeviceError.
    """
    sd = _sounddevice()
    channels = device.channels if device.channels <= _MOST_CHANNELS else 2
    # Some drivers refuse what they said was theirs.
    tries = [(rate, n) for rate in (device.rate, 48_000.0, 44_100.0) for n in (channels, 1)]
    for rate, n in dict.fromkeys(tries):
        try:
            with _portaudio:
                stream = sd.RawInputStream(
                    device=device.index,
                    samplerate=rate,
                    channels=n,
                    dtype="float32",
                    blocksize=max(1, round(block_s * rate)),
                    latency=_HOST_BUFFER_S,
                    callback=callback,
                    finished_callback=finished,
                )
                _open_streams.add(stream)
            return stream
        except (sd.PortAudioError, ValueError) as error:
            refused = error
            if _code(error) not in (_INVALID_CHANNELS, _INVALID_RATE):
                break
    raise _in_words(device, refused) from refused


def start_stream(device: InputDevice, stream: Any) -> None:
    """Let it record. Raises DeviceError, the stream closed."""
    sd = _sounddevice()
    try:
        stream.start()
    except sd.PortAudioError as error:
        close_stream(stream)
        raise _in_words(device, error) from error


def close_stream(stream: Any) -> None:
    """Close it at once, what it holds forgotten; give up on it where the sound system hangs."""
    closing = threading.Thread(target=stream.close, name="closing the microphone", daemon=True)
    closing.start()
    closing.join(_CLOSING_S)
    if closing.is_alive():
        # At exit sounddevice would close it once more, and hang for good.
        import atexit

        atexit.unregister(_sounddevice()._exit_handler)
        return
    with _portaudio:
        _open_streams.discard(stream)


def _sounddevice() -> Any:
    """The module, which starts PortAudio when it is first imported. Raises DeviceError."""
    try:
        import sounddevice
    except OSError as error:
        raise DeviceError(_NOT_INSTALLED) from error
    return sounddevice


def _checked(sd: Any, call: Callable[[], None]) -> None:
    try:
        call()
    except sd.PortAudioError as error:
        raise DeviceError(f"the sound system does not start: {error}") from error


def _nothing_there() -> DeviceError:
    cards = sorted(_SOUND_CARDS.glob("pcm*c"))
    if cards and not any(os.access(card, os.R_OK) for card in cards):
        return DeviceError(f"{cards[0]} cannot be read: {_DENIED}")
    return DeviceError("no microphone was found: plug one in or switch it on, then try again")


def _code(error: Exception) -> int | None:
    return error.args[1] if len(error.args) > 1 else None


def _in_words(device: InputDevice, error: Exception) -> DeviceError:
    code, text = _code(error), str(error).lower()
    if any(sign in text for sign in ("permission denied", "access is denied", "80070005")):
        reason = _DENIED
    elif code == _UNAVAILABLE:
        reason = "another program uses it, or it was unplugged: close that one, or choose another"
    elif code == _INVALID_DEVICE or isinstance(error, ValueError):
        reason = "it is not there any more: `edgeapp live --list-devices` shows which are"
    else:
        reason = str(error.args[0] if error.args else error)
    return DeviceError(f"the microphone {device.name!r} cannot be opened: {reason}")
