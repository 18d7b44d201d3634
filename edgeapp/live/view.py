"""Output of `edgeapp live`: growing captions on a terminal, lines of text in a pipe, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from edgeapp.console import format_clock, print_note, printable, results_console
from edgeapp.live.event_encoder import EventEncoder
from edgeapp.live.events import (
    SessionEnded,
    SessionEvent,
    Status,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
)
from edgeapp.subtitles.formats import Cue
from edgeapp.subtitles.segmenter import SubtitleSegmenter
from pipelines import CommittedText, PartialText, SpeechEnded

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["CaptionView", "EventView", "JsonView", "TextView"]

_METER_WIDTH = 12  # characters
_METER_MIN_DB, _METER_MAX_DB = -60.0, -10.0


class EventView(Protocol):
    """Shows the events of a session; a context manager."""

    def __enter__(self) -> EventView: ...
    def __exit__(self, *exc: object) -> None: ...

    def show(self, event: SessionEvent) -> None:
        """Show an event."""
        ...


class JsonView:
    """Writes each event as a line of JSON to stdout.

    Args:
        encoder: Of the session.
    """

    def __init__(self, encoder: EventEncoder) -> None:
        self._encoder = encoder

    def __enter__(self) -> JsonView:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def show(self, event: SessionEvent) -> None:
        line = json.dumps(self._encoder.content(event), ensure_ascii=False)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class TextView:
    """Writes final text to stdout, a sentence a line; each translation is a line of its own.

    Warnings go to stderr.
    """

    def __init__(self) -> None:
        self._segmenter = SubtitleSegmenter()

    def __enter__(self) -> TextView:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def show(self, event: SessionEvent) -> None:
        if isinstance(event, CommittedText):
            self._write(self._segmenter.add(event.text, event.start, event.end))
        elif isinstance(event, SpeechEnded | SessionEnded):
            self._write(self._segmenter.flush())
        elif isinstance(event, TranslationFinal):
            self._write([Cue(event.start, event.end, event.text.strip())])
        elif isinstance(event, WarningRaised):
            print_note(event.message)

    def _write(self, cues: Iterable[Cue]) -> None:
        for cue in cues:
            sys.stdout.write(f"{' '.join(cue.text.split())}\n")
            sys.stdout.flush()


class CaptionView:
    """Live captions: final text solid, partial text dim, then translation, level and lag.

    Complete cues and translations are printed above and scroll with the terminal.
    """

    def __init__(self, *, translated: bool) -> None:
        from rich.live import Live

        self._translated = translated
        self._console = results_console()
        self._live = Live(console=self._console, transient=True, auto_refresh=False)
        self._segmenter = SubtitleSegmenter()
        self._open_text = ""  # committed, in no printed cue yet
        self._partial_text = ""
        self._partial_translation = ""
        self._status: Status | None = None

    def __enter__(self) -> CaptionView:
        self._live.start()
        self._refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, event: SessionEvent) -> None:
        if isinstance(event, CommittedText):
            self._commit(event)
        elif isinstance(event, PartialText):
            self._partial_text = event.text
        elif isinstance(event, TranslationPartial):
            self._partial_translation = event.text
        elif isinstance(event, TranslationFinal):
            self._partial_translation = ""
            self._print(Cue(event.start, event.end, event.text), "cyan")
        elif isinstance(event, Status):
            self._status = event
        elif isinstance(event, WarningRaised):
            print_note(event.message)
        elif isinstance(event, (SpeechEnded, SessionEnded)):
            self._partial_text = ""
            for cue in self._segmenter.flush():
                self._print(cue)
            self._open_text = ""
        self._refresh()

    def _commit(self, event: CommittedText) -> None:
        complete = list(self._segmenter.add(event.text, event.start, event.end))
        for cue in complete:
            self._print(cue)
        # The live line keeps the text that was not printed.
        self._open_text = self._segmenter.open if complete else self._open_text + event.text
        self._partial_text = ""

    def _print(self, cue: Cue, style: str = "") -> None:
        from rich.text import Text

        time = format_clock(cue.start).partition(".")[0]
        line = Text(f"{time}  ", style="dim")
        line.append(printable(cue.text), style=style or "default")
        self._live.console.print(line, soft_wrap=True)

    def _refresh(self) -> None:
        from rich.console import Group
        from rich.text import Text

        caption = Text(printable(self._open_text.strip()))
        partial = self._partial_text if self._open_text else self._partial_text.lstrip()
        caption.append(printable(partial), style="dim")
        lines: list[RenderableType] = [caption]
        if self._translated:
            lines.append(Text(printable(self._partial_translation), style="cyan dim"))
        lines.append(self._status_line())
        self._live.update(Group(*lines), refresh=True)

    def _status_line(self) -> RenderableType:
        from rich.text import Text

        if self._status is None:
            return Text("listening …", style="dim")
        status = self._status
        share = (status.level - _METER_MIN_DB) / (_METER_MAX_DB - _METER_MIN_DB)
        filled = round(_METER_WIDTH * min(1.0, max(0.0, share)))
        meter = "▮" * filled + "▯" * (_METER_WIDTH - filled)
        text = f"{meter}  {format_clock(status.time).partition('.')[0]}  lag {status.lag:.1f} s"
        if status.dropped:
            text += f"  lost {status.dropped:.1f} s"
        return Text(text, style="dim")
