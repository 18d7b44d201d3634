"""Run all checks: those with native libraries beside each other, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from edgeapp.doctor.checks import CHECKS
from edgeapp.doctor.findings import Finding, State
from pipelines import EdgeError

__all__ = ["examine"]

_TIMEOUT_S = {"computing": 60.0, "microphones": 15.0}
_AREAS = {"computing": "Engine", "microphones": "Microphone"}
_IMPORTS = ("ImportError", "ModuleNotFoundError", "OSError")  # of native libraries
_REINSTALL = "pip install --force-reinstall torch, or another version of it"


def examine(*, microphone: bool = True) -> list[Finding]:
    """Examine this machine. It raises no error: what fails is a finding.

    Args:
        microphone: Also list the microphones and listen to the default one for a second.
    """
    probes = ["computing", *["microphones"] * microphone]
    processes = {name: _start(name) for name in probes}
    findings = []
    for area, check in CHECKS.items():
        try:
            findings += list(check())
        except EdgeError as error:
            findings.append(Finding(area, State.BROKEN, str(error)))
        except Exception as error:  # whatever is broken must not end the examination
            findings.append(Finding(area, State.BROKEN, f"{type(error).__name__}: {error}"))
    for name, process in processes.items():
        findings += _collect(name, process)
    return findings


def _start(name: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(
        [sys.executable, "-m", "edgeapp.doctor.probes", name],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _collect(name: str, process: subprocess.Popen[str]) -> Iterator[Finding]:
    """The findings of a probe, or the way in which it ended."""
    area = _AREAS[name]
    broken = State.BROKEN if name == "computing" else State.MISSING
    try:
        out, err = process.communicate(timeout=_TIMEOUT_S[name])
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        text = f"no answer within {_TIMEOUT_S[name]:.0f} s"
        yield Finding(area, broken, text, "restart the sound system" if area != "Engine" else None)
        return
    try:
        lines = json.loads(out.splitlines()[-1])
        for line in lines:
            state = State(line["state"])
            wrong = state is State.BROKEN
            yield Finding(
                area if wrong else line["area"],
                broken if wrong else state,
                line["text"],
                line["advice"] or (_REINSTALL if line["text"].startswith(_IMPORTS) else None),
            )
    except (ValueError, IndexError, KeyError, TypeError):
        last = (err.strip().splitlines() or ["no message"])[-1]
        advice = _REINSTALL if name == "computing" else None
        yield Finding(area, broken, f"{_ending(process.returncode)}: {last}", advice)


def _ending(code: int) -> str:
    """How a process ended: "it ended with code 1", or with the name of a signal."""
    if code >= 0:
        return f"it ended with code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
