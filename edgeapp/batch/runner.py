"""Recordings, one after the other: each to its files, or to stdout."""

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
    from pipelines import TranscribeOptions, Transcriber

__all__ = ["TranscriptionRunner"]


@dataclass
class TranscriptionRunner:
    """What to do with recordings. target: the language to translate into, or None. formats: of
    what is written, to `folder` or, where that is None, to stdout; none: plain text as it comes."""

    pool: ModelPool
    recogniser: Transcriber
    options: TranscribeOptions
    target: str | None
    translation_model: str | None
    formats: tuple[str, ...]
    folder: Path | None
    debug: bool
    layout: WordCueLayout

    def run(self, inputs: list[str]) -> int:
        """All recordings, one after the other; a failed one does not stop the rest."""
        code, failed = 0, 0
        names = output_names(inputs)
        if self.folder is not None:
            check_no_collisions(
                [path for n in names for _, _, path in self._places(self.folder, n)]
            )
        for source, name in zip(inputs, names, strict=True):
            try:
                self._one(source, name, alone=len(inputs) == 1)
            except BrokenPipeError:
                raise  # whoever read the results is gone, for all inputs
            except Exception as error:  # whatever it is, the other recordings are done
                print_error(error, "stdin" if source == "-" else source, self.debug)
                failed += 1
                code = max(code, MODEL if isinstance(error, ModelError) else SOME_FAILED)
        if failed and len(inputs) > 1:
            print_note(f"{failed} of {len(inputs)} inputs failed")
        return code

    def _one(self, source: str, name: str, *, alone: bool) -> None:
        from edgeapp.batch.progress import LiveTextView, ProgressBarView
        from edgeapp.batch.transcription_job import TranscriptionJob

        captions = TranscriptionJob(
            self.recogniser,
            self.options,
            self._translator if self.target is not None else None,
            self.target,
        )
        audio: Any = sys.stdin.buffer if source == "-" else source
        to_files, to_stdout = self.folder is not None, bool(self.formats)
        if not alone and not to_files:
            print_note(source)
        live = not to_stdout and (not to_files or sys.stdout.isatty())
        view = LiveTextView(timed=sys.stdout.isatty()) if live else ProgressBarView(name)
        try:
            with view:
                captions.run(audio, view)
        except BrokenPipeError:
            raise
        except (KeyboardInterrupt, Exception):
            self._keep(captions, name)
            raise
        self._deliver(captions.transcript, name)

    def _places(self, folder: Path, name: str) -> Iterator[tuple[str, bool, Path]]:
        """(format, whether it is the translation, file) for all that a recording leaves there."""
        for fmt in self.formats:
            yield fmt, False, folder / f"{name}.{fmt}"
            if self.target is not None and fmt != "json":
                yield fmt, True, folder / f"{name}.{self.target}.{fmt}"

    def _translator(self, spoken: str) -> Any:
        return self.pool.translator(self.translation_model, spoken, self.target)

    def _deliver(self, transcript: Transcript, name: str, suffix: str = "") -> None:
        if self.folder is not None:
            for fmt, translated, path in self._places(self.folder, name):
                text = self._render(transcript, fmt, translated)
                write_atomically(path.with_name(path.name + suffix), text)
            return
        for fmt in self.formats:
            text = self._render(transcript, fmt, self.target is not None and fmt != "json")
            sys.stdout.write(text + "\n" if fmt == "json" else text)
            sys.stdout.flush()

    def _render(self, transcript: Transcript, fmt: str, translated: bool) -> str:
        """Subtitles by word where they were asked for."""
        if self.layout.asked and fmt in ("srt", "vtt") and not translated:
            cues = self.layout.cues(transcript.segments)  # type: ignore[arg-type]  # recognised
            transcript = replace(transcript, segments=tuple(cues))
        return render(transcript, fmt, translated=translated)

    def _keep(self, captions: TranscriptionJob, name: str) -> None:
        """Broken off: what has been heard so far is worth keeping, but not under the full name."""
        if self.formats and captions.transcript.segments:
            try:
                self._deliver(captions.transcript, name, ".part")
            except OutputError as error:  # beside that which ended it, which is reported
                print_note(str(error))
                return
            if self.folder is not None:
                print_note(
                    f"{name}: the first part is in {self.folder}, in files that end with .part"
                )
