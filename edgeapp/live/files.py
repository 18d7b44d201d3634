"""Output files of a live session: written while it runs, valid after every write."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, TextIO

from edgeapp.console import print_note
from edgeapp.live.events import (
    AudioLost,
    SessionEnded,
    SessionEvent,
    Status,
    TranslationFinal,
    TranslationPartial,
    as_json,
    speaker_and_event,
)
from edgeapp.live.timeline import LONG_GAP_S
from edgeapp.output_errors import check_output, free_name, output_errors
from edgeapp.subtitles.line_breaks import lay_out, words_to_break
from edgeapp.subtitles.segmenter import SubtitleSegmenter
from edgeapp.subtitles.speakers import with_speakers
from edgeapp.subtitles.style import DEFAULT_STYLE
from pipelines import CommittedText, OptionError, OutputError, PartialText
from pipelines.asr import SpeechEnded
from pipelines.subtitles import Cue, stamp, with_marks

__all__ = ["LiveOutputFile", "last_time", "plan_outputs"]

_FORMATS = (".srt", ".vtt", ".txt", ".jsonl")
_CUE_END = re.compile(r"(?m)^[\d:.,]+ --> (?:(\d+):)?(\d+):(\d+)[.,](\d+)")


def _format_of(path: Path) -> str:
    """The file's extension: .srt, .vtt, .txt or .jsonl.

    Raises:
        OptionError: it has another extension.
    """
    if path.suffix.lower() not in _FORMATS:
        raise OptionError(f"{path}: a live output ends with {', '.join(_FORMATS)}")
    return path.suffix.lower()


def plan_outputs(
    paths: Sequence[Path], target: str | None, *, append: bool = False
) -> list[tuple[Path, bool]]:
    """The files to write.

    Args:
        paths: as given by the user.
        append: files that exist will be continued.
        target: language code of the translation, which gets files of its own, except beside a
            .jsonl file; None: no translation.

    Returns:
        (path, whether it holds the translation) of each file.

    Raises:
        OptionError: an unknown extension, or two outputs would be written to one file.
        OutputError: a file is not empty (it may hold an earlier session, which cannot be
            repeated), or it cannot be written.
    """
    files = []
    for path in paths:
        files.append((path, False))
        if _format_of(path) != ".jsonl" and target is not None:
            files.append((path.with_name(f"{path.stem}.{target}{path.suffix}"), True))
    _check_distinct(files, target)
    for path, _ in files:
        if path.is_file() and path.stat().st_size and not append:
            raise OutputError(
                f"{path} exists already: --append goes on in it, or choose another name"
            )
        check_output(path)
    return files


def last_time(paths: Iterable[Path]) -> float:
    """Return when the last cue of any of the .srt and .vtt files ends (s); 0.0 without one.

    Raises:
        OutputError: a file cannot be read.
    """
    return max((_last_cue(path)[1] for path in paths), default=0.0)


def _last_cue(path: Path) -> tuple[int, float]:
    """Return the number of cues of a file and when the last one ends (s)."""
    if _format_of(path) not in (".srt", ".vtt") or not path.is_file():
        return 0, 0.0
    with output_errors(path):
        cues = _CUE_END.findall(path.read_text("utf-8", "replace"))
    ends = (int(h or 0) * 3600 + int(m) * 60 + float(f"{s}.{ms}") for h, m, s, ms in cues)
    return len(cues), max(ends, default=0.0)


def _check_distinct(files: Sequence[tuple[Path, bool]], target: str | None) -> None:
    """Raise OptionError if a file would hold two streams of text."""
    taken: dict[Path, bool] = {}
    for path, translated in files:
        key = path.resolve()
        if key in taken:
            if translated == taken[key]:
                raise OptionError(f"{path} is named twice: leave out one -o {path}")
            raise OptionError(
                f"{path} is where the translation ({target}) goes, and cannot hold the transcript "
                f"too: leave out -o {path}"
            )
        taken[key] = translated


class LiveOutputFile:
    """Writes one file: each cue as soon as it is complete.

    A .jsonl file holds the events instead, except PartialText, TranslationPartial and Status,
    which later events replace. Other files end at a long gap, and a new one, talk-2.srt after
    talk.srt, begins at zero after it.

    Attributes:
        path: of the file that is being written.
    """

    def __init__(
        self, path: Path, *, translated: bool = False, append_at: float | None = None
    ) -> None:
        """
        Args:
            path: of the file, which is overwritten unless it is continued.
            translated: write cues of the translation instead of the transcript.
            append_at: continue the file, in which the session begins at this time (s).

        Raises:
            OptionError: an unknown extension.
            OutputError: the file cannot be written.
        """
        self._first_path, self._format, self._translated = path, _format_of(path), translated
        self._segmenters: defaultdict[str, SubtitleSegmenter] = defaultdict(SubtitleSegmenter)
        self._failed = False
        self._open(path, -(append_at or 0.0), append=append_at is not None)

    def _open(self, path: Path, start: float, *, append: bool = False) -> None:
        """Begin or continue a file.

        Args:
            path: of the file.
            start: the time of the session that is zero in it.
            append: continue it.
        """
        self.path, self._start = path, start
        self._count = _last_cue(path)[0] if append else 0
        with output_errors(path):
            before = path.read_bytes() if append and path.is_file() else b""
            mode: Literal["a", "w"] = "a" if before else "w"
            self._file: TextIO = path.open(mode, encoding="utf-8", newline="\n")
        end = b"\n\n" if self._format in (".srt", ".vtt") else b"\n"
        if before and not before.endswith(end):  # a person or a power cut has changed it
            self._write("\n" * (end.count(b"\n") - before.endswith(b"\n")))
        if self._format == ".vtt" and not before:
            self._write("WEBVTT\n\n")

    def write(self, event: SessionEvent) -> None:
        """Write an event's cues.

        Raises:
            OutputError: the file cannot be written.
        """
        speaker, said = speaker_and_event(event)
        if self._format == ".jsonl":
            if not isinstance(said, PartialText | TranslationPartial | Status):
                self._write(as_json(event) + "\n")
        elif isinstance(said, SessionEnded):
            self._flush()
        elif isinstance(said, AudioLost) and said.end - said.start > LONG_GAP_S:
            self.close()
            language = self._first_path.suffixes[-2:] if self._translated else ()
            self._open(free_name(self._first_path, "".join(language)), said.end)
            print_note(f"captions go on in {self.path}")
        elif self._translated:
            if isinstance(said, TranslationFinal):
                self._write_cue(speaker, Cue(said.start, said.end, said.text))
        elif isinstance(said, CommittedText):
            for cue in self._segmenters[speaker].add(said.text, said.start, said.end, said.words):
                self._write_cue(speaker, cue)
        elif isinstance(said, SpeechEnded):
            for cue in self._segmenters[speaker].flush():
                self._write_cue(speaker, cue)

    def close(self) -> None:
        """Write the open cue, if the session was interrupted, and close the file.

        Raises:
            OutputError: the file cannot be written, and no write failed before.
        """
        try:
            if not self._failed:
                self._flush()
        finally:
            # Closing writes what a failed write has left.
            with suppress(OSError) if self._failed else output_errors(self.path):
                self._file.close()

    def _flush(self) -> None:
        for speaker, segmenter in self._segmenters.items():
            for cue in segmenter.flush():
                self._write_cue(speaker, cue)

    def _write_cue(self, speaker: str, cue: Cue) -> None:
        self._count += 1
        cue = replace(cue, speaker=speaker)
        if self._format == ".txt":
            self._write(f"{_named(cue).text}\n")
            return
        srt = self._format == ".srt"
        # A translator that was opened only after a long gap translates what was said before it.
        from_s, to_s = (max(0.0, time - self._start) for time in (cue.start, cue.end))
        start, end = (stamp(t, hours=srt, mark="," if srt else ".") for t in (from_s, to_s))
        number = f"{self._count}\n" if srt else ""
        cue = replace(cue, text=cue.text.replace("-->", "->"))
        # A voice tag is no part of the lines, as the name in an .srt file is.
        cue = _laid_out(_named(cue)) if srt else _named(_laid_out(cue), voice_tags=True)
        text = with_marks(cue.text, self._format.removeprefix("."))
        self._write(f"{number}{start} --> {end}\n{text}\n\n")

    def _write(self, text: str) -> None:
        try:
            with output_errors(self.path):
                self._file.write(text)
                self._file.flush()
        except OutputError:
            self._failed = True
            raise


def _named(cue: Cue, *, voice_tags: bool = False) -> Cue:
    return with_speakers([cue], voice_tags=voice_tags)[0]


def _laid_out(cue: Cue) -> Cue:
    words = words_to_break(cue.text)
    text = lay_out(words, DEFAULT_STYLE.max_line_width, DEFAULT_STYLE.max_lines)
    return replace(cue, text=text)
