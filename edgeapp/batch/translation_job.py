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
from edgeapp.batch.line_formats import WRITERS
from edgeapp.batch.part_file import PartFile, job_key
from edgeapp.batch.repeated_warnings import RepeatedWarnings
from edgeapp.batch.text_source import OpenText, TextSource
from edgeapp.console import print_note, progress
from pipelines import InputError, NumericalError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation, Translator

__all__ = ["LineTranslator", "TranslationJob"]

# With a damaged model, or a compute type that overflows, every line fails.
_MAX_FAILED_IN_A_ROW = 10


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
        format: Of the output lines, a key of WRITERS.
        language_check: Warns of text in another language.
    """

    line_translator: LineTranslator
    translator: Translator
    options: TranslateOptions
    source: TextSource
    document: bool
    format: str
    language_check: LanguageCheck = field(default_factory=lambda: LanguageCheck(None))
    opened: OpenText | None = None

    def run(self, target: Path | None) -> None:
        """Translate the input.

        Args:
            target: The output file; None is stdout. It is written as a PartFile, so that an
                interrupted run of a regular file is resumed.

        Raises:
            InputError: It cannot be read, or some lines failed: those for which the model computes
                NaN. Each is named on stderr, and the others are done.
            OutputError: The output cannot be written.
            NumericalError: No line with text could be translated, or too many in a row failed.
        """
        with ExitStack() as stack:
            opened = self.opened or self.source.open(stack)
            size = opened.size
            units = read_units(opened.file, document=self.document, head=opened.head)
            if target is None:
                self._check(self._translate(units, _write_to_stdout, size, 0))
                return
            part = stack.enter_context(PartFile(target, self._key() if size is not None else None))
            if part.done:
                print_note(f"{target}: resuming after {part.done} translated lines")
            bytes_done = 0
            for unit in islice((u for u in units if u is not None), part.done):
                bytes_done += unit.size
            try:
                failed = self._translate(units, part.write, size, bytes_done)
            except (KeyboardInterrupt, Exception):
                if part.part.stat().st_size:
                    resume = "" if size is None else "; the same command resumes there"
                    print_note(f"the translated lines are in {part.part}{resume}")
                raise
            part.finish()
            self._check(failed)

    def _key(self) -> str:
        """The key of the PartFile: all that its lines depend on, by names that stay the same."""
        options, translator = self.options, self.translator
        return job_key(
            Path(self.source.name),
            model=str(translator.model.folder),
            compute_type=translator.model.compute_type,
            shortlist=translator.shortlist,
            source_language=options.source_language or translator.source,
            target=options.target,
            split_sentences=options.split_sentences,
            beam_size=options.beam_size,
            word_alignments=options.word_alignments,
            document=self.document,
            format=self.format,
        )

    def _translate(
        self,
        units: Iterator[TextUnit | None],
        write: Callable[[str], None],
        size: int | None,
        bytes_done: int,
    ) -> int:
        """Translate units and write each line at once, with a progress bar where `size` is known.

        A failed unit has an empty translation. In a file its line waits until a later text has
        been translated, so that a damaged model leaves no file of empty lines.

        Args:
            units: Units to translate; None where reading on would block.
            write: Writes a line with its ending.
            size: Bytes of the whole input, or None.
            bytes_done: Bytes of the input before the first unit.

        Returns:
            The number of failed units.

        Raises:
            InputError: Reading failed.
            NumericalError: No text could be translated, or too many in a row failed.
        """
        to_stdout = write is _write_to_stdout
        failed, in_a_row, translated = 0, 0, bytes_done > 0
        waiting: list[str] = []
        shown = not to_stdout or not sys.stdout.isatty()
        with (
            progress(shown=shown and size is not None) as bar,
            RepeatedWarnings(self.source.shown) as warnings,
        ):
            task = bar.add_task(self.source.shown, total=size, completed=bytes_done)
            for unit, result in self._results(units):
                if isinstance(result, NumericalError):
                    print_note(f"{self._position(unit)}: {result}")
                    failed, in_a_row = failed + 1, in_a_row + 1
                    translation = _empty_translation(unit, result)
                else:
                    translation = result
                    for warning in translation.warnings:
                        warnings.add(warning, f"line {unit.number}")
                    if unit.text.strip():
                        in_a_row, translated = 0, True
                if in_a_row == _MAX_FAILED_IN_A_ROW:
                    raise NumericalError(
                        f"{self.source.shown}: {in_a_row} lines in a row could not be translated"
                    )
                waiting.append(WRITERS[self.format](translation) + unit.ending)
                if to_stdout or not in_a_row:
                    while waiting:
                        write(waiting.pop(0))
                bar.advance(task, unit.size)
        if failed and not translated:
            raise NumericalError(f"{self.source.shown}: no line could be translated")
        for line in waiting:
            write(line)
        return failed

    def _results(
        self, units: Iterator[TextUnit | None]
    ) -> Iterator[tuple[TextUnit, Translation | NumericalError]]:
        """Each unit with its translation, or with the error that the model computed NaN for it.

        A failure ends `translate_lines`; the units that it had read are translated again, without
        the failed one. Worker processes fail with many lines at once: `translator` then translates
        what they had read, and so finds the failed line.

        Raises:
            InputError: Reading failed.
        """
        pending: deque[TextUnit] = deque()  # read, without a result
        again: Iterator[TextUnit] = iter(())  # to be translated again
        read_error: OSError | None = None

        def texts(source: Iterable[TextUnit | None]) -> Iterator[str | None]:
            nonlocal read_error
            try:
                for unit in source:
                    if unit is None:
                        yield None
                        continue
                    if unit.damaged and source is units:
                        print_note(
                            f"{self._position(unit)}: bytes that are not UTF-8 were replaced"
                        )
                    if warning := self.language_check.add(unit.text):
                        print_note(f"{self.source.shown}: {warning}")
                    pending.append(unit)
                    yield unit.text
            except OSError as error:
                read_error = error

        translator: LineTranslator = self.line_translator
        source: Iterator[TextUnit | None] = units
        while True:
            try:
                for translation in translator.translate_lines(texts(source), self.options):
                    yield pending.popleft(), translation
            except NumericalError as error:
                if translator is self.translator:
                    yield pending.popleft(), error
                again = iter([*pending, *again])
                pending.clear()
                translator, source = self.translator, again
            else:
                if source is units:
                    break
                translator, source = self.line_translator, units
        if read_error is not None:
            raise InputError(
                f"{self.source.shown} cannot be read on: {read_error.strerror}"
            ) from read_error

    def _check(self, failed: int) -> None:
        """Raise InputError if units failed."""
        if failed:
            lines = "1 line" if failed == 1 else f"{failed} lines"
            raise InputError(
                f"{self.source.shown}: {lines} could not be translated; empty in the output"
            )

    def _position(self, unit: TextUnit) -> str:
        return f"{self.source.shown}, line {unit.number}"


def _empty_translation(unit: TextUnit, error: NumericalError) -> Translation:
    from pipelines import Translation

    return Translation(unit.text, "", warnings=(str(error),))


def _write_to_stdout(line: str) -> None:
    sys.stdout.buffer.write(line.encode(errors="replace"))
    sys.stdout.buffer.flush()
