"""Sources of a PulseAudio or PipeWire server, which PortAudio shows as one device only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

__all__ = ["SoundSource", "list_sources"]

_TIMEOUT_S = 5.0
_SPECIFICATION = re.compile(r"(\d+)ch (\d+)Hz")


@dataclass(frozen=True)
class SoundSource:
    """A source of the sound server.

    Attributes:
        name: by which the server knows it.
        description: for people.
        channels: number of channels.
        rate: native sample rate (Hz).
        monitors: the name of the output whose sound it records; "" of a microphone.
        muted: whether it is muted in the server.
        default: whether it is the default source.
        of_default_output: whether it monitors the default output.
    """

    name: str
    description: str
    channels: int
    rate: float
    monitors: str = ""
    muted: bool = False
    default: bool = False
    of_default_output: bool = False


def list_sources() -> list[SoundSource]:
    """Return the sources, of which none are there if no server or no `pactl` is."""
    if shutil.which("pactl") is None or not (info := _fields(_pactl("info"))):
        return []
    default, output = info.get("Default Source", ""), info.get("Default Sink", "")
    sources = []
    for text in re.split(r"(?m)^Source #\d+$", _pactl("list", "sources"))[1:]:
        fields = _fields(text)
        name, found = fields.get("Name", ""), fields.get("Sample Specification", "")
        specification = _SPECIFICATION.search(found)
        if not name or specification is None:
            continue
        monitors = fields.get("Monitor of Sink", "n/a").replace("n/a", "")
        sources.append(
            SoundSource(
                name=name,
                description=fields.get("Description", name),
                channels=int(specification[1]),
                rate=float(specification[2]),
                monitors=monitors,
                muted=fields.get("Mute") == "yes",
                default=name == os.environ.get("PULSE_SOURCE", default),
                of_default_output=bool(monitors) and monitors == output,
            )
        )
    return sources


def _fields(text: str) -> dict[str, str]:
    """Return the fields `Name: value` of an object; its properties are indented by more."""
    return dict(re.findall(r"(?m)^\t?(\w[^:\t\n]*): (.*)$", text))


def _pactl(*command: str) -> str:
    """Return what pactl prints, in English; "" if it fails. Not all versions print JSON."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": ""}
    try:
        done = subprocess.run(
            ["pactl", *command], capture_output=True, env=environment, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
