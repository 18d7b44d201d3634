"""A transcript in a page's message → a file format. As a program: stdin → stdout.

Parsing holds Python's lock for seconds if a transcript has millions of cues; `exports` therefore
renders large ones in a child process.
"""

from __future__ import annotations

import io
import math
import os
import sys
import zipfile
from contextlib import suppress
from typing import Any

from edgeapp.documents.transcript_formats import FORMATS, formats_of, render
from edgeapp.history import SpokenCue, TranslatedCue
from edgeapp.live.speakers import MAX_SPEAKER_CHARACTERS
from edgeapp.server.client_json import read_json
from edgeapp.subtitles.shaping import shaped
from edgeapp.subtitles.speakers import speaker_of
from pipelines import EdgeError, InputError, Segment, Word
from pipelines.subtitles import Transcript

__all__ = ["render_message", "transcript_of"]

_MAX_MEMORY = 3 << 30  # bytes of address space of the program; 64 MB of tiny cues need 1.5 GB
_MAX_CPU_S = 60
_PROBLEM = "a segment of the transcript is invalid"


def render_message(body: bytes) -> bytes:
    """The file that a page asks for.

    Args:
        body: JSON with "format", "language", "cues", "translation", "target", "title", and "which":
            "" for the text, "translated" for the translation, "both". With the format "zip":
            "formats", and in "files" several such transcripts, each with a "name".

    Returns:
        The file; text is in UTF-8.

    Raises:
        EdgeError: The body is not a transcript, or the format is unknown.
    """
    try:
        message = read_json(body)
    except ValueError as error:
        raise InputError(f"this is not a transcript: {error}"[:300]) from None
    try:
        if message["format"] == "zip":
            return _zip(message)
        return _file(message, str(message["format"]), str(message.get("which") or ""))
    except EdgeError:
        raise
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise InputError(f"this is not a transcript: {error!r}"[:300]) from None


def _file(message: dict[str, Any], name: str, which: str) -> bytes:
    (fmt,) = formats_of(name)
    transcript = transcript_of(message)
    if FORMATS[fmt].is_subtitle and which != "both":
        transcript = shaped(transcript)
    content = render(transcript, fmt, which=which, title=str(message.get("title") or ""))
    # JSON may contain lone surrogates.
    return content.encode("utf-8", "replace") if isinstance(content, str) else content


def _zip(message: dict[str, Any]) -> bytes:
    """All files of a message, each in all formats, and its translation in those that have none."""
    content, names = io.BytesIO(), set[str]()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in message["files"]:
            stem = _free_name(str(each["name"]), names)
            for fmt in message["formats"]:
                archive.writestr(f"{stem}.{fmt}", _file(each, str(fmt), ""))
                if each.get("translation") and not FORMATS[fmt].has_translation:
                    name = f"{stem}.{_file_name(str(each.get('target') or 'translation'))}.{fmt}"
                    archive.writestr(name, _file(each, str(fmt), "translated"))
    return content.getvalue()


def _free_name(name: str, taken: set[str]) -> str:
    """The name of a recording without its ending, with a number if it is taken; it is taken now."""
    stem = _file_name(name.rpartition(".")[0] or name)
    number, free = 1, stem
    while free.casefold() in taken:
        number += 1
        free = f"{stem} ({number})"
    taken.add(free.casefold())
    return free


def _file_name(name: str) -> str:
    """A name that is no path and that every system allows."""
    kept = "".join("_" if c in '/\\:*?"<>|' or not c.isprintable() else c for c in name)
    return kept.strip(". ")[:100] or "recording"


def transcript_of(message: dict[str, Any]) -> Transcript:
    """The transcript in a page's message.

    Raises:
        InputError: A cue has no text, start or end, or a segment lacks a field.
    """
    target = message.get("target")
    cues = [_segment_or_cue(cue) for cue in message["cues"]]
    translation = [_translated_cue(cue) for cue in message.get("translation") or ()]
    for each in (cues, translation):
        if any(map(speaker_of, each)):  # those of a live session come as sentences end
            each.sort(key=lambda cue: cue.start)
    return Transcript(
        str(message.get("language") or ""),
        tuple(cues),
        tuple(translation),
        str(target) if target else None,
    )


def _segment_or_cue(values: Any) -> Any:
    """A Segment if the user left it unedited (with its tokens), else a cue with its words."""
    start, end, text = _timed_text(values)
    try:
        words = tuple(_word(word) for word in values.get("words") or ())
        if "tokens" not in values:
            return SpokenCue(start, end, text, words, speaker=_speaker(values))
        fields = {**values, "start": start, "end": end, "text": text}
        fields |= {"tokens": tuple(values["tokens"]), "words": words}
        fields |= {"alternatives": (), "token_logprobs": ()}  # the page does not show them
        return Segment(**fields)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise InputError(f"{_PROBLEM}: its fields are not those of a segment") from error


def _translated_cue(values: Any) -> TranslatedCue:
    start, end, text = _timed_text(values)
    try:
        doubts = tuple((int(begin), int(stop)) for begin, stop in values.get("doubts") or ())
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{_PROBLEM}: its doubts are not pairs of offsets") from error
    return TranslatedCue(start, end, text, doubts, speaker=_speaker(values))


def _timed_text(values: Any) -> tuple[float, float, str]:
    """Start and end (seconds) and text of a segment or cue."""
    try:
        start, end, text = float(values["start"]), float(values["end"]), str(values["text"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{_PROBLEM}: it needs start and end in seconds, and text") from error
    if not (math.isfinite(start) and math.isfinite(end)):
        raise InputError(f"{_PROBLEM}: its times are not finite")
    return start, end, text


def _speaker(values: dict[str, Any]) -> str:
    return str(values.get("speaker") or "")[:MAX_SPEAKER_CHARACTERS]


def _word(values: dict[str, Any]) -> Word:
    start, end, probability = (float(values[name]) for name in ("start", "end", "probability"))
    if not (math.isfinite(start) and math.isfinite(end) and 0 <= probability <= 1):
        raise ValueError("the times or the probability of a word are out of range")
    return Word(str(values["word"]), start, end, probability)


def _main() -> int:
    """Render stdin to stdout. The exit code is 1 if stdout has the reason of a failure."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))
        os.nice(10)  # the server goes first
    try:
        content, code = render_message(sys.stdin.buffer.read()), 0
    except EdgeError as error:
        content, code = str(error).encode("utf-8", "replace"), 1
    except MemoryError:
        content, code = b"this transcript is too large to export", 1
    sys.stdout.buffer.write(content)
    return code


if __name__ == "__main__":
    sys.exit(_main())
