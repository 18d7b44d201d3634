"""The formats in which transcripts are written: one list for the command line, the server and the
history. The page offers some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from edgeapp.documents.transcript_documents import to_docx, to_markdown
from edgeapp.subtitles.passages import bilingual, passages
from edgeapp.subtitles.shaping import timed_words
from edgeapp.subtitles.speakers import with_speakers
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle
from pipelines import OptionError
from pipelines.subtitles import CUE_WRITERS, Timed, Transcript, to_json

__all__ = ["ALL", "FORMATS", "TranscriptFormat", "formats_of", "render"]


@dataclass(frozen=True)
class _Content:
    """What is written: arguments of `render`."""

    transcript: Transcript
    which: str
    title: str
    pretty: bool
    style: SubtitleStyle

    @property
    def cues(self) -> tuple[Timed, ...]:
        """The segments, or the cues of the translation."""
        shown = self.transcript
        return shown.translation if self.which == "translated" else shown.segments


@dataclass(frozen=True)
class TranscriptFormat:
    """A format of transcripts.

    Attributes:
        name: The ending of its files.
        media_type: Of its files.
        write: Makes the content of a file.
        is_subtitle: Its cues are read from a screen: they are shaped, and may have both languages.
        needs_words: It is a list of words, with their times.
        has_translation: A file holds the translation, too.
        in_all: "all" stands for it, too.
        is_binary: Its files are no text.
    """

    name: str
    media_type: str
    write: Callable[[_Content], str | bytes]
    is_subtitle: bool = False
    needs_words: bool = False
    has_translation: bool = False
    in_all: bool = True
    is_binary: bool = False


def _cues(name: str, content: _Content) -> str:
    cues = content.cues
    if content.which == "both" and FORMATS[name].is_subtitle:
        cues = tuple(bilingual(content.transcript, content.style))
    return CUE_WRITERS[name](with_speakers(cues, voice_tags=name == "vtt"))


def _text(content: _Content) -> str:
    if content.which != "both":
        return _cues("txt", content)
    both = (
        f"{f'{each.speaker}: ' * bool(each.speaker)}{each.text}\n{each.translation}".strip()
        for each in passages(content.transcript)
    )
    return "\n\n".join(both) + "\n"


def _word_table(content: _Content) -> str:
    """Start and end in milliseconds, as in tsv."""
    lines = ["start\tend\tword\tprobability\n"]
    for start, end, word, probability in _words(content.cues):
        certain = "" if probability is None else f"{probability:.3f}"
        lines.append(f"{round(1000 * start)}\t{round(1000 * end)}\t{word}\t{certain}\n")
    return "".join(lines)


def _ctm(content: _Content) -> str:
    """NIST's format: recording, channel, start and duration in seconds, word, confidence."""
    name = "_".join(content.title.split()) or "-"
    lines = []
    for start, end, word, probability in _words(content.cues):
        certain = "" if probability is None else f" {probability:.3f}"
        lines.append(f"{name} 1 {start:.2f} {end - start:.2f} {word}{certain}\n")
    return "".join(lines)


def _words(cues: tuple[Timed, ...]) -> Iterator[tuple[float, float, str, float | None]]:
    """Start, end, text and probability of each word; None where its time is an estimate."""
    for cue in cues:
        if spoken := getattr(cue, "words", ()):
            found = [(each.start, each.end, each.word, each.probability) for each in spoken]
        else:
            found = [(each.start, each.end, each.text, None) for each in timed_words([cue])]
        for start, end, text, probability in found:
            if word := "".join(text.split()):
                yield start, end, word, probability


def _format(name: str, media_type: str = "text/plain", **more: bool) -> TranscriptFormat:
    """A format of cues."""
    return TranscriptFormat(name, media_type, partial(_cues, name), **more)


FORMATS = {
    each.name: each
    for each in (
        TranscriptFormat("txt", "text/plain", _text),
        _format("vtt", "text/vtt", is_subtitle=True),
        _format("srt", is_subtitle=True),
        _format("tsv", "text/tab-separated-values"),
        TranscriptFormat(
            "json",
            "application/json",
            lambda content: to_json(content.transcript, content.pretty),
            has_translation=True,
        ),
        _format("lrc"),
        _format("csv", "text/csv"),
        _format("ass", "text/x-ssa", is_subtitle=True, in_all=False),
        _format("ttml", "application/ttml+xml", is_subtitle=True, in_all=False),
        TranscriptFormat(
            "md",
            "text/markdown",
            lambda content: to_markdown(content.transcript, content.title, content.which),
            in_all=False,
        ),
        TranscriptFormat(
            "docx",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            lambda content: to_docx(content.transcript, content.title, content.which),
            in_all=False,
            is_binary=True,
        ),
        TranscriptFormat(
            "words.tsv",
            "text/tab-separated-values",
            _word_table,
            needs_words=True,
            in_all=False,
        ),
        TranscriptFormat("ctm", "text/plain", _ctm, needs_words=True, in_all=False),
    )
}
ALL = tuple(each.name for each in FORMATS.values() if each.in_all)
"""What "all" stands for: the formats of openai-whisper and whisper.cpp."""


def formats_of(text: str) -> tuple[str, ...]:
    """Names of formats, separated by commas, in any case; "all" stands for `ALL`.

    Raises:
        OptionError: A name is unknown.
    """
    names: list[str] = []
    for part in text.split(","):
        name = part.strip().lower()
        if name != "all" and name not in FORMATS:
            known = ", ".join((*FORMATS, "all"))
            raise OptionError(f"output format {name!r} is not one of {known}")
        names += ALL if name == "all" else [name]
    return tuple(dict.fromkeys(names))


def render(
    transcript: Transcript,
    fmt: str,
    *,
    which: str = "",
    title: str = "",
    pretty: bool = False,
    style: SubtitleStyle = DEFAULT_STYLE,
) -> str | bytes:
    """The content of a transcript file.

    Args:
        transcript: The results of a recording.
        fmt: One of FORMATS.
        which: "" for the text, "translated" for the translation, "both". Formats that hold the
            translation, too, do not ask; tables have one language.
        title: The name of the recording, for documents and lists of words.
        pretty: Indent JSON.
        style: Rules of subtitles in both languages.
    """
    return FORMATS[fmt].write(_Content(transcript, which, title, pretty, style))
