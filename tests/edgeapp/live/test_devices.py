"""Listing, finding and opening microphones, and the messages of failures."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from edgeapp.live import devices
from edgeapp.live.microphone import InputDevice, Microphone, find_device, list_devices
from pipelines.errors import DeviceError
from tests.edgeapp.live.fake_sounddevice import FakeSoundDevice, PortAudioError


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSoundDevice:
    fake = FakeSoundDevice()
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    monkeypatch.setattr(devices, "_SOUND_CARDS", tmp_path)
    monkeypatch.setattr(devices, "_open_streams", set())
    return fake


PACTL = """\
#!/bin/sh
case "$*" in
info)
    [ "$LC_ALL" = C.UTF-8 ] || echo "Standard-Quelle: other"
    printf 'Server Name: PulseAudio (on PipeWire 1.0.5)\nDefault Sink: out\nDefault Source: in\n' ;;
"list sources")
    for source in "out.monitor|Monitor of Out|out" "hdmi.monitor|Monitor of HDMI|hdmi" \
        "in|Built-in Microphone|n/a" "usb|USB Headset Möno|n/a"; do
        IFS='|' read -r name description sink <<END
$source
END
        printf 'Source #7\n\tName: %s\n\tDescription: %s\n' "$name" "$description"
        printf '\tSample Specification: s16le 2ch 32000Hz\n\tMute: no\n'
        printf '\tMonitor of Sink: %s\n\tProperties:\n\t\tName: = "x"\n' "$sink"
    done ;;
