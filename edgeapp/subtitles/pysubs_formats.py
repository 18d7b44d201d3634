"""Subtitles in the formats of pysubs2: ass, with karaoke by the times of words, and ttml."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from edgeapp.subtitles.direction import with_marks

__all__ = ["TimedText", "karaoke", "to_ass", "to_ttml"]


class TimedText(Protocol):
    """A cue or a word, with its times in seconds."""

    @property
    def text(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...


def to_ass(cues: Iterable[TimedText]) -> str:
    """Cues of plain text as an ass file."""
    return _ass_file((cue, _ass_text(cue.text.strip())) for cue in cues)


def to_ttml(cues: Iterable[TimedText]) -> str:
    """Cues of plain text as a ttml file."""
    from pysubs2 import SSAEvent, SSAFile

    file = SSAFile()
    for cue in cues:
        if text := _ass_text(cue.text.strip()):
            start, end = round(1000 * cue.start), round(1000 * cue.end)
            file.events.append(SSAEvent(start=start, end=end, text=text))
    return file.to_string("ttml")


def karaoke(cues: Iterable[tuple[TimedText, Sequence[TimedText]]]) -> str:
    """An ass file in which each word is highlighted while it is spoken (\\k tags).

    Args:
        cues: Cues with their words, whose texts are those of the cue but for spaces.
    """
    return _ass_file((cue, _karaoke_text(cue, words)) for cue, words in cues)


def _ass_file(cues: Iterable[tuple[TimedText, str]]) -> str:
    """Return an ass file of cues with their texts: pysubs2 writes what stands before the cues.

    It sets all times beyond ten hours to 9:59:59.99. libass, mpv and VLC read more digits.
    """
    from pysubs2 import SSAFile

    lines = [
        f"Dialogue: 0,{_ass_time(cue.start)},{_ass_time(cue.end)},Default,,0,0,0,,{marked}\n"
        for cue, text in cues
        if (marked := with_marks(text.replace("\\N", "\n"), "ass").replace("\n", "\\N"))
    ]
    return SSAFile().to_string("ass") + "".join(lines)


def _ass_time(seconds: float) -> str:
    """Return a time as H:MM:SS.cc, with as many digits of hours as it needs."""
    hundredths = max(0, (round(1000 * seconds) + 5) // 10)
    minutes, rest = divmod(hundredths, 6000)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest // 100:02d}.{rest % 100:02d}"


def _ass_text(text: str) -> str:
    """Plain text in ass, where braces hold tags and a backslash begins one.

    Braces have no escape that all players read; a word joiner ends what a backslash would begin.
    """
    text = text.replace("\\", "\\\u2060").replace("{", "(").replace("}", ")")
    return text.replace("\n", "\\N")


def _karaoke_text(cue: TimedText, words: Sequence[TimedText]) -> str:
    """The text of a cue with the time of each word, in hundredths of a second from its start."""
    parts: list[str] = []
    position = spoken = 0
    for word in words:
        text = word.text.strip()
        begin = cue.text.index(text, position)
        start = max(spoken, round(100 * (word.start - cue.start)))
        end = max(start, round(100 * (word.end - cue.start)))
        if start > spoken:
            parts.append(f"{{\\k{start - spoken}}}")
        parts.append(_ass_text(cue.text[position:begin]))
        parts.append(f"{{\\k{end - start}}}{_ass_text(text)}")
        position, spoken = begin + len(text), end
    parts.append(_ass_text(cue.text[position:]))
    return "".join(parts)
