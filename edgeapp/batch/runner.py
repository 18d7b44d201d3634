"""Transcribes several recordings, one after the other, to files or to stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeapp.batch.find_inputs import FoundInput
from edgeapp.batch.job_journal import Job, JobJournal, JobRecord, State
from edgeapp.batch.outputs import write_atomically
from edgeapp.batch.part_file import job_key
from edgeapp.batch.transcript_output import TranscriptOutput
from edgeapp.console import format_clock, print_note
from edgeapp.exit_codes import InputFailures
from edgeapp.subtitles.formats import Transcript, render
from edgeapp.subtitles.shaping import shaped
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle
from edgeapp.subtitles.word_cues import WordCueLayout
from pipelines import InputError, OutputError

if TYPE_CHECKING:
    from edgeapp.batch.progress import LiveTextView, ProgressBarView
    from edgeapp.batch.transcription_job import TranscriptionJob
    from edgeapp.model_pool import ModelPool
    from pipelines import TranscribeOptions, Transcriber, Translator

__all__ = ["Decision", "TranscriptionRunner"]


class Decision(Enum):
    """What a run does with a recording."""

    TRANSCRIBE = "transcribe"
    RESUME = "go on where an earlier run stopped"
    RETRY = "try again, it has failed"
    WRITE = "decoded already, write the files"
    SKIP_DONE = "done already"
    SKIP_OTHERS = "has not failed"


@dataclass
class TranscriptionRunner:
    """Transcribes recordings and writes their results.

    Attributes:
        pool: Loads translators.
        transcriber: The speech recognition model.
        options: How to transcribe.
        target: Language to translate into, or None.
        translation_model: Name of the translation model; None chooses one by its languages.
        output: Where the results go.
        debug: Print tracebacks of errors.
        layout: Layout of srt and vtt subtitles by words.
        verbose: True: text with its times goes to stdout as it is decoded, beside files too.
            False: text without times, when it is final. None: text on stdout, with times on a
            terminal; none beside files.
        pretty_json: Indent JSON.
        journal: Where finished work is kept, so that a run that was ended goes on; for results in
            files. None: nowhere.
        overwrite: Do again what is done.
        retry_failed: Do only what has failed.
        style: Rules of srt and vtt subtitles. None: one cue for each segment, as openai-whisper
            writes.
    """

    pool: ModelPool
    transcriber: Transcriber
    options: TranscribeOptions
    target: str | None
    translation_model: str | None
    output: TranscriptOutput
    debug: bool
    layout: WordCueLayout
    verbose: bool | None = None
    pretty_json: bool = False
    journal: JobJournal | None = None
    overwrite: bool = False
    retry_failed: bool = False
    style: SubtitleStyle | None = DEFAULT_STYLE

    def run(self, inputs: Sequence[FoundInput]) -> int:
        """Transcribe recordings in order. A recording that fails does not stop the others.

        Args:
            inputs: The recordings.

        Returns:
            The exit code: 0, or the highest of the failed recordings.

        Raises:
            BrokenPipeError: The reader of stdout is gone.
        """
        failures = InputFailures(len(inputs), self.debug)
        for found, name in zip(inputs, self.output.names, strict=True):
            with failures.catch(found.path):
                if found.problem is not None:
                    raise InputError(found.problem)
                self._journaled(found.path, name, single=len(inputs) == 1)
        return failures.exit_code()

    def plan(self, inputs: Sequence[FoundInput]) -> Iterator[str]:
        """What `run` would do, one line for each recording."""
        for found, name in zip(inputs, self.output.names, strict=True):
            if found.problem is not None:
                yield found.problem
                continue
            source, record = found.path, None
            if self.journal is not None and source != "-" and Path(source).is_file():
                record = self.journal.record(self._key(source))
            yield f"{source}: {self._decision(record, source, name).value}"

    def _has_failed(self, record: JobRecord | None, source: str) -> bool:
        """Whether a recording has failed, or another one with its name, which may be mended now."""
        if record is not None:
            return record.state is State.FAILED
        assert self.journal is not None, "--retry-failed needs it"
        return any(r.input == source and r.state is State.FAILED for r in self.journal.records())

    def _decision(self, record: JobRecord | None, source: str, name: str) -> Decision:
        """What to do with a recording of which the journal has a record, or none."""
        if self.retry_failed and not self._has_failed(record, source):
            return Decision.SKIP_OTHERS
        if record is None or self.overwrite:
            return Decision.TRANSCRIBE
        if record.state is State.DONE:
            wanted = {str(path.absolute()): how for path, how in self._renderings(name).items()}
            if wanted.items() <= record.outputs.items() and all(map(os.path.exists, wanted)):
                return Decision.SKIP_DONE
            return Decision.WRITE
        if record.state is State.FAILED:
            return Decision.RETRY
        return Decision.RESUME

    def _renderings(self, name: str) -> dict[Path, str]:
        """The files of a recording, each with how it is rendered."""
        style = None if self.style is None else self.style.name
        how = [asdict(self.layout), style, self.pretty_json]
        return {
            file.path: json.dumps([file.format, file.translated, *how])
            for file in self.output.files(name)
        }

    def _key(self, source: str) -> str:
        """The key of a recording's job: its content, the models, and the options that matter."""
        from pipelines import TranscribeOptions, __version__

        default, options = asdict(TranscribeOptions()), asdict(self.options)
        del options["priority"], options["batch_size"]
        return job_key(
            Path(source),
            verb="transcribe",
            version=__version__,
            model=str(self.transcriber.model.folder),
            compute_type=self.transcriber.model.compute_type,
            options=json.dumps({k: v for k, v in options.items() if v != default[k]}),
            in_chunks=self.options.batch_size > 1,
            target=self.target,
            translation_model=self.translation_model or self.pool.settings.translation_model,
        )

    def _journaled(self, source: str, name: str, *, single: bool) -> None:
        """Transcribe one recording, from where an earlier run stopped."""
        if self.journal is None or source == "-" or not Path(source).is_file():
            if not self.retry_failed:
                self._transcribe(source, name, None, single=single)
            return
        key = self._key(source)
        decision = self._decision(self.journal.record(key), source, name)
        if decision in (Decision.SKIP_DONE, Decision.SKIP_OTHERS):
            if decision is Decision.SKIP_DONE:
                print_note(f"{source}: {decision.value}; --overwrite does it again")
            return
        model = self.transcriber.recognizer.capabilities.name
        with self.journal.job(key, "transcribe", source, model) as job:
            if job is None:
                raise InputError(f"{source}: another run is at it")
            if self.overwrite:
                job.forget()
            if decision in (Decision.RESUME, Decision.RETRY) and job.pieces:
                ends = [s.end for piece in job.pieces for s in piece.segments]
                print_note(f"{source}: resuming at {format_clock(max(ends, default=0.0))}")
            self._transcribe(source, name, job, single=single)

    def _transcribe(self, source: str, name: str, entry: Job | None, *, single: bool) -> None:
        """Transcribe one recording and write its results.

        Args:
            source: Path; "-" is stdin.
            name: Base name of its results.
            entry: The journal's entry, or None.
            single: It is the only recording, so that its name need not be printed.
        """
        from edgeapp.batch.transcription_job import TranscriptionJob

        job = TranscriptionJob(
            self.transcriber,
            self.options,
            self._translator_for if self.target is not None else None,
            self.target,
            pieces=() if entry is None else tuple(entry.pieces),
            keep=None if entry is None else entry.add,
        )
        if entry is not None:
            entry.running()
        audio: Any = sys.stdin.buffer if source == "-" else source
        if not single and self.output.folder is None:
            print_note(source)
        view = self._view(name)
        try:
            with view:
                job.run(audio, view)
        except BrokenPipeError:
            raise
        except (KeyboardInterrupt, Exception) as error:
            if entry is not None:
                entry.stopped(job.duration, error)
            self._write_partial(job, name)
            raise
        try:
            self._write(job.transcript, name)
        except OutputError as error:
            if entry is not None:
                entry.stopped(job.duration, error)
            raise
        if entry is not None:
            entry.done(job.duration, self._renderings(name))

    def _view(self, name: str) -> LiveTextView | ProgressBarView:
        """Text as it is decoded, or a progress bar where stdout is for results in a format."""
        from edgeapp.batch.progress import LiveTextView, ProgressBarView

        to_stdout = self.output.folder is None
        terminal = sys.stdout.isatty()
        if to_stdout and self.output.formats:
            return ProgressBarView(name)
        if to_stdout:
            timed = terminal if self.verbose is None else self.verbose
            return LiveTextView(timed=timed, provisional=self.verbose is not False)
        return LiveTextView(timed=True) if self.verbose else ProgressBarView(name)

    def _translator_for(self, spoken: str) -> Translator:
        return self.pool.translator(self.translation_model, spoken, self.target)

    def _write(self, transcript: Transcript, name: str, suffix: str = "") -> None:
        """Write a transcript in all formats, to files with `suffix` or to stdout."""
        if self.output.folder is not None:
            for file in self.output.files(name):
                text = self._render(transcript, file.format, file.translated)
                write_atomically(file.path.with_name(file.path.name + suffix), text)
                if not suffix:  # what an interrupted run has left
                    file.path.with_name(file.path.name + ".part").unlink(missing_ok=True)
            return
        for fmt in self.output.formats:
            text = self._render(transcript, fmt, translated=False)
            sys.stdout.write(text + "\n" if fmt == "json" else text)
            sys.stdout.flush()

    def _render(self, transcript: Transcript, fmt: str, translated: bool) -> str:
        """A transcript in one format: srt and vtt as openai-whisper's layout says if one is
        given, else in a style."""
        if fmt in ("srt", "vtt"):
            if self.layout.active and not translated:
                cues = self.layout.cues(transcript.segments)  # type: ignore[arg-type]  # Segments
                transcript = replace(transcript, segments=tuple(cues))
            elif self.style is not None and not self.layout.active:
                transcript = shaped(transcript, self.style)
        return render(transcript, fmt, translated=translated, pretty=self.pretty_json)

    def _write_partial(self, job: TranscriptionJob, name: str) -> None:
        """After an error: write what was transcribed, to stdout or to files that end in .part."""
        if self.output.formats and job.transcript.segments:
            try:
                self._write(job.transcript, name, ".part")
            except OutputError as error:  # the first error is raised again by the caller
                print_note(str(error))
                return
            if (folder := self.output.folder) is not None:
                print_note(
                    f"{name}: what was finished is in {folder}, in files that end with .part"
                )
