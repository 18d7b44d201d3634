"""An HTML file → the same file in another language."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.batch.journal.job_journal import Job
from edgeapp.batch.journal.pieces import PassagesPiece
from edgeapp.batch.result_writer import ResultWriter
from edgeapp.batch.run_progress import RunProgress
from edgeapp.batch.texts.kept_passages import KeptPassages
from edgeapp.batch.texts.repeated_warnings import RepeatedWarnings
from edgeapp.batch.texts.translation_job import LineTranslator, key_settings
from edgeapp.documents.html.translation import html_text, translate_html
from edgeapp.documents.text_encoding import (
    NO_HINT,
    EncodingHint,
    TextEncoding,
    decode_text,
    read_bytes,
)
from pipelines import OptionError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation, Translator

__all__ = ["HTML_SUFFIXES", "HtmlJob", "text_of_html_file"]

HTML_SUFFIXES = (".html", ".htm", ".xhtml")
_MAX_BYTES = 64 << 20


@dataclass
class HtmlJob:
    """One HTML file.

    Attributes:
        line_translator: Translates blocks of text.
        options: Options of the translation.
        source: The file. The translation has its encoding.
        entry: The job in the journal, with the blocks of earlier runs; None: nothing is kept.
        writer: Writes the output.
        lines: Blocks of text in the file, once they are translated.
        progress: Of the run.
        shown: The name for messages; "": `source`.
        hint: What is known about the encoding of the file.
    """

    line_translator: LineTranslator
    options: TranslateOptions
    source: Path
    entry: Job[PassagesPiece] | None = None
    writer: ResultWriter = field(default_factory=ResultWriter)
    lines: int = 0
    progress: RunProgress = field(default_factory=RunProgress)
    shown: str = ""
    hint: EncodingHint = NO_HINT

    def key(self, translator: Translator) -> str:
        """The key of the blocks: all that their translations depend on."""
        return self.writer.digests.job_key(
            self.source,
            verb="translate html",
            **self.hint.settings,
            **key_settings(translator, self.options),
        )

    def run(self, target: Path | None) -> None:
        """Translate the file.

        Args:
            target: The output file; None is stdout.

        Raises:
            InputError: It cannot be read.
            OptionError: The output has the ending of another format.
            OutputError, NumericalError.
        """
        if target is not None and target.suffix.lower() not in HTML_SUFFIXES:
            raise OptionError(
                f"{self.source} stays HTML when it is translated: {target} has another ending"
            )
        name = self.shown or str(self.source)
        html, encoding = _read(self.source, self.hint)
        kept = KeptPassages(name, self.line_translator, self.options, self.entry, self.progress)
        with kept, RepeatedWarnings(name) as warnings:

            def translate_lines(texts: Iterable[str]) -> Iterator[Translation]:
                for number, translation in enumerate(kept.translate_lines(texts), start=1):
                    self.lines = number
                    for warning in translation.warnings:
                        warnings.add(warning, f"text {number}")
                    yield translation

            content = encoding.encode(translate_html(html, translate_lines))
        if target is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            self.writer.write(target, content)


def text_of_html_file(source: Path, hint: EncodingHint) -> str:
    """The text of a file, for the detection of its language.

    Raises:
        InputError: It cannot be read.
    """
    return html_text(_read(source, hint)[0])


def _read(source: Path, hint: EncodingHint) -> tuple[str, TextEncoding]:
    """Return the markup, with its line ends as they are, and its encoding."""
    content = read_bytes(source, _MAX_BYTES, "divide it")
    return decode_text(content, str(source), markup=True, hint=hint)
