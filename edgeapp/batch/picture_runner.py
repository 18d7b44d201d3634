"""Reads pictures, one after the other, to stdout or to files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from edgeapp.batch.find_inputs import FoundInput
from edgeapp.batch.journal.job_journal import Origin
from edgeapp.batch.outputs import output_names, prepare_folder
from edgeapp.batch.result_writer import ResultWriter
from edgeapp.batch.run_progress import ProgressOutput, RunProgress
from edgeapp.console import print_note
from edgeapp.exit_codes import InputFailures
from pipelines import InputError

if TYPE_CHECKING:
    from pipelines import Reader, ReadOptions, Translator
    from pipelines.reading import PictureText

__all__ = ["PictureRunner"]

_STDIN_BYTES = 256 << 20  # the library refuses larger pictures


@dataclass(frozen=True)
class PictureRunner:
    """Reads pictures and writes their text.

    Attributes:
        reader: The model.
        options: How to read.
        translator: Translates the text, or None.
        target: The language code of the translation, which names its file.
        format: "text", or "json" with the score and the place of each line.
        folder: Where files are written; None for stdout.
        writer: Writes the files.
        debug: Print tracebacks of errors.
    """

    reader: Reader
    options: ReadOptions
    translator: Translator | None = None
    target: str | None = None
    format: Literal["text", "json"] = "text"
    folder: Path | None = None
    writer: ResultWriter = field(default_factory=ResultWriter)
    debug: bool = False

    def run(self, inputs: Sequence[FoundInput]) -> int:
        """Read pictures in order. One that fails does not stop the others, and one whose text
        is there already is skipped, so that a run that was ended goes on.

        Returns:
            The exit code: 0, or the highest of the failed pictures.
        """
        if self.folder is not None:
            prepare_folder(self.folder)
        failures = InputFailures(len(inputs), self.debug)
        paths = [found.path for found in inputs]
        # On stdout the text is progress enough.
        shown = ProgressOutput.NONE if self.folder is None else ProgressOutput.TERMINAL
        with RunProgress(paths, "lines", shown) as progress:
            for found, name in zip(inputs, output_names(paths), strict=True):
                with failures.catch(found.path), progress.file(found.path):
                    if found.problem is not None:
                        raise InputError(found.problem)
                    if self.folder is None and self.format == "text" and len(inputs) > 1:
                        print_note(f"{found.path}:")
                    self._read(found.path, found.name or name, progress)
        return failures.exit_code(counted=progress.summarizes)

    def _read(self, path: str, name: str, progress: RunProgress) -> None:
        files = self._files(name)
        writer = self.writer.of(Origin.of(path, path))
        missing = [file for file in files if not writer.is_done(file)]
        if files and not missing:
            progress.skip(f"{files[0]} exists already")
            print_note(f"{path}: skipped, for {files[0]} exists already; --overwrite replaces it")
            return
        if files:
            files[0].parent.mkdir(parents=True, exist_ok=True)
        with writer.reserve(missing):
            contents = self._contents(path, progress, to_files=bool(files))
            for file, content in zip(files, contents, strict=False):
                if file in missing:  # the other is of a run that was ended between the two
                    writer.write(file, content)

    def _contents(self, path: str, progress: RunProgress, *, to_files: bool) -> tuple[str, str]:
        """Read a picture; return its text and the translation as they are written to files."""
        text = self._text(path, progress)
        if not text.lines:
            print_note(f"{path}: no text was found")
        translation = self._translation(text)
        if self.format == "json":
            content = json.dumps(self._record(path, text, translation), ensure_ascii=False) + "\n"
            if not to_files:
                typer.echo(content, nl=False)
        else:
            content = text.text + "\n"
            if not to_files and translation is not None:
                typer.echo(f"\n{translation}")
        return content, f"{translation}\n"

    def _files(self, name: str) -> list[Path]:
        """The files of a picture: its text, and the translation."""
        if self.folder is None:
            return []
        suffixes = [".json"] if self.format == "json" else [".txt"]
        if self.translator is not None and self.format == "text":
            suffixes.append(f".{self.target}.txt")
        return [self.folder / f"{name}{suffix}" for suffix in suffixes]

    def _text(self, path: str, progress: RunProgress) -> PictureText:
        """Read a picture; lines of text on stdout appear as they are decoded."""
        from pipelines.reading import LineDelta, LineDone, LinesFound, PictureText

        source = sys.stdin.buffer.read(_STDIN_BYTES + 1) if path == "-" else path
        shows = self.folder is None and self.format == "text"
        live = shows and sys.stdout.isatty()
        lines, shown = [], ""
        for event in self.reader.stream(source, self.options):
            if isinstance(event, LinesFound):
                progress.total(len(event.boxes))
            elif isinstance(event, LineDelta) and live:
                shown += event.text
                typer.echo(event.text, nl=False)
            elif isinstance(event, LineDone):
                lines.append(event.line)
                progress.advance(1, lines=1)
                if shows:
                    typer.echo(event.line.text.removeprefix(shown))
                shown = ""
        return PictureText(tuple(lines))

    def _translation(self, text: PictureText) -> str | None:
        """The translation of all lines as one text: sentences go over the ends of lines."""
        if self.translator is None:
            return None
        return self.translator.translate(" ".join(text.text.split())).text

    def _record(self, path: str, text: PictureText, translation: str | None) -> dict[str, Any]:
        lines = [
            {
                "text": line.text,
                "score": round(line.score, 4),
                "box": line.box,
                "complete": line.complete,
            }
            for line in text.lines
        ]
        record: dict[str, Any] = {"file": path, "text": text.text, "lines": lines}
        return record if translation is None else record | {"translation": translation}
