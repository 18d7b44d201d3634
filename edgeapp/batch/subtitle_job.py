"""A subtitle file → the same file in another language."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.batch.outputs import write_atomically
from edgeapp.batch.repeated_warnings import RepeatedWarnings
from edgeapp.batch.translation_job import LineTranslator
from edgeapp.console import progress
from edgeapp.documents.subtitle_file import SubtitleFile, parse, read
from edgeapp.documents.subtitle_translation import passages, translate_subtitles
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle
from pipelines import OptionError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation

__all__ = ["SubtitleJob", "UNREADABLE_SUFFIXES"]

UNREADABLE_SUFFIXES = frozenset(
    ".csv .docx .epub .ini .json .jsonl .md .odt .pdf .po .pptx .rst .rtf .tex .toml "
    ".tsv .xlf .xliff .xlsx .xml .yaml .yml".split()
)
"""Suffixes of files with structure that line by line translation would spoil."""


@dataclass(frozen=True)
class SubtitleJob:
    """One subtitle file.

    Attributes:
        line_translator: Translates passages.
        options: Options of the translation.
        source: The file.
        bilingual: Keep the original lines above their translation.
        style: Width of the lines, and reading speed.
        content: What `source` holds, where it was read from a pipe; None: it is a file.
    """

    line_translator: LineTranslator
    options: TranslateOptions
    source: Path
    bilingual: bool = False
    style: SubtitleStyle = DEFAULT_STYLE
    content: bytes | None = None

    def read(self) -> SubtitleFile:
        """The subtitles.

        Raises:
            InputError: It is no subtitle file.
        """
        if self.content is None:
            return read(self.source)
        return parse(self.content, self.source.suffix.removeprefix("."), self.source.stem)

    def run(self, target: Path | None) -> None:
        """Translate the file.

        Args:
            target: The output file; None is stdout.

        Raises:
            InputError: It is no subtitle file.
            OptionError: The output has the ending of another format.
            OutputError, NumericalError.
        """
        if target is not None and target.suffix.lower() != self.source.suffix.lower():
            raise OptionError(
                f"{self.source} stays {self.source.suffix.lower()} when it is translated: "
                f"{target} has another ending"
            )
        file = self.read()
        options = replace(self.options, word_alignments=True)
        content = b""
        found = passages(file)
        with (
            progress(shown=target is not None or not sys.stdout.isatty()) as bar,
            RepeatedWarnings(str(self.source)) as warnings,
        ):
            task = bar.add_task(str(self.source), total=len(found))
            cues = (f"cue {passage.fragments[0].cue + 1}" for passage in found)

            def translate_lines(texts: Iterable[str]) -> Iterator[Translation]:
                return self.line_translator.translate_lines(texts, options)

            for done in translate_subtitles(
                file, translate_lines, style=self.style, bilingual=self.bilingual
            ):
                if isinstance(done, bytes):
                    content = done
                    continue
                cue = next(cues)
                for warning in done.warnings:
                    warnings.add(warning, cue)
                bar.advance(task)
        if target is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            write_atomically(target, content)
