"""Terminal output: results on stdout, notes and progress on stderr."""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task

    from pipelines.engine import CompileProgress, DraftReport

# C0 and C1 controls (but the tabulator and the end of a line), direction marks, line and paragraph
# separators, lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

# Seconds between two notes about the progress of the compiler, at least.
_COMPILE_NOTES_S = 5.0
# Share of the functions from which the time of the others is estimated.
_COMPILE_SHARE = 0.1

__all__ = [
    "CompileNotes",
    "LiveLine",
    "counted",
    "format_clock",
    "print_draft_report",
    "print_note",
    "print_traceback",
    "printable",
    "progress",
    "results_console",
    "show_warnings_as_notes",
    "timed_line",
]


def results_console() -> Console:
    """A rich console on stdout. It raises BrokenPipeError if stdout fails."""
    from rich.console import Console

    class ResultsConsole(Console):
        def on_broken_pipe(self) -> None:
            """Called while the error is handled; rich would end the program with exit code 1."""
            raise

    return ResultsConsole(file=sys.stdout, highlight=False, soft_wrap=True)


def print_note(message: str) -> None:
    """Print one line to stderr, after the name of the program."""
    line = printable(message).replace("\n", "\\n")  # a name must not look like another note
    sys.stderr.write(f"edgeapp: {line}\n")
    sys.stderr.flush()


class CompileNotes:
    """Prints how far the compiler of the kernels is, every few seconds. Called with each step."""

    def __init__(self) -> None:
        self._noted_s = 0.0
        self._first: CompileProgress | None = None

    def __call__(self, progress: CompileProgress) -> None:
        elapsed_s, done, total = progress.elapsed_s, progress.done, progress.total
        first = self._first = self._first or progress  # what was before is the compiler's start
        if elapsed_s < self._noted_s + _COMPILE_NOTES_S:
            return
        self._noted_s = elapsed_s
        left = ""
        if done - first.done > total * _COMPILE_SHARE:
            # Functions take about the same time each.
            left_s = (elapsed_s - first.elapsed_s) / (done - first.done) * (total - done)
            left = f", about {left_s:.0f} s left"
        print_note(f"compiling kernels: {done} of {total} functions after {elapsed_s:.0f} s{left}")


def print_draft_report(report: DraftReport | None) -> None:
    """Print what drafts did, to stderr; None prints nothing."""
    if report is None:
        return
    share = f" ({report.accepted / report.drafted:.0%})" if report.drafted else ""
    effect = "saved" if report.saved_s >= 0 else "lost"
    line = (
        f"drafts: {report.accepted} of {report.drafted} tokens accepted{share}, about "
        f"{abs(report.saved_s):.1f} s {effect}"
    )
    if report.pauses:
        line += f"; paused {report.pauses} times, when they lost time"
    if report.stopped:
        line += "; given up: encoding for the draft model took longer than drafts saved"
    print_note(line)


def print_traceback(error: BaseException) -> None:
    """Print an unexpected error to stderr, for the log of a server."""
    sys.stderr.write(printable("".join(traceback.format_exception(error))))
    sys.stderr.flush()


def printable(text: str) -> str:
    """A text without effect on a terminal: names of files and models may hold escape sequences.

    Control characters, marks of the direction of writing and lone surrogates are escaped.
    """
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def show_warnings_as_notes() -> None:
    """From now on print each Python warning as one line on stderr, without a source path."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print_note(str(message))

    warnings.showwarning = show


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 cue", "2 cues", "1,200 cues"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_clock(seconds: float) -> str:
    """Seconds as MM:SS.mmm, or HH:MM:SS.mmm from one hour on: 62.5 is "01:02.500"."""
    ms = max(0, round(seconds * 1000))
    hours, rest = divmod(ms, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    text = f"{minutes:02d}:{rest // 1000:02d}.{rest % 1000:03d}"
    return f"{hours:02d}:{text}" if hours else text


def timed_line(start: float, end: float, text: str) -> str:
    """A segment with its times (seconds), as openai-whisper prints it."""
    return f"[{format_clock(start)} --> {format_clock(end)}] {text}"


class LiveLine:
    """Provisional text on the last lines of a terminal, below the final lines.

    Where the console is no terminal, only final lines are printed. A context manager.

    Args:
        console: The console to print to.
    """

    def __init__(self, console: Console) -> None:
        self._console, self._text, self._style = console, "", ""
        self._live = None
        if console.is_terminal:
            from rich.live import Live

            self._live = Live("", console=console, transient=True, refresh_per_second=20)

    def __enter__(self) -> LiveLine:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.update("")
            self._live.stop()

    def append(self, text: str, style: str = "dim") -> None:
        """Append to the provisional text and show all of it in `style`."""
        self._text, self._style = self._text + text, style
        self._show()

    def clear(self) -> None:
        """Remove the provisional text."""
        self._text = ""
        self._show()

    def print_final(self, text: str, style: str = "") -> None:
        """Print a final line above the provisional text."""
        from rich.text import Text

        self._console.print(Text(printable(text), style=style))
        self._console.file.flush()

    def _show(self) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(printable(self._text.strip()), style=self._style))


@contextmanager
def progress(*, shown: bool = True, bytes_unit: bool = False) -> Iterator[Progress]:
    """A progress bar with the remaining time on stderr; hidden where stderr is no terminal.

    Args:
        shown: False hides it in any case.
        bytes_unit: Show bytes (downloads) instead of a percentage.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class NameColumn(ProgressColumn):
        """The name of a file or model; [brackets] in it are no markup."""

        def render(self, task: Task) -> Text:
            return Text(printable(task.description))

    console = Console(stderr=True)
    columns: list[ProgressColumn] = [NameColumn(), BarColumn()]
    columns += [DownloadColumn() if bytes_unit else TaskProgressColumn(), TimeRemainingColumn()]
    hidden = not (shown and console.is_terminal)
    bar = Progress(*columns, console=console, transient=True, disable=hidden)
    with bar:
        yield bar
