"""An HTML file → the same file in another language."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.batch.result_writer import ResultWriter
from edgeapp.batch.texts.translation_job import LineTranslator
from edgeapp.console import print_note
from edgeapp.documents.html.translation import html_text, translate_html
from pipelines import InputError, OptionError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation

__all__ = ["HTML_SUFFIXES", "HtmlJob", "text_of_html_file"]

HTML_SUFFIXES = (".html", ".htm", ".xhtml")
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class HtmlJob:
    """One HTML file.

    Attributes:
        line_translator: Translates blocks of text.
        options: Options of the translation.
        source: The file, in UTF-8.
        writer: Writes the output.
    """

    line_translator: LineTranslator
    options: TranslateOptions
    source: Path
    writer: ResultWriter = field(default_factory=ResultWriter)

    def run(self, target: Path | None) -> None:
        """Translate the file.

        Args:
            target: The output file; None is stdout.

        Raises:
            InputError: It cannot be read, or is not UTF-8.
            OptionError: The output has the ending of another format.
            OutputError, NumericalError.
        """
        if target is not None and target.suffix.lower() not in HTML_SUFFIXES:
            raise OptionError(
                f"{self.source} stays HTML when it is translated: {target} has another ending"
            )
        options = replace(self.options, word_alignments=True)

        def translate_lines(texts: Iterable[str]) -> Iterator[Translation]:
            for translation in self.line_translator.translate_lines(texts, options):
                for warning in translation.warnings:
                    print_note(f"{self.source}: {warning}")
                yield translation

        content = translate_html(_read(self.source), translate_lines).encode()
        if target is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            self.writer.write(target, content)


def text_of_html_file(source: Path) -> str:
    """The text of a file, for the detection of its language.

    Raises:
        InputError: It cannot be read, or is not UTF-8.
    """
    return html_text(_read(source))


def _read(source: Path) -> str:
    try:
        if source.stat().st_size > _MAX_BYTES:
            raise InputError(f"{source} is larger than {_MAX_BYTES >> 20} MB; divide it")
        # Without translation of line ends: the markup stays as it is.
        return source.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InputError(f"{source} is not UTF-8; convert it first") from None
