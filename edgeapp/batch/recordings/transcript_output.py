"""Where the results of recordings go: to stdout, into a folder, or to one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import splitext
from pathlib import Path

from edgeapp.batch.find_inputs import MEDIA_SUFFIXES, FoundInput
from edgeapp.batch.outputs import (
    FOREIGN_SUFFIXES,
    check_no_collisions,
    output_names,
    prepare_folder,
)
from edgeapp.documents.transcript_formats import ALL, FORMATS, formats_of
from edgeapp.file_names import fitting
from pipelines import OptionError

__all__ = ["OutputFile", "TranscriptOutput"]

# Formats of text and subtitles that are not written.
_OTHER_TEXT = frozenset(
    ".dfxp .htm .html .log .rst .sbv .ssa .stl .sub .tex .text .toml .xml .yaml .yml".split()
)


@dataclass(frozen=True)
class OutputFile:
    """A file of a recording's results.

    Attributes:
        format: One of FORMATS.
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
        names: For each recording the base name of its results, below `folder`.
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
            output: A folder; or a file, which is a name that ends with a format and is no folder;
                "-" for stdout. None is stdout for text in one format, unless it is that of several
                recordings or of a folder: other results lie beside their recordings.
            formats: Names of formats with commas between them, or "all".
            found: The recordings.
            target: Language of the translation, or None.
            bilingual: Translated subtitles have the original above each translation.

        Raises:
            OptionError: The values exclude each other, or two results would have the same path.
        """
        chosen = formats_of(formats) if formats else ()
        inputs = [each.path for each in found]
        ending = None if output in (None, "-") else _format_in_name(str(output))
        if output is not None and ending is not None:
            if len(inputs) > 1:
                raise OptionError(
                    f"{output} is one file for {len(inputs)} recordings: name a folder with -o"
                )
            if chosen not in ((), (ending,)):
                raise OptionError(f"-f {formats} and -o {output} name different formats")
            file = Path(output)
            stem = file.name[: -len(ending) - 1]
            destination = cls((ending,), file.parent, (stem,), file, target, bilingual)
        elif output not in (None, "-"):
            names = _names_in_one_folder(found)
            destination = cls(chosen or ALL, Path(str(output)), names, None, target, bilingual)
        elif output is None and _belong_in_files(chosen, found):
            destination = cls(chosen, Path(), _names_beside(found), None, target, bilingual)
        else:
            names = _names_in_one_folder(found)
            destination = cls(chosen, None, names, None, target, bilingual)
        destination._check(inputs)
        return destination

    def _check(self, inputs: Sequence[str]) -> None:
        if self.bilingual and self.target is None:
            raise OptionError("--bilingual needs the language of the second text: --translate-to")
        subtitles = [name for name in self.formats if FORMATS[name].is_subtitle]
        if self.bilingual and not subtitles:
            raise OptionError("--bilingual is for subtitles: -f srt, vtt, ass or ttml")
        if self.folder is not None:
            paths = [file.path for name in self.names for file in self.files(name)]
            check_no_collisions(paths, inputs)
            return
        if len(self.formats) > 1 or any(FORMATS[name].is_binary for name in self.formats):
            raise OptionError("stdout takes one text: -o FOLDER writes files")
        has_both = [FORMATS[name].has_translation for name in self.formats]
        if self.target is not None and not self.bilingual and not all(has_both):
            raise OptionError(
                f"-f {self.formats[0]} with --translate-to makes two texts, and stdout takes one: "
                f"-o FOLDER writes both to files, -f json and --bilingual subtitles hold both"
            )

    def prepare(self) -> None:
        """Create the folders of the files.

        Raises:
            OutputError: One cannot be created or written to.
        """
        if self.folder is not None:
            for parent in dict.fromkeys((self.folder / name).parent for name in self.names):
                prepare_folder(parent)

    def listing(self) -> str:
        """The names of files beside their recordings, or how many there are."""
        paths = [file.path for name in self.names for file in self.files(name)]
        if len(paths) > len(FORMATS):
            return f"{len(paths)} files beside their recordings"
        return ", ".join(map(str, paths))

    def files(self, name: str) -> Iterator[OutputFile]:
        """The files of the recording with this base name; none where results go to stdout.

        A translation has a file of its own, unless the format holds both texts.
        """
        if self.folder is None:
            return
        for fmt in self.formats:
            original = self.file or fitting(self.folder / f"{name}.{fmt}", f".{fmt}")
            yield OutputFile(fmt, False, original)
            if self.target is not None and not FORMATS[fmt].has_translation:
                ending = f".{self.target}{original.name[-len(fmt) - 1 :]}"
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
    named = [name for name in FORMATS if path.name.lower().endswith(f".{name}")]
    if named:
        return max(named, key=len)
    if suffix in FOREIGN_SUFFIXES | MEDIA_SUFFIXES | _OTHER_TEXT:
        raise OptionError(
            f"{output}: {suffix} files cannot be written; the formats are "
            f"{', '.join(FORMATS)}, and a folder of that name is {output}/"
        )
    return None


def _belong_in_files(formats: Sequence[str], found: Sequence[FoundInput]) -> bool:
    """Whether results do not go to stdout, where no destination is named.

    Raises:
        OptionError: They are those of a folder, and no format is named.
    """
    of_folder = any(each.name is not None for each in found)
    if of_folder and not formats:
        raise OptionError(
            "name formats or a folder for the recordings of a folder: -f txt writes beside them, "
            "-o OUT writes all formats to OUT"
        )
    binary = any(FORMATS[name].is_binary for name in formats)
    return bool(formats) and (of_folder or binary or len(formats) > 1 or len(found) > 1)


def _names_in_one_folder(found: Sequence[FoundInput]) -> tuple[str, ...]:
    """Base names of the results of recordings, for one folder."""
    plain = iter(output_names([each.path for each in found if each.name is None]))
    return tuple(next(plain) if each.name is None else each.name for each in found)


def _names_beside(found: Sequence[FoundInput]) -> tuple[str, ...]:
    """Base names of results that lie beside their recordings; those of downloads and of stdin lie
    in the current folder."""
    here = [each for each in found if each.path == "-" or each.remote is not None]
    plain = iter(output_names([each.path for each in here]))
    stems = [splitext(each.path)[0] for each in found]  # noqa: PTH122  # a name may be empty
    counts = Counter(stems)
    return tuple(
        next(plain) if each in here else stem if counts[stem] == 1 else each.path
        for each, stem in zip(found, stems, strict=True)
    )
