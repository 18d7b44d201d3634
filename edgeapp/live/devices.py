"""Microphones of the machine, through PortAudio: listing, opening, readable error messages.

The only file that uses PortAudio. Its Python module is imported when a microphone is first used.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgeapp.live.sound_server import list_sources
from pipelines.errors import DeviceError

__all__ = [
    "InputDevice",
    "close_stream",
    "find_device",
    "has_portaudio",
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

# Sound servers offer many channels (PulseAudio 32, PipeWire 64) with the same sound in each. Real
# microphones have few.
_MAX_CHANNELS = 8
_HOST_BUFFER_S = 0.2  # audio that PortAudio buffers while the callback is delayed
_CLOSE_TIMEOUT_S = 2.0  # closing a stream blocks while the sound server hangs

# Names of devices that record what programs play: of sound systems and of virtual sound cards.
_LOOPBACK = re.compile(
    r"\bmonitor\b|loopback|stereo mix|what u hear|wave out|blackhole|soundflower|\bcable\b|"
    r"virtual|null",
    re.IGNORECASE,
)

# PortAudio's device that opens a source of the sound server, those that are the server's default,
# and the variable that names the source.
_SERVER, _SERVER_DEFAULTS = "pulse", ("default", "pulse", "pipewire")
_SERVER_SYSTEM, _SERVER_VARIABLE = "sound server", "PULSE_SOURCE"

_portaudio_lock = threading.Lock()
_open_streams: set[Any] = set()


@dataclass(frozen=True)
class InputDevice:
    """A microphone or another recording device.

    Attributes:
        index: its number in the list, PortAudio's; it changes when devices are added or removed.
        name: as the system shows it.
        channels: maximum number of input channels.
        rate: native sample rate (Hz).
        default: whether it is the system's default.
        system: sound system (host API). Windows lists each device under several.
        loopback: whether it records what programs play. Its silence is nothing but zeros.
        muted: whether the sound server has muted it.
        source: name in the sound server, of a device that PortAudio does not list; "": the default
            one.
        opened_as: of such a device the number of the one by which PortAudio opens it.
        of_default_output: whether it records what the default output plays.
    """

    index: int
    name: str
    channels: int
    rate: float
    default: bool
    system: str = ""
    loopback: bool = False
    muted: bool = False
    source: str = ""
    opened_as: int | None = None
    of_default_output: bool = False

    def __str__(self) -> str:
        return f"{self.index} {self.name}"


def has_portaudio() -> bool:
    """Return whether PortAudio is installed, without loading it."""
    # On Windows and macOS it is a part of the Python module.
    found = sys.platform != "linux" or find_library("portaudio") is not None
    return found and find_spec("sounddevice") is not None


def list_devices() -> list[InputDevice]:
    """The recording devices that are present now.

    The sources of a PulseAudio or PipeWire server, which PortAudio lists as one device, come first.

    Raises:
        DeviceError: PortAudio is missing or does not work.
    """
    sd = _sounddevice()
    with _portaudio_lock:
        if not _open_streams:
            # PortAudio detects devices only when it is initialised, which ends all streams.
            _call(sd, sd._terminate)
            _call(sd, sd._initialize)
        systems = [api["name"] for api in sd.query_hostapis()]
        default = sd.default.device[0]
        devices = [
            InputDevice(
                index=info["index"],
                name=info["name"],
                channels=info["max_input_channels"],
                rate=float(info["default_samplerate"]),
                default=info["index"] == default,
                system=systems[info["hostapi"]],
                loopback=_LOOPBACK.search(info["name"]) is not None,
            )
            for info in sd.query_devices()
            if info["max_input_channels"] > 0
        ]
    return _with_sources(devices)


def _with_sources(devices: list[InputDevice]) -> list[InputDevice]:
    """Put the sound server's sources before the devices if PortAudio can open them."""
    server = next((device for device in devices if device.name == _SERVER), None)
    if server is None:
        return devices
    first = max(device.index for device in devices) + 1
    default_is_server = any(
        device.default and device.name in _SERVER_DEFAULTS for device in devices
    )
    sources = [
        InputDevice(
            index=first + number,
            name=source.description,
            channels=source.channels,
            rate=source.rate,
            default=source.default and default_is_server,
            system=_SERVER_SYSTEM,
            loopback=bool(source.monitors),
            muted=source.muted,
            source=source.name,
            opened_as=server.index,
            of_default_output=source.of_default_output,
        )
        for number, source in enumerate(list_sources())
    ]
    if any(source.default for source in sources):
        devices = [replace(device, default=False) for device in devices]
    return sources + devices


def find_device(wanted: str | int | None = None) -> InputDevice:
    """Find a device by its number or by its name or a part of it, ignoring case.

    Args:
        wanted: None: the system's default. If several devices match, those of the default's sound
            system are preferred, then microphones to what programs play, then what the default
            output plays.

    Raises:
        DeviceError: none or several devices match; the message lists them.
    """
    devices = list_devices()
    if not devices:
        raise _no_device_error()
    if wanted is None:
        default = next((device for device in devices if device.default), devices[0])
        return replace(default, source="")  # the server moves the stream if its default changes
    matches = _matches(devices, str(wanted).strip())
    systems = {device.system for device in devices if device.default}
    loopback = "monitor" in str(wanted).casefold()
    for is_preferred in (
        lambda device: device.system in systems,
        lambda device: device.loopback == loopback,
        lambda device: device.of_default_output,
    ):
        if len(matches) > 1:
            matches = list(filter(is_preferred, matches)) or matches
    if len(matches) == 1:
        return matches[0]
    listed = "; ".join(map(str, matches or devices))
    if matches:
        raise DeviceError(f"several microphones match {wanted!r}, choose one by number: {listed}")
    raise DeviceError(f"no microphone matches {str(wanted)!r}; there are: {listed}")


