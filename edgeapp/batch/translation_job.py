"""Text files → translated text files: one line out for each unit in."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edgeapp.batch.inputs import TextUnit, read_units
from edgeapp.batch.language_check import LanguageCheck
from edgeapp.batch.part_file import PartFile, job_key
from edgeapp.batch.text_source import OpenText, TextSource
from edgeapp.console import print_note, progress
from pipelines import InputError, NumericalError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation, Translator

__all__ = ["LineTranslator", "TranslationJob"]


class LineTranslator(Protocol):
    """A Translator, or a ParallelTranslator."""

    def translate_lines(
        self, lines: Iterable[str | None], options: TranslateOptions | None = None
    ) -> Iterator[Translation]: ...


@dataclass
class TranslationJob:
    """One input, translated into one output.

    Attributes:
        line_translator: Translates the lines: `translator`, or worker processes with copies of it.
        translator: The loaded model.
        options: Options of the translation.
        source: The input.
        opened: The input, where it is open already.
        document: Join wrapped lines into paragraphs.
        format_line: A translation as one line of output, without its line ending.
        check: Warns of text in another language.
    """

    line_translator: LineTranslator
    translator: Translator
    options: TranslateOptions
    source: TextSource
    document: bool
    format_line: Callable[[Translation], str]
    check: LanguageCheck = field(default_factory=lambda: LanguageCheck(None))
    opened: OpenText | None = None

    def run(self, target: Path | None) -> None:
        """Translate the input.

        Args:
            target: The output file; None is stdout. It is written as a PartFile, so that an
                interrupted run of a regular file is resumed.

        Raises:
            InputError, OutputError, NumericalError.
        """
        with ExitStack() as stack:
            opened = self.opened or self.source.open(stack)
            size = opened.size
            units = read_units(opened.file, document=self.document, head=opened.head)
            if target is None:
                self._translate(units, _write_to_stdout, size, 0)
                return
            part = stack.enter_context(PartFile(target, self._key() if size is not None else None))
            if part.done:
                print_note(f"{target}: resuming after {part.done} translated lines")
            bytes_done = 0
            for unit in islice((u for u in units if u is not None), part.done):
                bytes_done += unit.size
            try:
                self._translate(units, part.write, size, bytes_done)
            except (KeyboardInterrupt, Exception):
                if part.part.stat().st_size:
                    resume = "" if size is None else "; the same command resumes there"
                    print_note(f"the translated lines are in {part.part}{resume}")
                raise
            part.finish()

    def _key(self) -> str:
        return job_key(
            Path(self.source.name),
            model=self.translator.model.folder,
            compute_type=self.translator.model.compute_type,
            options=self.options,
            document=self.document,
            format=self.format_line.__name__,
        )

    def _translate(
        self,
        units: Iterator[TextUnit | None],
        write: Callable[[str], None],
        size: int | None,
        bytes_done: int,
    ) -> None:
        """Translate units and write each line at once, with a progress bar where `size` is known.

        Args:
            units: Units to translate; None where reading on would block.
            write: Writes a line with its ending.
            size: Bytes of the whole input, or None.
            bytes_done: Bytes of the input before the first unit.
        """
        shown = write is not _write_to_stdout or not sys.stdout.isatty()
        with progress(shown=shown and size is not None) as bar:
            task = bar.add_task(self.source.shown, total=size, completed=bytes_done)
            for unit, translation in self._pairs(units):
                write(self.format_line(translation) + unit.ending)
                for warning in translation.warnings:
                    print_note(f"{self._position(unit)}: {warning}")
                bar.advance(task, unit.size)

    def _pairs(self, units: Iterator[TextUnit | None]) -> Iterator[tuple[TextUnit, Translation]]:
        """Each unit with its translation.

        Raises:
            InputError: Reading failed.
            NumericalError: With the position of the line, where one process translates.
        """
        in_flight: deque[TextUnit] = deque()

        def texts() -> Iterator[str | None]:
            try:
                for unit in units:
                    if unit is None:
                        yield None
                        continue
                    if unit.damaged:
                        print_note(
                            f"{self._position(unit)}: bytes that are not UTF-8 were replaced"
                        )
                    if warning := self.check.add(unit.text):
                        print_note(f"{self.source.shown}: {warning}")
                    in_flight.append(unit)
                    yield unit.text
            except OSError as error:
                raise InputError(
                    f"{self.source.shown} cannot be read on: {error.strerror}"
                ) from error

        try:
            for translation in self.line_translator.translate_lines(texts(), self.options):
                yield in_flight.popleft(), translation
        except NumericalError as error:
            # Worker processes translate many lines at once: the failed one is not known.
            if self.line_translator is not self.translator:
                raise
            raise NumericalError(f"{self._position(in_flight[0])}: {error}") from error

    def _position(self, unit: TextUnit) -> str:
        return f"{self.source.shown}, line {unit.number}"


def _write_to_stdout(line: str) -> None:
    sys.stdout.buffer.write(line.encode(errors="replace"))
    sys.stdout.buffer.flush()
