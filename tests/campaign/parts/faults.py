"""Commands whose descriptors are closed, whose disk is full, and that signals interrupt."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from random import Random
from typing import Any

from tests.campaign import part
from tests.campaign.commands import EDGEAPP, SAMPLES, Ended, run_command
from tests.campaign.part import MB, Case, Failed, Limits

CPU = ("--device", "cpu", "--threads", "1")
TEXT = "".join(f"I have {n} books and a cup of coffee.\n" for n in range(2, 14))
# {out}: where results go. Without a model first: they are quick.
COMMANDS: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "version": ("--version",),
    "list": ("models", "list"),
    "path": ("models", "path", "demo"),
    "jobs": ("jobs",),
    "doctor": ("doctor", "--no-microphone"),
    "usage": ("transcribe", "--batch-size", "x", "a.wav"),
    "transcribe": ("transcribe", "{audio}", "-m", "demo", *CPU),
    "subtitles": ("transcribe", "{audio}", "-m", "demo", "-f", "all", "-o", "{out}", *CPU),
    "translate": ("translate", "text.txt", "-m", "demo-en-de", *CPU),
    "lines": ("translate", "text.txt", "-m", "demo-en-de", "-o", "{out}/text.de.txt", *CPU),
    "live": ("live", "--from-file", "{audio}", "--speed", "0", "-m", "demo", *CPU),
    "captions": ("live", "--from-file", "{audio}", "--speed", "0", "-m", "demo",
                 "-o", "{out}/live.srt", "-o", "{out}/live.jsonl", "--save-audio",
                 "{out}/live.wav", *CPU),
    "demo": ("demo", "-o", "{out}", *CPU),
}  # fmt: skip
# Of a clean run these files hold times, which differ from run to run.
_TIMED = ("live.jsonl",)
FAULTS = ("closed", "full", "limit", "small", "readonly", "signal", "signal", "signal", "resume")
_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
_SIGNALS = (*_ENDING, "SIGQUIT", "SIGUSR1", "SIGPIPE", "SIGKILL", "SIGSTOP", "SIGWINCH", "SIGALRM")
_FULL_TMPFS = 'mount -t tmpfs -o size="$0" tmpfs "$1" && shift && exec "$@"'
_READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'


class Campaign(part.Part):
    """Data: JSON with the command, the fault and its details."""

    name = "faults"
    limits = Limits(1200 * MB, 16384 * MB, cpu_s=90, wall_s=150)
    fixed = 10

    def prepare(self) -> None:
        self.mounts = _can_mount(self.folder)
        self.clean: dict[str, dict[str, bytes]] = {}

    def generate(self, seed: int) -> Case:
        random = Random(seed)
        fault = FAULTS[seed % len(FAULTS)]
        saving = ("subtitles", "lines", "captions", "demo")
        if fault in ("small", "readonly", "limit"):
            command = random.choice(saving)
        elif fault == "resume":
            command = "lines"
        else:
            command = random.choice(list(COMMANDS))
        spec: dict[str, Any] = {"command": command, "fault": fault}
        spec["closed"] = random.choice(([0], [1], [2], [0, 1], [1, 2], [0, 1, 2]))
        spec["stream"] = random.choice(("stdout", "stderr", "both"))
        spec["bytes"] = random.choice((0, 1, 100, 1000, 4096, 20_000, 60_000, 100_000))
        spec["signals"] = [
            (round(random.uniform(0.3, 6.0), 3), random.choice(_SIGNALS))
            for _ in range(random.choice((1, 1, 2, 3)))
        ]
        return Case(f"{command}.{fault}", json.dumps(spec).encode())

    def sample(self) -> list[Case]:
        faults = {"closed": [1, 2], "stream": "both", "bytes": 0, "signals": []}
        return [
            Case(f"{command}.{fault}", json.dumps({"command": command, "fault": fault, **faults})
                 .encode())
            for command, fault in (
                ("version", "closed"), ("list", "full"), ("help", "full"), ("jobs", "closed"),
                ("doctor", "full"),
            )
        ]  # fmt: skip

    def run(self, case: Case, folder: Path) -> str:
        spec = json.loads(case.data)
        work = _workplace(folder / "work")
        fault, command = spec["fault"], COMMANDS[spec["command"]]
        if fault in ("small", "readonly") and not self.mounts:
            raise part.Skipped("mounts need root and a mount namespace")
        if fault == "closed":
            ended = self._run(command, work, closed=spec["closed"])
        elif fault == "full":
            full = {
                name: "/dev/full"
                for name in ("stdout", "stderr")
                if spec["stream"] in (name, "both")
            }
            ended = self._run(command, work, **full)
        elif fault == "limit":
            size = spec["bytes"]
            ended = self._run(
                command, work,
                before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
                stderr="/dev/null",
            )  # fmt: skip
        elif fault in ("small", "readonly"):
            script = _FULL_TMPFS if fault == "small" else _READ_ONLY
            size = str(max(4096, spec["bytes"]))
            wrapper = ["unshare", "-m", "sh", "-c", script]
            wrapper += [size] if fault == "small" else ["sh"]
            ended = self._run(command, work, program=(*wrapper, str(work / "out"), *EDGEAPP))
        else:
            ended = self._interrupted(spec, command, work)
        _check(ended, spec)
        if fault == "resume":
            self._check_resumed(command, work, ended)
        return f"{fault}: exit {ended.code}"

    def _run(self, command: tuple[str, ...], work: Path, **options: Any) -> Ended:
        known = {"audio": SAMPLES / "question.flac", "out": "out"}
        return run_command([word.format(**known) for word in command], work, **options)

    def _interrupted(self, spec: dict[str, Any], command: tuple[str, ...], work: Path) -> Ended:
        """Run with signals. A stopped process is continued."""
        signals = []
        for at, name in sorted(spec["signals"]):
            signals.append((at, getattr(signal, name)))
            if name == "SIGSTOP":
                signals.append((at + 0.2, signal.SIGCONT))
        return self._run(command, work, signals=signals)

    def _check_resumed(self, command: tuple[str, ...], work: Path, ended: Ended) -> None:
        """The same command, run again to its end, gives what an uninterrupted one gives."""
        again = self._run(command, work)
        if again.code:
            raise Failed(f"after {ended.code}, the next run ends with {again.code}: {again.said}")
        fresh = _workplace(work.parent / "fresh")
        if self._run(command, fresh).code:
            raise Failed("a clean run fails")
        files = {p.name: p.read_bytes() for p in (work / "out").iterdir()}
        expected = {p.name: p.read_bytes() for p in (fresh / "out").iterdir()}
        if files != expected:
            raise Failed(f"resumed: {files}; clean: {expected}")


def _check(ended: Ended, spec: dict[str, Any]) -> None:
    said, fault = ended.said, spec["fault"]
    early = fault in ("signal", "resume")
    if "Traceback" in said or "Exception ignored" in said or "Fatal Python" in said:
        # Before `main` begins, while Python imports, Ctrl-C raises where it is.
        if not (early and "edgeapp/exit_codes.py" not in said and "KeyboardInterrupt" in said):
            raise Failed(f"a traceback, exit code {ended.code}: {said[-2500:]}")
        raise Failed(f"a traceback of an early signal, exit code {ended.code}: {said[-1500:]}")
    allowed = {0, 1, 2, 3, 130}
    if early:
        allowed |= {-getattr(signal, name) for _, name in spec["signals"] if name != "SIGSTOP"}
        names = {name for _, name in spec["signals"]}
        for name in _ENDING:
            if names == {name} and ended.code == -getattr(signal, name) and said:
                raise Failed(f"{name} ended it without its own ending: {said}")
    if ended.code not in allowed:
        raise Failed(f"exit code {ended.code}: {said[-1500:]}")
    prints = spec["command"] not in ("subtitles", "lines", "captions", "usage")
    if fault == "full" and spec["stream"] != "stderr" and prints and ended.code == 0:
        raise Failed(f"exit code 0 though stdout is full: {said[-500:]}")
    if len(said.splitlines()) > 12 and spec["command"] != "help":
        raise Failed(f"{len(said.splitlines())} lines on stderr: {said[:1500]}")


def _workplace(folder: Path) -> Path:
    (folder / "out").mkdir(parents=True)
    (folder / "text.txt").write_text(TEXT, "utf-8")
    return folder


def _can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "sh", "-c", _FULL_TMPFS, "4096", str(folder), "true"]
    return subprocess.run(command, capture_output=True).returncode == 0