def _matches(devices: list[InputDevice], wanted: str) -> list[InputDevice]:
    folded = wanted.casefold()
    exact = [
        device
        for device in devices
        if folded in (device.name.casefold(), device.source.casefold()) and folded
    ]
    if exact or not wanted:
        return exact
    if wanted.isdecimal():
        return [device for device in devices if device.index == int(wanted)]
    return [
        device
        for device in devices
        if folded in device.name.casefold() or folded in device.source.casefold()
    ]


def open_stream(
    device: InputDevice,
    block_s: float,
    callback: Callable[..., None],
    finished: Callable[[], None],
) -> Any:
    """Open a sounddevice.RawInputStream, not started.

    It uses the device's native rate and channels, or common ones if the driver rejects these.

    Args:
        device: the microphone.
        block_s: duration of a block (s).
        callback: called for each block with (interleaved float32 as a bytes-like object, frames,
            time, flags), on PortAudio's thread.
        finished: called when the stream has ended for any reason.

    Raises:
        DeviceError: the device cannot be opened.
    """
    sd = _sounddevice()
    channels = device.channels if device.channels <= _MAX_CHANNELS else 2
    # Some drivers reject the settings that they report as native.
    settings = [(rate, n) for rate in (device.rate, 48_000.0, 44_100.0) for n in (channels, 1)]
    for rate, n in dict.fromkeys(settings):
        try:
            with _portaudio_lock, _server_source(device.source):
                stream = sd.RawInputStream(
                    device=device.index if device.opened_as is None else device.opened_as,
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
            last_error = error
            if _error_code(error) not in (_INVALID_CHANNELS, _INVALID_RATE):
                break
    raise _open_error(device, last_error) from last_error


@contextmanager
def _server_source(name: str) -> Iterator[None]:
    """Let PulseAudio's library record a source: its streams ask the environment when they open."""
    before = os.environ.get(_SERVER_VARIABLE)
    if name:
        os.environ[_SERVER_VARIABLE] = name
    try:
        yield
    finally:
        if name and before is None:
            del os.environ[_SERVER_VARIABLE]
        elif before is not None:
            os.environ[_SERVER_VARIABLE] = before


def start_stream(device: InputDevice, stream: Any) -> None:
    """Start recording.

    Raises:
        DeviceError: the stream does not start; it has been closed.
    """
    sd = _sounddevice()
    try:
        stream.start()
    except sd.PortAudioError as error:
        close_stream(stream)
        raise _open_error(device, error) from error


def close_stream(stream: Any) -> None:
    """Close a stream and discard its buffer; give up after 2 s if the sound system hangs."""
    closing = threading.Thread(target=stream.close, name="closing the microphone", daemon=True)
    closing.start()
    closing.join(_CLOSE_TIMEOUT_S)
    if closing.is_alive():
        # sounddevice's exit handler would close it again and hang the process.
        import atexit

        atexit.unregister(_sounddevice()._exit_handler)
        return
    with _portaudio_lock:
        _open_streams.discard(stream)


@cache
def _hide_messages() -> None:
    """Hide what PortAudio prints, once."""
    from edgeapp.live.library_messages import hide_library_messages

    hide_library_messages()


def _sounddevice() -> Any:
    """The module; its first import initialises PortAudio.

    Raises:
        DeviceError: PortAudio is not installed.
    """
    _hide_messages()
    try:
        import sounddevice
    except OSError as error:
        raise DeviceError(_NOT_INSTALLED) from error
    return sounddevice


def _call(sd: Any, function: Callable[[], None]) -> None:
    try:
        function()
    except sd.PortAudioError as error:
        raise DeviceError(f"the sound system does not start: {error}") from error


def _no_device_error() -> DeviceError:
    """The error if no device is listed: no microphone, or no permission for the sound cards."""
    cards = sorted(_SOUND_CARDS.glob("pcm*c"))
    if cards and not any(os.access(card, os.R_OK) for card in cards):
        return DeviceError(f"{cards[0]} cannot be read: {_DENIED}")
    return DeviceError("no microphone was found: plug one in or switch it on, then try again")


def _error_code(error: Exception) -> int | None:
    return error.args[1] if len(error.args) > 1 else None


def _open_error(device: InputDevice, error: Exception) -> DeviceError:
    """PortAudio's error as a message that says what to do."""
    code, text = _error_code(error), str(error).lower()
    if any(sign in text for sign in ("permission denied", "access is denied", "80070005")):
        reason = _DENIED
    elif code == _UNAVAILABLE:
        reason = (
            "another program uses it, or it was unplugged: close that program, or choose another"
            " microphone"
        )
    elif code == _INVALID_DEVICE or isinstance(error, ValueError):
        reason = "it is no longer present: `edgeapp live --list-devices` lists the microphones"
    else:
        reason = str(error.args[0] if error.args else error)
    return DeviceError(f"the microphone {device.name!r} cannot be opened: {reason}")
