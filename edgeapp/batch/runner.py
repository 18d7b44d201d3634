"""Transcribes several recordings, one after the other, to files or to stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeapp.batch.outputs import check_no_collisions, output_names, write_atomically
from edgeapp.console import print_note
from edgeapp.exit_codes import MODEL, SOME_FAILED, print_error
from edgeapp.subtitles.formats import Transcript, render
from edgeapp.subtitles.word_cues import WordCueLayout
from pipelines import ModelError, OutputError

if TYPE_CHECKING:
    from edgeapp.batch.transcription_job import TranscriptionJob
    from edgeapp.model_pool import ModelPool
    from pipelines import TranscribeOptions, Transcriber, Translator

__all__ = ["TranscriptionRunner"]


@dataclass
class TranscriptionRunner:
    """Transcribes recordings and writes their results.

    Attributes:
        pool: Loads translators.
        transcriber: The speech recognition model.
        options: How to transcribe.
        target: Language to translate into, or None.
        translation_model: Name of the translation model; None chooses one by its languages.
        formats: Formats of the results; without any, plain text goes to stdout as it is decoded.
        folder: Folder for the results, which then have a format; None writes them to stdout.
        debug: Print tracebacks of errors.
        layout: Layout of srt and vtt subtitles by words.
    """

    pool: ModelPool
    transcriber: Transcriber
    options: TranscribeOptions
    target: str | None
    translation_model: str | None
    formats: tuple[str, ...]
    folder: Path | None
    debug: bool
    layout: WordCueLayout

    def run(self, inputs: list[str]) -> int:
        """Transcribe recordings in order. A recording that fails does not stop the others.

        Args:
            inputs: Paths; "-" is stdin.

        Returns:
            The exit code: 0, or the highest of the failed recordings.

        Raises:
            OptionError: Two results would have the same path.
            BrokenPipeError: The reader of stdout is gone.
        """
        code, failed = 0, 0
        names = output_names(inputs)
        if self.folder is not None:
            check_no_collisions(
                [path for n in names for _, _, path in self._output_files(self.folder, n)]
            )
        for source, name in zip(inputs, names, strict=True):
            try:
                self._transcribe(source, name, single=len(inputs) == 1)
            except BrokenPipeError:
                raise  # stdout is closed, for the remaining recordings too
            except Exception as error:  # a failed recording does not stop the remaining ones
                print_error(error, "stdin" if source == "-" else source, self.debug)
                failed += 1
                code = max(code, MODEL if isinstance(error, ModelError) else SOME_FAILED)
        if failed and len(inputs) > 1:
            print_note(f"{failed} of {len(inputs)} inputs failed")
        return code

    def _transcribe(self, source: str, name: str, *, single: bool) -> None:
        """Transcribe one recording and write its results.

        Args:
            source: Path; "-" is stdin.
            name: Base name of its results.
            single: It is the only recording, so that its name need not be printed.
        """
        from edgeapp.batch.progress import LiveTextView, ProgressBarView
        from edgeapp.batch.transcription_job import TranscriptionJob

        job = TranscriptionJob(
            self.transcriber,
            self.options,
            self._translator_for if self.target is not None else None,
            self.target,
        )
        audio: Any = sys.stdin.buffer if source == "-" else source
        if not single and self.folder is None:
            print_note(source)
        view = ProgressBarView(name) if self.formats else LiveTextView(timed=sys.stdout.isatty())
        try:
            with view:
                job.run(audio, view)
        except BrokenPipeError:
            raise
        except (KeyboardInterrupt, Exception):
            self._write_partial(job, name)
            raise
        self._write(job.transcript, name)

    def _output_files(self, folder: Path, name: str) -> Iterator[tuple[str, bool, Path]]:
        """All output files of a recording: (format, whether it is the translation, path).

        The JSON of a recording holds its translation too.
        """
        for fmt in self.formats:
            yield fmt, False, folder / f"{name}.{fmt}"
            if self.target is not None and fmt != "json":
                yield fmt, True, folder / f"{name}.{self.target}.{fmt}"

    def _translator_for(self, spoken: str) -> Translator:
        return self.pool.translator(self.translation_model, spoken, self.target)

    def _write(self, transcript: Transcript, name: str, suffix: str = "") -> None:
        """Write a transcript in all formats, to files with `suffix` or to stdout."""
        if self.folder is not None:
            for fmt, translated, path in self._output_files(self.folder, name):
                text = self._render(transcript, fmt, translated)
                write_atomically(path.with_name(path.name + suffix), text)
            return
        for fmt in self.formats:
            text = self._render(transcript, fmt, self.target is not None and fmt != "json")
            sys.stdout.write(text + "\n" if fmt == "json" else text)
            sys.stdout.flush()

    def _render(self, transcript: Transcript, fmt: str, translated: bool) -> str:
        """A transcript in one format; srt and vtt by words where the layout says so."""
        if self.layout.active and fmt in ("srt", "vtt") and not translated:
            cues = self.layout.cues(transcript.segments)  # type: ignore[arg-type]  # all Segments
            transcript = replace(transcript, segments=tuple(cues))
        return render(transcript, fmt, translated=translated)

    def _write_partial(self, job: TranscriptionJob, name: str) -> None:
        """After an error: write what was transcribed, to stdout or to files that end in .part."""
        if self.formats and job.transcript.segments:
            try:
                self._write(job.transcript, name, ".part")
            except OutputError as error:  # the first error is raised again by the caller
                print_note(str(error))
                return
            if self.folder is not None:
                print_note(
                    f"{name}: the first part is in {self.folder}, in files that end with .part"
                )
