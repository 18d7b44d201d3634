"""What a part of the campaign is: it generates cases from seeds and runs them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Case", "Failed", "Limits", "Part", "Skipped", "printed"]

MB = 1 << 20


class Failed(Exception):
    """The program did what it must not do. Everything else that a case raises is a failure too."""


class Skipped(Exception):
    """This machine lacks what the case needs; the message says what."""


@dataclass(frozen=True)
class Case:
    """An input.

    Attributes:
        label: What the data is, in letters, digits, dots and hyphens.
        data: With the label, all that the run depends on.
    """

    label: str
    data: bytes


@dataclass(frozen=True)
class Limits:
    """What the process of a case may use.

    Attributes:
        memory_bytes: Growth of the resident memory; more is a failure.
        address_bytes: Growth of the address space, which the system refuses.
        cpu_s: CPU seconds of one process.
        wall_s: Seconds until the case and all its processes are killed, which is a failure.
    """

    memory_bytes: int = 500 * MB
    address_bytes: int = 2048 * MB
    cpu_s: int = 30
    wall_s: float = 60.0


class Part:
    """A part of the campaign; subclasses are in tests/campaign/parts.

    Args:
        folder: For files that all cases share.

    Attributes:
        name: As given to PARTS.
        limits: Of each case.
        shrinks: Whether bytes can be taken out of the data of a case that fails.
        once: Whether the part has one case only.
        fixed: The number of fixed seeds, 0 … fixed - 1, that come before the fresh ones.
        sampling: Whether only the corpus and `sample` will be run.
        ends_at: When its time is over, by time.monotonic(). A case should end before.
    """

    name = ""
    limits = Limits()
    shrinks = False
    once = False
    fixed = 4
    sampling = False
    ends_at = math.inf

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make what all cases share. Not limited. Raises Skipped if the part cannot run here."""

    def generate(self, seed: int) -> Case:
        """The case of a seed; the same seed gives the same case."""
        raise NotImplementedError

    def sample(self) -> list[Case]:
        """Some quick cases, always the same, for `make test`."""
        return [self.generate(seed) for seed in range(3)]

    def run(self, case: Case, folder: Path) -> str:
        """Run a case in a process of its own.

        Args:
            case: From `generate` or from the corpus.
            folder: Empty, the working directory; deleted afterwards.

        Returns:
            The outcome in a few words, such as "AudioError".

        Raises:
            Failed: The outcome is not allowed. Any other exception counts as a failure as well.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Check after each case, in the process of `prepare`, what cases share. Raises Failed."""

    def close(self) -> None:
        """End what `prepare` began."""


def printed(folder: Path) -> str:
    """What the process of a case has written to its stdout and stderr so far."""
    return (folder / ".log").read_text("utf-8", "replace")
