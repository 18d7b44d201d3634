"""The progress of a run over many files: one line on a terminal, notes in a pipe, or JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from edgeapp.console import print_note, progress
from edgeapp.exit_codes import named, unexpected
from pipelines import EdgeError

__all__ = ["FileOutcome", "ProgressOutput", "RunProgress"]

_NOTE_EVERY_S = 30.0
_EVENT_EVERY_S = 1.0
_STEPS = 1000  # of the bar
_NAME_WIDTH = 16


class ProgressOutput(Enum):
    """Where progress is shown."""

    TERMINAL = "a bar on a terminal, notes in a pipe"
    EVENTS = "JSON lines on stdout"
    NONE = "nowhere"


@dataclass(frozen=True)
class FileOutcome:
    """What a run did with a file.

    Attributes:
        skipped: Why it needed no work, or "".
        duration_s: Its length in seconds; None if not known.
        resumed_s: What an earlier run had done of it.
        outputs: The files that were written.
        warnings: Messages about it.
    """

    skipped: str
    duration_s: float | None
    resumed_s: float
    outputs: Sequence[Path]
    warnings: Sequence[str] = ()


class RunProgress:
    """Counts files and their content, and shows how far a run is. A context manager.

    The time left is computed from the sizes of the files, which are known before any is opened.

    Args:
        inputs: Paths of all files; "-" is stdin.
        unit: "audio": positions are seconds of sound; "lines": they are bytes of a text.
        output: Where progress is shown.
        name_done: Print a note for each file that is done.
    """

    def __init__(
        self,
        inputs: Sequence[str] = (),
        unit: Literal["audio", "lines"] = "audio",
        output: ProgressOutput = ProgressOutput.NONE,
        *,
        name_done: bool = False,
    ) -> None:
        self._name_done = name_done
        self._inputs, self._unit, self._output = inputs, unit, output
        self._sizes = {name: _size(name) for name in inputs}
        self._left = sum(self._sizes.values())  # bytes of files that are not finished
        self._worked = 0.0  # bytes of finished files that took work
        self._amount = 0.0  # seconds of sound, or lines, of finished files that took work
        self._counts = {"done": 0, "skipped": 0, "failed": 0}
        self._failures: list[tuple[str, str]] = []
        self._name, self._total, self._position, self._resumed = "", 0.0, 0.0, 0.0
        self._lines, self._skipped = 0, ""
        self._outputs: Sequence[Path] = ()
        self._warnings: list[str] = []
        self._began = self._file_began = self._shown = time.monotonic()

    def __enter__(self) -> RunProgress:
        on_terminal = self._output is ProgressOutput.TERMINAL
        self._context = progress(shown=on_terminal)
        self._bar = self._context.__enter__()
        self._task = self._bar.add_task("", total=_STEPS, visible=False)
        self._notes = on_terminal and not sys.stderr.isatty()
        self._event("run", files=len(self._inputs))
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.__exit__(None, None, None)
        self._summary()

    @property
    def summarizes(self) -> bool:
        """Whether a note at the end says how many files were done, and how many have failed."""
        return len(self._inputs) > 1 and self._output is ProgressOutput.TERMINAL

    @property
    def outcome(self) -> FileOutcome:
        """What was done with the last file, outside of `file`."""
        return FileOutcome(
            self._skipped, self._total or None, self._resumed, self._outputs, self._warnings
        )

    @contextmanager
    def file(self, name: str) -> Iterator[None]:
        """A context in which one file is worked on."""
        self._name, self._total, self._position, self._resumed = name, 0.0, 0.0, 0.0
        self._lines, self._skipped, self._outputs, self._warnings = 0, "", (), []
        self._file_began = time.monotonic()
        self._event("started", file=name)
        try:
            yield
        except Exception as error:
            known = isinstance(error, EdgeError)
            message = str(error).splitlines()[0] if known and str(error) else unexpected(error)
            self._counts["failed"] += 1
            self._failures.append((name, message))
            self._event("failed", file=name, message=message)
            raise
        else:
            self._finish()
        finally:
            self._left -= self._sizes.get(name, 0)
            self._position = self._resumed = 0.0
            self._lines = 0

    def total(self, total: float, done: float = 0.0) -> None:
        """The length of the file is known.

        Args:
            total: Seconds, or bytes.
            done: What an earlier run has done of it.
        """
        self._total, self._position, self._resumed = total, done, done
        self._show()

    def resize(self, total: float | None) -> None:
        """The length of the file was an estimate before, or was not known."""
        self._total = total or self._total

    def advance_to(self, position: float) -> None:
        """The file is done up to a position."""
        self._position = position
        self._show()

    def advance(self, amount: float, lines: int = 0) -> None:
        """More of the file is done."""
        self._position += amount
        self._lines += lines
        self._show()

    def skip(self, reason: str) -> None:
        """The file needs no work."""
        self._skipped = reason

    def warned(self, message: str) -> None:
        """Report a warning about the file as an event; the caller prints it."""
        self._warnings.append(message)
        self._event("warning", file=self._name, message=message)

    def wrote(self, outputs: Sequence[Path]) -> None:
        """The results of the file were written."""
        self._outputs = outputs

    def _finish(self) -> None:
        if self._skipped:
            self._counts["skipped"] += 1
            self._event("skipped", file=self._name, reason=self._skipped)
            return
        self._counts["done"] += 1
        if self._name_done:
            print_note(f"{self._name}: done")
        if self._unit == "audio" and self._total:
            self._position = self._total  # also where silence ends the recording
        self._amount += self._amount_of_file()
        self._worked += self._sizes.get(self._name, 0) * (1 - self._share(self._resumed))
        self._event(
            "done",
            file=self._name,
            outputs=[str(path) for path in self._outputs],
            worked_s=round(time.monotonic() - self._file_began, 3),
            **self._measure(self._amount_of_file()),
        )

    def _share(self, position: float) -> float:
        """How much of the file a position is, 0 to 1."""
        return min(1.0, position / self._total) if self._total else 0.0

    def _amount_of_file(self) -> float:
        """Seconds of sound or lines that this run has done of the file."""
        return max(0.0, self._position - self._resumed) if self._unit == "audio" else self._lines

    def _measure(self, amount: float) -> dict[str, float]:
        return {"audio_s": round(amount, 3)} if self._unit == "audio" else {"lines": int(amount)}

    def _speed(self) -> float:
        """Seconds of sound, or lines, a second."""
        amount = self._amount + self._amount_of_file()
        return amount / max(1e-3, time.monotonic() - self._began)

    def _seconds_left(self) -> float | None:
        """By the bytes that were done; None as long as that is too little to tell."""
        size = self._sizes.get(self._name, 0)
        now, before = self._share(self._position), self._share(self._resumed)
        worked = self._worked + size * (now - before)
        elapsed = time.monotonic() - self._began
        if elapsed < 1 or not worked:
            return None
        return elapsed / worked * max(0.0, self._left - size * now)

    def _show(self) -> None:
        """Show the progress, if some time has passed since the last time."""
        now = time.monotonic()
        if self._output is ProgressOutput.EVENTS and now - self._shown >= _EVENT_EVERY_S:
            self._shown, left = now, self._seconds_left()
            self._event(
                "progress",
                file=self._name,
                share=round(self._share(self._position), 4),
                files_done=sum(self._counts.values()),
                files=len(self._inputs),
                speed=round(self._speed(), 2),
                seconds_left=None if left is None else round(left, 1),
                **self._measure(self._amount + self._amount_of_file()),
            )
        elif self._output is ProgressOutput.TERMINAL:
            if self._notes and now - self._shown >= _NOTE_EVERY_S:
                self._shown = now
                print_note(f"{self._line()}, at {self._share(self._position):.0%}")
            self._bar.update(
                self._task,
                description=self._short_line(),
                completed=_STEPS * self._share_of_run(),
                visible=bool(self._total),
            )

    def _share_of_run(self) -> float:
        size = self._sizes.get(self._name, 0)
        whole = sum(self._sizes.values())
        if not whole:
            return self._share(self._position)
        return (whole - self._left + size * self._share(self._position)) / whole

    def _line(self) -> str:
        """How far the run is, in words."""
        parts = [Path(self._name).name if self._name != "-" else "stdin"]
        if len(self._inputs) > 1:
            parts.insert(0, f"{sum(self._counts.values())} of {len(self._inputs)} files done")
        parts.append(self._amount_in_words(self._amount + self._amount_of_file()))
        if (left := self._seconds_left()) is not None:
            parts.append(f"{_clock(left)} left")
        return ", ".join(parts)

    def _short_line(self) -> str:
        """As `_line`, beside the bar: of at most some 50 characters."""
        name = Path(self._name).name if self._name != "-" else "stdin"
        name = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
        if len(self._inputs) > 1:
            name = f"{sum(self._counts.values())}/{len(self._inputs)} {name}"
        amount = self._amount + self._amount_of_file()
        if self._unit == "audio":
            return f"{name} {_clock(amount)} {self._speed():.1f}x"
        return f"{name} {int(amount)} lines {self._speed():.1f}/s"

    def _amount_in_words(self, amount: float) -> str:
        if self._unit == "audio":
            return f"{_clock(amount)} of audio, {self._speed():.1f} x real time"
        return f"{int(amount)} lines, {self._speed():.1f} a second"

    def _summary(self) -> None:
        """What was done, and what has failed, by name; of several files."""
        worked_s = time.monotonic() - self._began
        self._event(
            "summary",
            **self._counts,
            worked_s=round(worked_s, 3),
            failures=[{"file": name, "message": message} for name, message in self._failures],
            **self._measure(self._amount),
        )
        if not self.summarizes:
            return
        counts = [f"{count} {what}" for what, count in self._counts.items() if count]
        if counts:
            amount = ""
            if self._counts["done"]:
                amount = f"; {self._amount_in_words(self._amount)}, in {_clock(worked_s)}"
            print_note(f"{', '.join(counts)}{amount}")
        for name, message in self._failures:
            print_note(f"failed: {named(message, name)}")

    def _event(self, event: str, **values: object) -> None:
        if self._output is ProgressOutput.EVENTS:
            line = json.dumps({"event": event, **values}, ensure_ascii=False)
            sys.stdout.write(line.encode("utf-8", "replace").decode() + "\n")
            sys.stdout.flush()


def _size(name: str) -> int:
    """Bytes of a file; 0 where that is not known."""
    with suppress(OSError, ValueError):
        return os.path.getsize(name) if name != "-" else 0  # noqa: PTH202  # name may be any text
    return 0


def _clock(seconds: float) -> str:
    """Seconds as M:SS, or H:MM:SS."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
