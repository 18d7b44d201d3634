"""Where the results of recordings go: to stdout, into a folder, or to one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeapp.batch.find_inputs import MEDIA_SUFFIXES, FoundInput
from edgeapp.batch.outputs import (
    FOREIGN_SUFFIXES,
    check_no_collisions,
    output_names,
    prepare_folder,
)
from edgeapp.file_names import fitting
from edgeapp.subtitles.formats import FORMATS, MORE_FORMATS, formats_of
from pipelines import OptionError

__all__ = ["SUBTITLE_FORMATS", "OutputFile", "TranscriptOutput"]

SUBTITLE_FORMATS = frozenset(("srt", "vtt", "ass", "ttml"))

# Formats of text and subtitles that are not written.
_OTHER_TEXT = frozenset(
    ".dfxp .htm .html .log .md .rst .sbv .ssa .stl .sub .tex .text .toml .xml .yaml .yml".split()
)


@dataclass(frozen=True)
class OutputFile:
    """A file of a recording's results.

    Attributes:
        format: One of FORMATS or MORE_FORMATS.
        translated: It holds the translation.
        path: Where it is written.
    """

    format: str
    translated: bool
    path: Path


@dataclass(frozen=True)
class TranscriptOutput:
    """The destination of a run.

    Attributes:
        formats: Formats of the results; without any, plain text goes to stdout as it is decoded.
        folder: Folder for the results; None writes them to stdout.
        names: For each recording the base name of its results.
        file: The only file, where one was named; it is in `folder`.
        target: Language of the translation, or None.
        bilingual: Translated subtitles have the original above each translation.
    """

    formats: tuple[str, ...]
    folder: Path | None
    names: tuple[str, ...]
    file: Path | None = None
    target: str | None = None
    bilingual: bool = False

    @classmethod
    def of(
        cls,
        output: str | None,
        formats: str | None,
        found: Sequence[FoundInput],
        target: str | None,
        bilingual: bool = False,
    ) -> TranscriptOutput:
        """The destination that a command line asks for.

        Args:
            output: A folder; or a file, which is a name that ends with a format and is no folder.
            formats: Names of formats with commas between them, or "all".
            found: The recordings.
            target: Language of the translation, or None.
            bilingual: Translated subtitles have the original above each translation.

        Raises:
            OptionError: The values exclude each other, or two results would have the same path.
        """
        chosen = formats_of(formats) if formats else ()
        inputs = [each.path for each in found]
        plain = iter(output_names([each.path for each in found if each.name is None]))
        names = tuple(next(plain) if each.name is None else each.name for each in found)
        ending = None if output is None else _format_in_name(output)
        if output is not None and ending is not None:
            if len(inputs) > 1:
                raise OptionError(
                    f"{output} is one file for {len(inputs)} recordings: name a folder with -o"
                )
            if chosen not in ((), (ending,)):
                raise OptionError(f"-f {formats} and -o {output} name different formats")
            file = Path(output)
            destination = cls((ending,), file.parent, (file.stem,), file, target, bilingual)
        elif output is not None or len(chosen) > 1:
            destination = cls(
                chosen or FORMATS, Path(output or "."), names, None, target, bilingual
            )
        elif any(each.name is not None for each in found):
            raise OptionError("the recordings of a folder need a folder for their results: -o OUT")
        else:
            destination = cls(chosen, None, names, None, target, bilingual)
        destination._check(inputs)
        return destination

    def _check(self, inputs: Sequence[str]) -> None:
        if self.bilingual and self.target is None:
            raise OptionError("--bilingual needs the language of the second text: --translate-to")
        if self.bilingual and not SUBTITLE_FORMATS.intersection(self.formats):
            raise OptionError("--bilingual is for subtitles: -f srt, vtt, ass or ttml")
        if self.folder is not None:
            paths = [file.path for name in self.names for file in self.files(name)]
            check_no_collisions(paths, inputs)
        elif self.bilingual and SUBTITLE_FORMATS.issuperset(self.formats):
            return  # one text has both languages
        elif self.target is not None and self.formats not in ((), ("json",)):
            raise OptionError(
                f"-f {self.formats[0]} with --translate-to makes two texts, and stdout takes one: "
                f"-o FOLDER writes both to files, -f json and --bilingual subtitles hold both"
            )

    def prepare(self) -> None:
        """Create the folder.

        Raises:
            OutputError: It cannot be created or written to.
        """
        if self.folder is not None:
            prepare_folder(self.folder)
            for name in self.names:  # those of a folder are in folders alike
                if (parent := (self.folder / name).parent) != self.folder:
                    prepare_folder(parent)

    def listing(self) -> str:
        """The names of the files, or how many there are."""
        paths = [file.path for name in self.names for file in self.files(name)]
        return ", ".join(map(str, paths)) if len(paths) <= len(FORMATS) else f"{len(paths)} files"

    def files(self, name: str) -> Iterator[OutputFile]:
        """The files of the recording with this base name; none where results go to stdout.

        The JSON of a recording holds its translation too.
        """
        if self.folder is None:
            return
        for fmt in self.formats:
            original = self.file or fitting(self.folder / f"{name}.{fmt}", f".{fmt}")
            yield OutputFile(fmt, False, original)
            if self.target is not None and fmt != "json":
                ending = f".{self.target}{original.suffix}"
                yield OutputFile(fmt, True, fitting(self.folder / f"{name}{ending}", ending))


def _format_in_name(output: str) -> str | None:
    """The format with which the name of a file ends; None for the name of a folder.

    Raises:
        OptionError: It ends as a file of a format that cannot be written.
    """
    path = Path(output)
    suffix = path.suffix.lower()
    if path.is_dir() or output.endswith(("/", "\\")):
        return None
    if suffix in FOREIGN_SUFFIXES | MEDIA_SUFFIXES | _OTHER_TEXT:
        raise OptionError(
            f"{output}: {suffix} files cannot be written; the formats are "
            f"{', '.join((*FORMATS, *MORE_FORMATS))}, and a folder of that name is {output}/"
        )
    form = suffix.removeprefix(".")
    return form if form in (*FORMATS, *MORE_FORMATS) else None
