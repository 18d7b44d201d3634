"""A subtitle file → the same file in another language."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.batch.outputs import write_atomically
from edgeapp.batch.translation_job import LineTranslator
from edgeapp.console import print_note, progress
from edgeapp.documents.subtitle_file import read
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
    """

    line_translator: LineTranslator
    options: TranslateOptions
    source: Path
    bilingual: bool = False
    style: SubtitleStyle = DEFAULT_STYLE

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
        file = read(self.source)
        options = replace(self.options, word_alignments=True)
        content = b""
        with progress(shown=target is not None or not sys.stdout.isatty()) as bar:
            task = bar.add_task(str(self.source), total=len(passages(file)))

            def translate_lines(texts: Iterable[str]) -> Iterator[Translation]:
                return self.line_translator.translate_lines(texts, options)

            for done in translate_subtitles(
                file, translate_lines, style=self.style, bilingual=self.bilingual
            ):
                if isinstance(done, bytes):
                    content = done
                    continue
                for warning in done.warnings:
                    print_note(f"{self.source}: {warning}")
                bar.advance(task)
        if target is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            write_atomically(target, content)
