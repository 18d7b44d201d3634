"""Text files → translated text files: one line out for each unit in."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edgeapp.batch.journal.job_journal import Job
from edgeapp.batch.journal.pieces import LinesPiece, PieceCollector
from edgeapp.batch.result_writer import ResultWriter
from edgeapp.batch.run_progress import RunProgress
from edgeapp.batch.texts.inputs import TextUnit, read_units
from edgeapp.batch.texts.language_check import LanguageCheck
from edgeapp.batch.texts.line_formats import WRITERS
from edgeapp.batch.texts.repeated_warnings import RepeatedWarnings
from edgeapp.batch.texts.text_source import OpenText, TextSource
from edgeapp.console import counted, print_note
from edgeapp.file_names import beside
from edgeapp.output_errors import output_errors
from pipelines import InputError
from pipelines.errors import NumericalError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation, Translator

__all__ = ["LineTranslator", "TranslationJob", "key_settings"]

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
        document: Join wrapped lines into paragraphs.
        format: Of the output lines, a key of WRITERS.
        language_check: Warns of text in another language.
        opened: The input, where it is open already.
        entry: The job in the journal, with the lines of earlier runs; None: the lines so far are
            kept beside the output, in a .part file.
        writer: Writes the output of a job in the journal.
        lines: Lines of the output so far.
        progress: Of the run.
    """

    line_translator: LineTranslator
    translator: Translator
    options: TranslateOptions
    source: TextSource
    document: bool
    format: str
    language_check: LanguageCheck = field(default_factory=lambda: LanguageCheck(None))
    opened: OpenText | None = None
    entry: Job[LinesPiece] | None = None
    writer: ResultWriter = field(default_factory=ResultWriter)
    lines: int = 0
    progress: RunProgress = field(default_factory=RunProgress)

    def run(self, target: Path | None) -> None:
        """Translate the input.

        Args:
            target: The output file; None is stdout.

        Raises:
            InputError: It cannot be read, or some lines failed: those for which the model computes
                NaN. Each is named on stderr, and the others are done.
            OutputError: The output cannot be written.
            NumericalError: No line with text could be translated, or too many in a row failed.
        """
        with ExitStack() as stack:
            opened = self.opened or self.source.open(stack)
            units = read_units(
                opened.file,
                document=self.document,
                head=opened.head,
                name=self.source.shown,
                encoding=opened.encoding,
                language=self.source.hint.language,
            )
            if target is None:
                self._check(self._translate(units, _write_to_stdout, opened.size, 0))
            elif self.entry is not None:
                self._check(self._run_in_journal(units, self.entry, target, opened.size))
            else:
                self._check(self._run_with_part(units, target, opened.size))

    def _run_in_journal(
        self,
        units: Iterator[TextUnit | None],
        entry: Job[LinesPiece],
        target: Path,
        size: int | None,
    ) -> int:
        """Keep the lines in the journal until all are there. Returns the number of failed ones."""
        failed = 0
        for piece in entry.stored():
            self.lines += len(piece.lines)
            failed += piece.failed
        if self.lines:
            print_note(
                f"{self.source.shown}: resuming after {counted(self.lines, 'translated line')}"
            )
        bytes_done = _skip(units, self.lines)

        def keep(lines: list[tuple[str, bool]]) -> None:
            entry.add(LinesPiece(tuple(line for line, _ in lines), sum(bad for _, bad in lines)))

        with PieceCollector(keep) as collector:

            def write(line: str, bad: bool) -> None:
                collector.add((line, bad))
                self.lines += 1

            failed += self._translate(units, write, size, bytes_done)
        content = ("".join(piece.lines).encode(errors="replace") for piece in entry.stored())
        self.writer.write(target, content)
        return failed

    def _run_with_part(
        self, units: Iterator[TextUnit | None], target: Path, size: int | None
    ) -> int:
        """Write the lines to a .part file until all are there. Returns the number of failed ones.

        The lines stay in it if the work is ended.
        """
        part = beside(target, ".part")
        self.writer.check([part])
        with output_errors(target):
            file = part.open("wb")

        def write(line: str, _: bool) -> None:
            with output_errors(target):
                file.write(line.encode(errors="replace"))
                file.flush()

        try:
            with file:
                failed = self._translate(units, write, size, 0)
        except BaseException:
            if part.stat().st_size:
                print_note(f"the translated lines are in {part}")
            else:
                part.unlink()
            raise
        with output_errors(target):
            self.writer.note(target, part)
            part.replace(target)
        return failed

    def key(self) -> str:
        """Return the key of the lines: a digest of all that they depend on."""
        # Keys of texts name these two in any case, so that jobs of earlier versions are found.
        named = {"split_sentences": True, "word_alignments": False}
        return self.writer.digests.job_key(
            Path(self.source.name),
            document=self.document,
            format=self.format,
            **self.source.hint.settings,
            **named | key_settings(self.translator, self.options),
        )

    def _translate(
        self,
        units: Iterator[TextUnit | None],
        write: Callable[[str, bool], None],
        size: int | None,
        bytes_done: int,
    ) -> int:
        """Translate units and write each line at once.

        A failed unit has an empty translation. In a file its line waits until a later text has
        been translated, so that a damaged model leaves no file of empty lines.

        Args:
            units: Units to translate; None where reading on would block.
            write: Takes a line with its ending, and whether it failed.
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
        waiting: list[tuple[str, bool]] = []
        if size is not None:
            self.progress.total(size, bytes_done)
        with RepeatedWarnings(self.source.shown) as warnings:
            for unit, result in self._results(units):
                bad = isinstance(result, NumericalError)
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
                waiting.append((WRITERS[self.format](translation) + unit.ending, bad))
                if to_stdout or not in_a_row:
                    while waiting:
                        write(*waiting.pop(0))
                self.progress.advance(unit.size, lines=1)
        if failed and not translated:
            raise NumericalError(f"{self.source.shown}: no line could be translated")
        for line in waiting:
            write(*line)
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
        read_error: OSError | InputError | None = None  # what was read is translated first

        def texts(source: Iterable[TextUnit | None]) -> Iterator[str | None]:
            nonlocal read_error
            try:
                for unit in source:
                    if unit is None:
                        yield None
                        continue
                    if warning := self.language_check.add(unit.text):
                        print_note(f"{self.source.shown}: {warning}")
                    pending.append(unit)
                    yield unit.text
            except (OSError, InputError) as error:
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
        if isinstance(read_error, InputError):
            raise read_error
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


def key_settings(
    translator: Translator, options: TranslateOptions
) -> dict[str, str | int | bool | None]:
    """Return what every translation depends on, for the key of a job, by names that stay the same.

    Of the options, all but the priority change a translation. Most are there only if they differ
    from their defaults, so that a new option does not make earlier jobs begin again.
    """
    settings: dict[str, str | int | bool | None] = {
        "model": str(translator.model.folder),
        "compute_type": translator.model.compute_type,
        "shortlist": translator.shortlist,
        "source_language": options.source_language or translator.source,
        "target": options.target,
        "beam_size": options.beam_size,
    }
    default = type(options)()
    for name in (each.name for each in fields(options)):
        value = getattr(options, name)
        if name not in settings and name != "priority" and value != getattr(default, name):
            settings[name] = value if isinstance(value, bool) else str(value)
    return settings


def _empty_translation(unit: TextUnit, error: NumericalError) -> Translation:
    from pipelines import Translation

    return Translation(unit.text, "", warnings=(str(error),))


def _skip(units: Iterator[TextUnit | None], count: int) -> int:
    """Skip units that are translated already; returns their bytes."""
    return sum(unit.size for unit in islice((u for u in units if u is not None), count))


def _write_to_stdout(line: str, _: bool) -> None:
    sys.stdout.buffer.write(line.encode(errors="replace"))
    sys.stdout.buffer.flush()