esac
"""


@pytest.fixture
def server(sound: FakeSoundDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound server, in PortAudio as on Linux; its pactl."""
    sound.devices = [
        ("HDA Intel PCH: ALC (hw:0,0)", 2, 44_100.0, 0),
        ("pulse", 32, 44_100.0, 0),
        ("default", 32, 44_100.0, 0),
    ]
    sound.default.device = [2, 2]
    program = tmp_path / "pactl"
    program.write_text(PACTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("PULSE_SOURCE", raising=False)
    return program


def test_sources_of_a_sound_server_are_listed_before_portaudios_devices(server: Path) -> None:
    listed = [(device.name, device.default, device.loopback) for device in list_devices()]
    assert listed == [
        ("Monitor of Out", False, True),
        ("Monitor of HDMI", False, True),
        ("Built-in Microphone", True, False),
        ("USB Headset Möno", False, False),
        ("HDA Intel PCH: ALC (hw:0,0)", False, False),
        ("pulse", False, False),
        ("default", False, False),
    ]


@pytest.mark.parametrize(
    ("wanted", "source"),
    [
        ("headset", "usb"),
        ("usb", "usb"),
        ("monitor", "out.monitor"),
        ("hdmi", "hdmi.monitor"),
        ("Monitor of Out", "out.monitor"),
        ("6", "usb"),
        ("pulse", ""),
        ("alc", ""),
    ],
)
def test_a_source_is_found_by_a_part_of_its_name(server: Path, wanted: str, source: str) -> None:
    assert find_device(wanted).source == source


def test_the_default_source_follows_the_servers_choice(
    server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (find_device().name, find_device().source) == ("Built-in Microphone", "")
    monkeypatch.setenv("PULSE_SOURCE", "usb")
    assert find_device().name == "USB Headset Möno"


def test_a_source_is_opened_at_its_rate_by_name_in_the_environment(
    server: Path, sound: FakeSoundDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str | None, int, float, int]] = []

    def note(options: dict[str, Any]) -> None:
        source = os.environ.get("PULSE_SOURCE")
        opened.append((source, options["device"], options["samplerate"], options["channels"]))

    sound.refuse = note
    with Microphone(find_device("headset")), Microphone(find_device("monitor")), Microphone():
        pass
    assert opened == [
        ("usb", 1, 32_000.0, 2), ("out.monitor", 1, 32_000.0, 2), (None, 1, 32_000.0, 2)
    ]  # fmt: skip
    assert "PULSE_SOURCE" not in os.environ


@pytest.mark.parametrize("program", ["", "#!/bin/sh\nexit 1\n"])
def test_without_a_working_pactl_portaudios_devices_are_listed(server: Path, program: str) -> None:
    server.write_text(program)
    assert [device.name for device in list_devices()][1:] == ["pulse", "default"]
    assert find_device().name == "default"


def test_importing_it_loads_neither_portaudio_nor_numpy() -> None:
    code = (
        "import sys, edgeapp.live.microphone, edgeapp.live.recorder;"
        "print({'sounddevice', 'numpy', 'soxr', 'av', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_only_input_devices_are_listed(sound: FakeSoundDevice) -> None:
    assert list_devices() == [
        InputDevice(1, "Built-in Microphone", 2, 48_000.0, True, "ALSA"),
        InputDevice(2, "USB Headset: Audio (hw:1,0)", 1, 44_100.0, False, "ALSA"),
    ]


def test_newly_connected_devices_are_listed(sound: FakeSoundDevice) -> None:
    list_devices()
    sound.devices.append(("New one", 1, 16_000.0, 0))
    assert find_device("new").index == 3
    assert sound.looked == 2  # PortAudio looks again only when it is started again


def test_listing_devices_does_not_end_a_recording(sound: FakeSoundDevice) -> None:
    with Microphone(find_device()):
        looked = sound.looked
        list_devices()
        assert sound.looked == looked
    list_devices()
    assert sound.looked == looked + 1


@pytest.mark.parametrize(
    ("wanted", "index"),
    [(None, 1), (2, 2), ("2", 2), ("headset", 2), ("HW:1,0", 2), ("built-in microphone", 1)],
)
def test_a_device_is_found_by_number_or_part_of_its_name(
    sound: FakeSoundDevice, wanted: str | int | None, index: int
) -> None:
    assert find_device(wanted).index == index


def test_a_whole_name_goes_before_parts_of_others(sound: FakeSoundDevice) -> None:
    sound.devices += [("sysdefault", 2, 48_000.0, 0), ("default", 2, 48_000.0, 0)]
    assert find_device("Default").index == 4


def test_the_sound_system_of_the_default_decides_between_equal_names(
    sound: FakeSoundDevice,
) -> None:
    sound.devices.append(("USB Headset", 1, 44_100.0, 1))
    assert find_device("headset").index == 2


def test_without_a_default_the_first_is_taken(sound: FakeSoundDevice) -> None:
    sound.default.device = [-1, -1]
    assert find_device().index == 1


@pytest.mark.parametrize("wanted", ["webcam", 0, 7, "7", "", "-1"])
def test_no_match_lists_the_devices_in_one_line(sound: FakeSoundDevice, wanted: str | int) -> None:
    with pytest.raises(DeviceError) as caught:
        find_device(wanted)
    assert str(caught.value) == (
        f"no microphone matches {str(wanted)!r}; there are: "
        "1 Built-in Microphone; 2 USB Headset: Audio (hw:1,0)"
    )


def test_several_matches_are_named_with_their_numbers(sound: FakeSoundDevice) -> None:
    sound.devices.append(("Other Microphone", 1, 44_100.0, 0))
    with pytest.raises(DeviceError) as caught:
        find_device("microphone")
    assert "1 Built-in Microphone; 3 Other Microphone" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_microphone_at_all(sound: FakeSoundDevice) -> None:
    sound.devices = [("Speakers", 0, 48_000.0, 0)]
    assert list_devices() == []
    with pytest.raises(DeviceError, match="no microphone was found: plug one in"):
        find_device()


def test_unreadable_sound_cards_are_a_permission_error(
    sound: FakeSoundDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound.devices = []
    (tmp_path / "pcmC0D0c").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(
        DeviceError, match="pcmC0D0c cannot be read: permission denied.*usermod -aG audio"
    ):
        find_device()


def test_portaudio_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes.util

    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    with pytest.raises(DeviceError, match="apt install libportaudio2"):
        list_devices()


def test_a_sound_system_that_does_not_start(
    sound: FakeSoundDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise PortAudioError("Host error", -9999)

    monkeypatch.setattr(sound, "_initialize", fail)
    with pytest.raises(DeviceError, match="sound system does not start"):
        list_devices()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PortAudioError("Device unavailable", -9985), "another program uses it"),
        (PortAudioError("Invalid device", -9996), "no longer present"),
        (
            PortAudioError("Unanticipated host error", -9999, (0, -13, "Permission denied")),
            "permission denied",
        ),
        (PortAudioError("Out of luck", -9990), "cannot be opened: Out of luck$"),
        (ValueError("No input device with index 1"), "no longer present"),
    ],
)
def test_reasons_why_a_microphone_cannot_be_opened(
    sound: FakeSoundDevice, error: Exception, words: str
) -> None:
    sound.refuse = lambda options: error
    with pytest.raises(DeviceError, match=f"'Built-in Microphone'.*{words}"), Microphone():
        pass
    sound.refuse = lambda options: None
    sound.start_error = error if isinstance(error, PortAudioError) else PortAudioError("Late")
    with pytest.raises(DeviceError, match="'Built-in Microphone' cannot be opened"), Microphone():
        pass
    assert sound.streams[-1].closed


def test_it_opens_with_the_devices_own_rate_and_channels(sound: FakeSoundDevice) -> None:
    with Microphone(find_device(), block_s=0.1):
        options = sound.streams[0].options
        assert (options["samplerate"], options["channels"]) == (48_000.0, 2)
        assert (options["blocksize"], options["dtype"]) == (4800, "float32")


def test_common_settings_are_tried_if_the_native_ones_are_rejected(
    sound: FakeSoundDevice,
) -> None:
    sound.devices = [("Odd", 6, 192_000.0, 0)]
    sound.default.device = [0, -1]
    sound.refuse = lambda options: (
        None
        if (options["samplerate"], options["channels"]) == (48_000.0, 1)
        else PortAudioError("Invalid sample rate", -9997)
    )
    with Microphone():
        assert sound.streams[0].samplerate == 48_000.0


def test_two_channels_are_opened_if_a_device_offers_many(
    sound: FakeSoundDevice,
) -> None:
    sound.devices = [("pipewire", 64, 44_100.0, 0)]
    sound.default.device = [0, -1]
    with Microphone():
        assert sound.streams[0].channels == 2


def test_a_sound_system_that_hangs_does_not_hang_the_program(
    sound: FakeSoundDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_CLOSE_TIMEOUT_S", 0.05)
    hanging, released = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        released.wait(60)

    unregistered: list[object] = []
    monkeypatch.setattr(atexit, "unregister", unregistered.append)
    try:
        began = time.monotonic()
        with Microphone():
            monkeypatch.setattr(sound.streams[0], "close", hang)
        assert time.monotonic() - began < 10
        assert hanging.wait(60), "it was closed"
        assert unregistered == [sound._exit_handler], "the end of the program does not hang either"
        assert sound.streams[0] in devices._open_streams, "it is not closed yet"
    finally:
        released.set()
