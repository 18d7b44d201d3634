"""Progress views of a transcription: live text on a terminal, plain lines, or a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeapp.batch.run_progress import RunProgress
from edgeapp.batch.texts.repeated_warnings import RepeatedWarnings
from edgeapp.console import LiveLine, print_note, results_console, timed_line
from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from pipelines import Segment, TranscriptionInfo, Translation

__all__ = ["ProgressBarView", "LiveTextView"]


class LiveTextView:
    """A ProgressView on stdout: text as it is decoded; only finished lines if it is no terminal.

    Each translation is printed below its source. A context manager.

    Args:
        timed: Print the times before each line.
        provisional: Show text on a terminal before it is final.
    """

    def __init__(self, *, timed: bool, provisional: bool = True) -> None:
        self._timed, self._provisional = timed, provisional
        self._console = results_console()
        self._line = LiveLine(self._console)

    def __enter__(self) -> LiveTextView:
        self._line.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._line.__exit__(*exc)

    def started(self, info: TranscriptionInfo) -> None:
        if info.language_probability is not None:
            print_note(f"detected language: {info.language} ({info.language_probability:.0%})")

    def text_delta(self, text: str) -> None:
        if self._provisional:
            self._line.append(text)

    def text_retracted(self) -> None:
        self._line.clear()

    def segment(self, segment: Segment) -> None:
        self._line.clear()
        if segment.text.strip():
            self._line.print_final(self._format(segment.start, segment.end, segment.text.strip()))

    def translating(self, text: str) -> None:
        if self._provisional:
            self._line.append(text, "cyan")

    def translated(self, cue: Cue, translation: Translation | None) -> None:
        self._line.clear()
        self._line.print_final(self._format(cue.start, cue.end, cue.text), "cyan")

    def untranslated(self, cue: Cue) -> None:
        """Its segments have been printed."""

    def warned(self, message: str) -> None:
        print_note(message)

    def _format(self, start: float, end: float, text: str) -> str:
        return timed_line(start, end, text) if self._timed else text


class ProgressBarView:
    """A ProgressView for results that go to files: the run's progress. A context manager.

    Args:
        name: Base name of the recording, for warnings.
        run: The progress of the run.
        resumed_s: Seconds that an earlier run has done.
    """

    def __init__(self, name: str, run: RunProgress, resumed_s: float = 0.0) -> None:
        self._run, self._resumed_s = run, resumed_s
        self._warnings = RepeatedWarnings(name)

    def __enter__(self) -> ProgressBarView:
        self._warnings.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._warnings.print_counts()

    def started(self, info: TranscriptionInfo) -> None:
        if info.duration is not None:
            self._resumed_s = min(self._resumed_s, info.duration)
            self._run.total(info.duration, self._resumed_s)

    def segment(self, segment: Segment) -> None:
        self._run.advance_to(max(segment.end, self._resumed_s))

    def text_delta(self, text: str) -> None: ...

    def text_retracted(self) -> None: ...

    def translating(self, text: str) -> None: ...

    def translated(self, cue: Cue, translation: Translation | None) -> None: ...

    def untranslated(self, cue: Cue) -> None: ...

    def warned(self, message: str) -> None:
        self._warnings.add(message)
        self._run.warned(message)
