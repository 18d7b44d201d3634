"""Transcripts as files: txt, vtt, srt, tsv and json in openai-whisper's layouts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

from pipelines import OptionError

if TYPE_CHECKING:
    from pipelines import Segment

__all__ = ["FORMATS", "Cue", "Timed", "Transcript", "formats_of", "render", "stamp"]


class Timed(Protocol):
    """A segment or a translated cue."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class Cue:
    """Text to be shown from start to end (seconds)."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """A finished recording: what was said, and what that means in another language.

    segments: as they were recognised; cues where no more than these was kept.
    translation: cues in `translation_language`, when one was asked for.
    """

    language: str
    segments: tuple[Segment | Cue, ...]
    translation: tuple[Cue, ...] = ()
    translation_language: str | None = None


def stamp(seconds: float, *, hours: bool, mark: str) -> str:
    """Seconds as HH:MM:SS and thousandths behind `mark`; MM:SS where `hours` may be left out."""
    ms = max(0, round(seconds * 1000))
    h, rest = divmod(ms, 3_600_000)
    m, rest = divmod(rest, 60_000)
    lead = f"{h:02d}:" if hours or h else ""
    return f"{lead}{m:02d}:{rest // 1000:02d}{mark}{rest % 1000:03d}"


def _shown(cues: Sequence[Timed]) -> list[tuple[Timed, str]]:
    # An arrow inside the text would end a cue's timing line.
    return [(cue, text.replace("-->", "->")) for cue in cues if (text := cue.text.strip())]


def _txt(cues: Sequence[Timed]) -> str:
    return "".join(f"{cue.text.strip()}\n" for cue in cues if cue.text.strip())


def _vtt(cues: Sequence[Timed]) -> str:
    parts = ["WEBVTT\n\n"]
    for cue, text in _shown(cues):
        start, end = (stamp(t, hours=False, mark=".") for t in (cue.start, cue.end))
        parts.append(f"{start} --> {end}\n{text}\n\n")
    return "".join(parts)


def _srt(cues: Sequence[Timed]) -> str:
    parts = []
    for number, (cue, text) in enumerate(_shown(cues), start=1):
        start, end = (stamp(t, hours=True, mark=",") for t in (cue.start, cue.end))
        parts.append(f"{number}\n{start} --> {end}\n{text}\n\n")
    return "".join(parts)


def _tsv(cues: Sequence[Timed]) -> str:
    lines = ["start\tend\ttext\n"]
    for cue in cues:
        if text := cue.text.strip().replace("\t", " "):
            lines.append(f"{round(1000 * cue.start)}\t{round(1000 * cue.end)}\t{text}\n")
    return "".join(lines)


_WRITERS: dict[str, Callable[[Sequence[Timed]], str]] = {
    "txt": _txt,
    "vtt": _vtt,
    "srt": _srt,
    "tsv": _tsv,
}
FORMATS = ("txt", "vtt", "srt", "tsv", "json")


def formats_of(wanted: str) -> tuple[str, ...]:
    """ "all", one format, or several behind commas. Raises OptionError for an unknown one."""
    if wanted == "all":
        return FORMATS
    chosen = tuple(dict.fromkeys(part.strip() for part in wanted.split(",")))
    for name in chosen:
        if name not in FORMATS:
            raise OptionError(f"output format {name!r} is not one of {', '.join(FORMATS)}, all")
    return chosen


def _record(segment: Segment | Cue) -> dict[str, object]:
    """As openai-whisper's JSON has it: with words only where these were asked for."""
    record = asdict(segment)
    if not record.get("words", True):
        del record["words"]
    return record


def render(transcript: Transcript, fmt: str, *, translated: bool = False) -> str:
    """The whole file in one format. translated: the other language's cues instead.

    json holds both: {"text", "segments", "language"} as openai-whisper, and "translation".
    """
    if fmt != "json":
        return _WRITERS[fmt](transcript.translation if translated else transcript.segments)
    whole: dict[str, object] = {
        "text": "".join(segment.text for segment in transcript.segments),
        "segments": [_record(segment) for segment in transcript.segments],
        "language": transcript.language,
    }
    if transcript.translation_language is not None:
        whole["translation"] = {
            "language": transcript.translation_language,
            "text": " ".join(cue.text for cue in transcript.translation),
            "segments": [asdict(cue) for cue in transcript.translation],
        }
    return json.dumps(whole, ensure_ascii=False)
