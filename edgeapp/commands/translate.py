"""`edgeapp translate`: text → text, a line for each line."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Protocol

import typer

from edgeapp.batch.inputs import TextUnit, read_units
from edgeapp.batch.line_formats import WRITERS
from edgeapp.batch.outputs import check_no_collisions, output_names, prepare_folder
from edgeapp.batch.part_file import PartFile, job_key
from edgeapp.commands.options import ComputeType, Debug, Device, Model, Threads, chosen
from edgeapp.console import print_note, progress
from edgeapp.exit_codes import DONE, exit_code_of, exit_with_code, print_error
from pipelines import InputError, NumericalError, OptionError

if TYPE_CHECKING:
    from pipelines import TranslateOptions, Translation, Translator

__all__ = ["translate"]

# A file with a zero byte in its first part is no text, whatever it is called.
_LOOK_AT = 8192


class _Format(StrEnum):
    TEXT = "text"
    TSV = "tsv"
    JSON = "json"


def translate(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Text files; none or - is stdin."),
    ] = None,
    model: Model = None,
    source: Annotated[
        str | None, typer.Option("-f", "--from", help="The language of the text: en.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "-t", "--to", help="The language to translate into: de; or a model's zho_Hant."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="A file; for several inputs a folder (talk.de.txt)."),
    ] = None,
    document: Annotated[
        bool, typer.Option("--document", help="Join wrapped lines into paragraphs, a line each.")
    ] = False,
    beam_size: Annotated[
        int, typer.Option("--beam-size", help="Beams; 1 is greedy, which is faster.")
    ] = 1,
    format: Annotated[
        _Format,
        typer.Option(
            "--format", help="text; tsv: source, tab, translation; json: an object a line."
        ),
    ] = _Format.TEXT,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Add which word comes from which, as pairs of numbers: 0-0 1-2 (after ||| in "
            "text; words are what spaces separate).",
        ),
    ] = False,
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Write only with pieces of the target language's own vocabulary: faster, where "
            "a model has one of each language.",
        ),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            min=1,
            help="Processes side by side, each with a copy of the model and a share of the "
            "threads: for long files on a CPU.",
        ),
    ] = 1,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Translate text: exactly one line out for each line in, in every format.

    Each line is written as soon as it and those before it are done. With -o, a run that was
    interrupted leaves its lines in a file that ends with .part; the same command goes on there,
    where it reads files.
    """
    with exit_with_code(debug):
        inputs = files or ["-"]
        names = _outputs(inputs, output)
        settings = chosen(device, compute_type, threads)
        if inputs == ["-"] and sys.stdin.isatty():
            print_note("reading from the terminal; Ctrl-D ends")
        from edgeapp.model_pool import ModelPool, language_code_of
        from pipelines import TranslateOptions

        spoken, wanted = source and language_code_of(source), target and language_code_of(target)
        translator = ModelPool(settings).translator(model, spoken, wanted, shortlist)
        source, target = _in_full(source, spoken), _in_full(target, wanted)
        several = bool(translator.target_codes)
        options = TranslateOptions(
            target=target if several else None,
            source_language=source,
            beam_size=beam_size,
            word_alignments=alignments,
        )
        suffix = target or translator.target_language or "translated"
        try:
            translator.translate_lines([], options)  # fail before any output is written
        except OptionError as error:
            if source is None and translator.source_codes:
                raise OptionError(f"{error}; --from names it") from error
            raise
        targets = [None if place is None else place(suffix) for place in names]
        check_no_collisions([path for path in targets if path is not None], inputs)
        code = DONE
        with _able(translator, workers) as able:
            for name, path in zip(inputs, targets, strict=True):
                job = _Job(able, translator, options, name, document, WRITERS[format.value])
                try:
                    job.run(path)
                except BrokenPipeError:
                    raise  # whoever read the results is gone, for all inputs
                except Exception as error:  # whatever it is, the other inputs are done
                    print_error(error, "stdin" if name == "-" else name, debug)
                    code = max(code, exit_code_of(error))
        raise typer.Exit(code)


