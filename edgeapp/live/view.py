"""The terminal of `edgeapp live`: captions that grow, or one JSON event a line in a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from edgeapp.console import format_clock, print_note, results_console
from edgeapp.live.events import (
    SessionEnded,
    SessionEvent,
    Status,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
    as_json,
)
from edgeapp.subtitles.formats import Cue
from edgeapp.subtitles.segmenter import SubtitleSegmenter
from pipelines import CommittedText, PartialText, SpeechEnded

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["CaptionView", "JsonView", "EventView"]

_METER = 12  # characters
_QUIET_DB, _LOUD_DB = -60.0, -10.0


class EventView(Protocol):
    """Shows a session's events."""

    def __enter__(self) -> EventView: ...
    def __exit__(self, *exc: object) -> None: ...
    def take(self, event: SessionEvent) -> None: ...


class JsonView:
    """One JSON object a line on stdout."""

    def __enter__(self) -> JsonView:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def take(self, event: SessionEvent) -> None:
        sys.stdout.write(as_json(event) + "\n")
        sys.stdout.flush()


class CaptionView:
    """Committed text solid, the tail dim, the translation below, level and lag at the bottom.

    Finished sentences scroll away upwards, each with its translation.
    """

    def __init__(self, *, translated: bool) -> None:
        from rich.live import Live

        self._translated = translated
        self._console = results_console()
        self._live = Live(console=self._console, transient=True, auto_refresh=False)
        self._cues = SubtitleSegmenter()
        self._open = self._tail = self._running = ""
        self._status: Status | None = None

    def __enter__(self) -> CaptionView:
        self._live.start()
        self._show()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def take(self, event: SessionEvent) -> None:
        if isinstance(event, CommittedText):
            self._commit(event)
        elif isinstance(event, PartialText):
            self._tail = event.text
        elif isinstance(event, TranslationPartial):
            self._running = event.text
        elif isinstance(event, TranslationFinal):
            self._running = ""
            self._print(Cue(event.start, event.end, event.text), "cyan")
        elif isinstance(event, Status):
            self._status = event
        elif isinstance(event, WarningRaised):
            print_note(event.message)
        elif isinstance(event, (SpeechEnded, SessionEnded)):
            self._tail = ""
            for cue in self._cues.flush():
                self._print(cue)
            self._open = ""
        self._show()

    def _commit(self, event: CommittedText) -> None:
        complete = list(self._cues.add(event.text, event.start, event.end))
        for cue in complete:
            self._print(cue)
        # What is left on the live line is what has not gone up yet.
        self._open = self._cues.open if complete else self._open + event.text
        self._tail = ""

    def _print(self, cue: Cue, style: str = "") -> None:
        from rich.text import Text

        at = format_clock(cue.start).partition(".")[0]
        line = Text(f"{at}  ", style="dim")
        line.append(cue.text, style=style or "default")
        self._live.console.print(line, soft_wrap=True)

    def _show(self) -> None:
        from rich.console import Group
        from rich.text import Text

        caption = Text(self._open.strip())
        caption.append(self._tail if self._open else self._tail.lstrip(), style="dim")
        lines: list[RenderableType] = [caption]
        if self._translated:
            lines.append(Text(self._running, style="cyan dim"))
        lines.append(self._foot())
        self._live.update(Group(*lines), refresh=True)

    def _foot(self) -> RenderableType:
        from rich.text import Text

        if self._status is None:
            return Text("listening …", style="dim")
        status = self._status
        share = (status.level - _QUIET_DB) / (_LOUD_DB - _QUIET_DB)
        full = round(_METER * min(1.0, max(0.0, share)))
        meter = "▮" * full + "▯" * (_METER - full)
        text = f"{meter}  {format_clock(status.time).partition('.')[0]}  lag {status.lag:.1f} s"
        if status.dropped:
            text += f"  lost {status.dropped:.1f} s"
        return Text(text, style="dim")
