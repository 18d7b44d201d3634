"""A rival's process, as the one that measures sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmarks.comparison.shapes import Shape

__all__ = ["PeerMissing", "PeerFailed", "PeerProcess"]


class PeerFailed(Exception):
    """A rival could not do what was asked of it; the message says why."""


class PeerMissing(PeerFailed):
    """A rival's package is not installed."""


class PeerProcess:
    """Runs `worker` in one of its roles for one shape: "prepare", "race" with a rival's place, or
    "peak" with an import and a rival's place.

    Use as a context manager.
    """

    def __init__(self, role: str, shape: Shape, folder: Path, device: str, *place: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.comparison.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        try:
            self.ask("open", role, asdict(shape), str(folder), device, *place)
        except BaseException:
            self.close()
            raise

    def ask(self, call: str, *arguments: Any) -> Any:
        """Call a method of what the worker serves. Raises PeerFailed with what that raised."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerFailed(f"its process ended with {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise (PeerMissing if answer["missing"] else PeerFailed)(answer["error"])
        return answer["value"]

    def close(self) -> None:
        """End the process; it has nothing to lose."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
