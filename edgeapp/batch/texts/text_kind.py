"""What an input of `edgeapp translate` is: text or subtitles, and which options apply to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgeapp.batch.texts.html_job import HTML_SUFFIXES
from edgeapp.batch.texts.text_source import OpenText, TextSource
from edgeapp.documents.structure import STRUCTURED_SUFFIXES, structure_of
from edgeapp.documents.subtitle_file import is_subtitle_file, subtitle_format
from edgeapp.documents.text_encoding import EncodingHint, text_of_head
from pipelines import InputError, OptionError

__all__ = ["ApplicableOptions", "first_cues", "kind_of", "subtitles_in"]


@dataclass(frozen=True)
class ApplicableOptions:
    """Options that are given, and apply to one kind of input only.

    Attributes:
        text: Those for text, each with whether it is given.
        subtitles: Those for subtitles.
    """

    text: Mapping[str, bool] = field(default_factory=dict)
    subtitles: Mapping[str, bool] = field(default_factory=dict)

    def check(self, name: str, kind: str) -> None:
        """Raise OptionError if an option has no effect on an input of this kind."""
        other, options = {
            "text": ("subtitles", self.subtitles),
            "subtitles": ("text", self.text),
            "html": ("text or subtitles", {**self.text, **self.subtitles}),
        }[kind]
        wrong = [option for option, given in options.items() if given]
        if wrong:
            verb = "is" if len(wrong) == 1 else "are"
            raise OptionError(f"{name} is {kind}: {', '.join(wrong)} {verb} for {other} only")


def kind_of(name: str) -> str:
    """What an input is, by its suffix: "text", "subtitles" or "html".

    Raises:
        InputError: Translation line by line would spoil its structure.
    """
    if is_subtitle_file(name):
        return "subtitles"
    if Path(name).suffix.lower() in HTML_SUFFIXES:
        return "html"
    if (suffix := Path(name).suffix.lower()) in STRUCTURED_SUFFIXES:
        raise InputError(
            f"{name}: a {suffix} file has a structure that translation line by line would spoil; "
            "--as-text does it all the same"
        )
    return "text"


def subtitles_in(source: TextSource, opened: OpenText) -> str | None:
    """The format of the subtitles that an input without the name of a subtitle file holds.

    Raises:
        InputError: It is a regular file, whose name should say so; or it has another structure.
    """
    form = subtitle_format(opened.head, source.hint)
    if form is not None and opened.size is not None:
        raise InputError(
            f"{source.name} holds {form} subtitles: rename it to {Path(source.name).stem}.{form}, "
            "or translate its lines with --as-text"
        )
    name = source.name if opened.size is not None else ""
    if form is None and (structure := structure_of(name, text_of_head(opened.head, source.hint))):
        raise InputError(
            f"{source.shown} holds {structure}, whose structure translation line by line would "
            "spoil; --as-text does it all the same"
        )
    return form


def first_cues(film: Path, content: bytes | None, hint: EncodingHint) -> str:
    """What the first cues of subtitles say.

    Args:
        film: The file.
        content: What it holds, where it was read from a pipe; None: it is read.
        hint: What is known about its encoding.
    """
    from edgeapp.documents.subtitle_file import parse, read
    from edgeapp.documents.subtitle_markup import plain_text

    file = read(film, hint) if content is None else parse(content, film.suffix[1:], film.stem, hint)
    return "\n".join(plain_text(cue.text, file.format) for cue in file.cues[:50])
