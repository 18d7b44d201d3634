"""Output of `edgeapp live`: growing captions on a terminal, lines of text in a pipe, or JSON."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from edgeapp.console import format_clock, print_note, printable, results_console
from edgeapp.live.corrections import SettledEvents
from edgeapp.live.event_encoder import EventEncoder
from edgeapp.live.events import (
    AudioLost,
    SessionEnded,
    SessionEvent,
    Status,
    TextSettled,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
    speaker_and_event,
)
from edgeapp.subtitles.line_breaks import words_to_break
from edgeapp.subtitles.segmenter import SubtitleSegmenter
from edgeapp.subtitles.speakers import with_speakers
from pipelines import CommittedText, PartialText
from pipelines.asr import SpeechEnded
from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["CaptionView", "EventView", "JsonView", "TextView"]

_METER_WIDTH = 12  # characters
_METER_MIN_DB, _METER_MAX_DB = -60.0, -10.0


class EventView(Protocol):
    """Shows the events of a session; a context manager.

    Attributes:
        settled: Whether it shows final text only after its correction.
    """

    settled: bool

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

    settled = False

    def __init__(self, encoder: EventEncoder) -> None:
        self._encoder = encoder

    def __enter__(self) -> JsonView:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def show(self, event: SessionEvent) -> None:
        if isinstance(speaker_and_event(event)[1], TextSettled):
            return
        line = json.dumps(self._encoder.content(event), ensure_ascii=False)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class TextView:
    """Writes final text to stdout, a sentence a line; each translation is a line of its own.

    Lines of a session with several speakers begin with the name. Warnings go to stderr.
    """

    settled = True

    def __init__(self) -> None:
        self._segmenters: defaultdict[str, SubtitleSegmenter] = defaultdict(SubtitleSegmenter)

    def __enter__(self) -> TextView:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def show(self, event: SessionEvent) -> None:
        speaker, event = speaker_and_event(event)
        if isinstance(event, CommittedText):
            cues = self._segmenters[speaker].add(event.text, event.start, event.end, event.words)
            self._write(speaker, cues)
        elif isinstance(event, SpeechEnded):
            self._write(speaker, self._segmenters[speaker].flush())
        elif isinstance(event, SessionEnded):
            for speaker, segmenter in self._segmenters.items():
                self._write(speaker, segmenter.flush())
        elif isinstance(event, TranslationFinal):
            self._write(speaker, [Cue(event.start, event.end, event.text.strip())])
        elif isinstance(event, WarningRaised | AudioLost):
            print_note(event.message)

    def _write(self, speaker: str, cues: Iterable[Cue]) -> None:
        for cue in with_speakers(replace(cue, speaker=speaker) for cue in cues):
            sys.stdout.write(f"{' '.join(cue.text.split())}\n")
            sys.stdout.flush()


class CaptionView:
    """Live captions: final text solid, partial text dim, then translation, level and lag.

    Complete cues and translations are printed above and scroll with the terminal. Each speaker has
    lines of their own. Text that may be corrected is printed after that.

    Args:
        translated: There is a translation.
        corrects: Final text may be corrected.
    """

    settled = False

    def __init__(self, *, translated: bool, corrects: bool = False) -> None:
        from rich.live import Live

        self._translated = translated
        self._events = SettledEvents(corrects=corrects)
        self._console = results_console()
        self._live = Live(console=self._console, transient=True, auto_refresh=False)
        self._speakers: dict[str, _SpeakerCaption] = {}
        self._status: Status | None = None

    def __enter__(self) -> CaptionView:
        self._live.start()
        self._refresh()
        return self

    def __exit__(self, *exc: object) -> None:
        for settled in self._events.end():  # of a session that was interrupted
            self._show(settled)
        self._live.stop()

    def show(self, event: SessionEvent) -> None:
        speaker, said = speaker_and_event(event)
        if isinstance(said, CommittedText | SpeechEnded):
            self._caption(speaker).partial_text = ""  # though the text is printed later
        for settled in self._events.add(event):
            self._show(settled)
        self._refresh()

    def _show(self, event: SessionEvent) -> None:
        """Show an event whose text will not be corrected any more."""
        speaker, event = speaker_and_event(event)
        if isinstance(event, Status):
            self._status = event
        elif isinstance(event, WarningRaised | AudioLost):
            print_note(event.message)
        elif isinstance(event, SessionEnded):
            for name, own in self._speakers.items():
                own.partial_text = ""
                self._print(name, own.end())
        else:
            own = self._caption(speaker)
            if isinstance(event, TranslationFinal):
                own.end_sentence(event.source)
                self._print(speaker, [Cue(event.start, event.end, event.text)], "cyan")
            else:
                self._print(speaker, own.show(event))

    def _caption(self, speaker: str) -> _SpeakerCaption:
        return self._speakers.setdefault(speaker, _SpeakerCaption())

    def _print(self, speaker: str, cues: Iterable[Cue], style: str = "") -> None:
        from rich.text import Text

        for cue in with_speakers(replace(cue, speaker=speaker) for cue in cues):
            time = format_clock(cue.start).partition(".")[0]
            line = Text(f"{time}  ", style="dim")
            line.append(printable(cue.text), style=style or "default")
            # Lines break between words; the terminal breaks those of scripts without spaces.
            unspaced = len(words_to_break(cue.text)) > 2 * len(cue.text.split())
            self._live.console.print(line, soft_wrap=unspaced)

    def _refresh(self) -> None:
        from rich.console import Group
        from rich.text import Text

        lines: list[RenderableType] = []
        for speaker, own in (self._speakers or {"": _SpeakerCaption()}).items():
            name = f"{speaker}: " if speaker else ""
            open_text = (own.open_text + self._events.open_text(speaker)).strip()
            caption = Text(printable(name + open_text))
            partial = own.partial_text if open_text else own.partial_text.lstrip()
            caption.append(printable(partial), style="dim")
            lines.append(caption)
            if self._translated:
                lines.append(Text(printable(own.partial_translation), style="cyan dim"))
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


class _SpeakerCaption:
    """What one speaker is saying.

    Attributes:
        open_text: committed, in no printed cue yet.
        partial_text: after it; it may still change.
        partial_translation: of the running sentence.
    """

    def __init__(self) -> None:
        self.open_text = self.partial_text = self.partial_translation = ""
        self._segmenter = SubtitleSegmenter()
        self._untranslated = 0  # committed letters

    def show(self, event: SessionEvent) -> list[Cue]:
        """Apply an event; returns the cues that are complete."""
        if isinstance(event, CommittedText):
            complete = list(self._segmenter.add(event.text, event.start, event.end, event.words))
            # The live line keeps the text that was not printed.
            self.open_text = self._segmenter.open if complete else self.open_text + event.text
            self._untranslated += _count_letters(event.text)
            return complete
        if isinstance(event, PartialText):
            self.partial_text = event.text
        elif isinstance(event, TranslationPartial):
            self.partial_translation = event.text
        elif isinstance(event, SpeechEnded):
            return self.end()
        return []

    def end(self) -> list[Cue]:
        """End what is being said; returns the last cue, if there is one."""
        self.open_text = ""
        if self._untranslated <= 0:  # no final translation will replace it
            self.partial_translation = ""
        return list(self._segmenter.flush())

    def end_sentence(self, source: str) -> None:
        """End the running translation, because the sentence was translated."""
        self._untranslated -= _count_letters(source)
        self.partial_translation = ""


def _count_letters(text: str) -> int:
    return len("".join(text.split()))