@contextmanager
def _able(translator: Translator, workers: int) -> Iterator[_Able]:
    """Who translates lines: the translator itself, or several processes. Raises OptionError."""
    if workers == 1:
        yield translator
        return
    from pipelines import ParallelTranslator

    share = max(1, translator.engine.threads // workers)
    with ParallelTranslator(translator, workers, share) as crew:
        yield crew


def _in_full(typed: str | None, code: str | None) -> str | None:
    """The code of a language, with the region or script that was typed with it ("zho_Hant")."""
    if typed is None or code is None or not set("-_") & set(typed.strip()):
        return code
    return typed.strip()


def _outputs(inputs: list[str], output: str | None) -> list[Callable[[str], Path] | None]:
    """For each input where its lines go, as soon as the language is known; None: stdout.

    Raises OptionError, OutputError.
    """
    if output is None:
        if len(inputs) > 1:
            raise OptionError("several files need a folder to write to: -o FOLDER")
        return [None]
    place = Path(output)
    if len(inputs) == 1 and not place.is_dir() and not output.endswith(("/", os.sep)):
        prepare_folder(place.parent)
        check_no_collisions([place], inputs)
        return [lambda _: place]
    prepare_folder(place)
    endings = [Path(name).suffix or ".txt" if name != "-" else ".txt" for name in inputs]
    return [
        partial(_named, place, name.removesuffix(end), end)
        for name, end in zip(output_names(inputs), endings, strict=True)
    ]


def _named(folder: Path, stem: str, end: str, language: str) -> Path:
    return folder / f"{stem}.{language}{end}"


class _Able(Protocol):
    def translate_lines(
        self, lines: Iterable[str | None], options: TranslateOptions | None = None
    ) -> Iterator[Translation]: ...


@dataclass
class _Job:
    """One input on its way to its output."""

    able: _Able
    translator: Translator
    options: TranslateOptions
    name: str
    document: bool
    written: Callable[[Translation], str]

    def run(self, target: Path | None) -> None:
        """Raises InputError, OutputError, NumericalError."""
        with ExitStack() as stack:
            source, size = self._open(stack)  # size: None where it can be read once only
            units = read_units(source, document=self.document)
            if target is None:
                self._translate(units, _to_stdout, size, 0)
                return
            part = stack.enter_context(PartFile(target, self._key() if size is not None else None))
            if part.done:
                print_note(f"{target}: going on after the {part.done} lines that are there")
            read = 0
            for unit in islice((u for u in units if u is not None), part.done):
                read += unit.size
            try:
                self._translate(units, part.write, size, read)
            except (KeyboardInterrupt, Exception):
                if part.part.stat().st_size:
                    goes_on = "" if size is None else "; the same command goes on there"
                    print_note(f"the lines done are in {part.part}{goes_on}")
                raise
            part.finish()

    def _open(self, stack: ExitStack) -> tuple[BinaryIO, int | None]:
        if self.name == "-":
            return sys.stdin.buffer, None
        path = Path(self.name)
        try:
            file = stack.enter_context(path.open("rb", buffering=0))
            if not file.seekable():
                return file, None
            if b"\0" in file.read(_LOOK_AT):
                raise InputError(f"{path} holds binary data, not UTF-8 text")
            file.seek(0)
            return file, path.stat().st_size
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error

    def _key(self) -> str:
        return job_key(
            Path(self.name),
            model=self.translator.model.folder,
            compute_type=self.translator.model.compute_type,
            options=self.options,
            document=self.document,
            format=self.written.__name__,
        )

    def _translate(
        self,
        units: Iterator[TextUnit | None],
        write: Callable[[str], None],
        size: int | None,
        read: int,
    ) -> None:
        shown = write is not _to_stdout or not sys.stdout.isatty()
        with progress(shown=shown and size is not None) as bar:
            task = bar.add_task(self.name, total=size, completed=read)
            for unit, translation in self._pairs(units):
                write(self.written(translation) + unit.ending)
                for warning in translation.warnings:
                    print_note(f"{self._where(unit)}: {warning}")
                bar.advance(task, unit.size)

    def _pairs(self, units: Iterator[TextUnit | None]) -> Iterator[tuple[TextUnit, Translation]]:
        asked: deque[TextUnit] = deque()

        def texts() -> Iterator[str | None]:
            try:
                for unit in units:
                    if unit is None:
                        yield None
                        continue
                    if unit.damaged:
                        print_note(f"{self._where(unit)}: bytes that are not UTF-8 were replaced")
                    asked.append(unit)
                    yield unit.text
            except OSError as error:
                raise InputError(f"{self.name} cannot be read on: {error.strerror}") from error

        try:
            for translation in self.able.translate_lines(texts(), self.options):
                yield asked.popleft(), translation
        except NumericalError as error:
            if self.able is not self.translator:  # of several processes, not the next line's
                raise
            raise NumericalError(f"{self._where(asked[0])}: {error}") from error

    def _where(self, unit: TextUnit) -> str:
        return f"{'stdin' if self.name == '-' else self.name}, line {unit.number}"


def _to_stdout(line: str) -> None:
    sys.stdout.buffer.write(line.encode(errors="replace"))
    sys.stdout.buffer.flush()
