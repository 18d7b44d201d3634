"""Transcribes several recordings, one after the other, to files or to stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from edgeapp.batch.find_inputs import FoundInput
from edgeapp.batch.journal.decisions import Decision, JobPolicy
from edgeapp.batch.journal.downloads import download_plan, present
from edgeapp.batch.journal.job_journal import Job, JobRecord, Origin, State
from edgeapp.batch.journal.pieces import TranscriptPiece
from edgeapp.batch.recordings.sound_prefetch import SoundPrefetch, SoundStream
from edgeapp.batch.recordings.transcript_output import TranscriptOutput
from edgeapp.batch.result_writer import ResultWriter
from edgeapp.batch.run_progress import FileOutcome, ProgressOutput, RunProgress
from edgeapp.console import format_clock, print_draft_report, print_note
from edgeapp.documents.transcript_formats import FORMATS, render
from edgeapp.english_only import english_only_note
from edgeapp.exit_codes import InputFailures
from edgeapp.file_names import beside
from edgeapp.subtitles.shaping import TimedWord, shape_with_words, shaped, timed_words
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle
from edgeapp.subtitles.word_cues import WordCueLayout
from pipelines import EdgeError, InputError, OutputError
from pipelines.subtitles import Cue, Transcript, karaoke

if TYPE_CHECKING:
    from edgeapp.batch.recordings.progress import LiveTextView, ProgressBarView
    from edgeapp.batch.recordings.transcription_job import TranscriptionJob
    from edgeapp.model_pool import ModelPool
    from pipelines import Segment, TranscribeOptions, Transcriber, Translator

__all__ = ["FileOutcome", "TranscriptionRunner", "TranslatorSource"]

_MIN_RESULT_BYTES = 1 << 20  # of each file of results
_LONG_BYTES = 10 << 20  # of a recording whose decoding takes seconds
_AUDIO_PER_TEXT = 20  # bytes of compressed sound at 1 kB/s for a byte of text with word times


class TranslatorSource(Protocol):
    """A ModelPool, or the machines of a cluster."""

    def translator(self, name: str | None, source: str, target: str) -> Translator: ...


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
            terminal; none beside files. True also reports what drafts did, on stderr.
        pretty_json: Indent JSON.
        policy: How earlier runs are treated; for results in files.
        events: Print the progress as JSON lines on stdout.
        translators: The machines of a cluster, which load translators instead of `pool`.
        in_pieces: All machines of the cluster share each recording.
        style: Rules of srt and vtt subtitles. None: one cue for each segment, as openai-whisper
            writes.
        computes_words: Compute the times of words where subtitles have a style and the model
            gives such times. False: estimate them by the length of the words.
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
    policy: JobPolicy = field(default_factory=JobPolicy)
    style: SubtitleStyle | None = DEFAULT_STYLE
    events: bool = False
    translators: TranslatorSource | None = None
    in_pieces: bool = False
    computes_words: bool = True

    def __post_init__(self) -> None:
        if self._computes_words and any(map(self._is_made_of_words, self.output.formats)):
            self.options = replace(self.options, word_timestamps=True)
        self._told_language = False
        self._progress, self._sounds = RunProgress(), SoundPrefetch()
        self._following: Mapping[str, str] = {}
        self._writer = ResultWriter(self.policy.journal, self.policy.overwrite)

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
        self._following = self._next_to_decode(inputs)
        names = [found.shown for found in inputs]
        run = RunProgress(names, "audio", self.progress_output, name_done=self.policy.name_done)
        with SoundPrefetch(self._in_blocks) as self._sounds, run as self._progress:
            for found, name in zip(inputs, self.output.names, strict=True):
                with failures.catch(found.shown), self._progress.file(found.shown):
                    self._obtain(found, name, single=len(inputs) == 1)
        if self.verbose:
            print_draft_report(self.transcriber.draft_report)
        return failures.exit_code(counted=run.summarizes)

    @property
    def _is_remote(self) -> bool:
        """Whether the machines of a cluster do the work."""
        return self.translators is not None

    @property
    def _in_blocks(self) -> bool:
        """Whether recordings are recognized as far as their sound is decoded."""
        return self.options.in_chunks and self._decodes_sound

    @property
    def _decodes_sound(self) -> bool:
        """Whether the sound of recordings is decoded here."""
        return self.in_pieces or not self._is_remote

    @property
    def progress_output(self) -> ProgressOutput:
        """Where the progress is shown: not where the text is."""
        if self.events:
            return ProgressOutput.EVENTS
        to_stdout = self.output.folder is None
        if not self.output.formats or (self.verbose and not to_stdout):
            return ProgressOutput.NONE
        if to_stdout and not sys.stderr.isatty():  # notes are for results in files
            return ProgressOutput.NONE
        return ProgressOutput.TERMINAL

    def run_one(self, found: FoundInput, name: str) -> FileOutcome:
        """Transcribe one recording of several, to files; for runs that share a journal.

        Args:
            found: The recording.
            name: Base name of its results.

        Raises:
            EdgeError: It failed.
        """
        with SoundPrefetch(self._in_blocks) as self._sounds:
            self._obtain(found, name, single=False)
        return self._progress.outcome

    def _obtain(self, found: FoundInput, name: str, *, single: bool) -> None:
        """Transcribe one recording, which may have to be downloaded first."""
        if found.problem is not None:
            raise InputError(found.problem)
        with present(found, "transcribe", self.policy) as skipped:
            if skipped is not None:
                self._progress.skip(skipped.value)
            else:
                self._journaled(found, name, single=single)

    def _next_to_decode(self, inputs: Sequence[FoundInput]) -> Mapping[str, str]:
        """For each recording the next one that probably has to be decoded."""
        journal = self.policy.journal
        done = set[str]()
        if journal is not None and not self.policy.overwrite:
            done = journal.inputs(State.DONE)
        paths = [each.path for each in inputs if each.problem is None and each.path != "-"]
        paths = [path for path in paths if path not in done and Path(path).is_file()]
        return dict(pairwise(paths))

    def plan(self, inputs: Sequence[FoundInput]) -> Iterator[str]:
        """What `run` would do, one line for each recording."""
        for found, name in zip(inputs, self.output.names, strict=True):
            if found.problem is not None:
                yield found.problem
                continue
            if found.remote is not None:
                yield download_plan(found, "transcribe", self.policy)
                continue
            source, record, journal = found.path, None, self.policy.journal
            if journal is not None and source != "-" and Path(source).is_file():
                record = journal.record(self._key(source))
            decision = self._decision(record, source, name)
            writer = self._writer_for(found)
            files = _with_parts(self._renderings(name))
            yield writer.plan(source, decision, "transcribe", files)

    def _decision(self, record: JobRecord | None, source: str, name: str) -> Decision:
        """What to do with a recording of which the journal has a record, or none."""
        if record is not None and self._is_outdated(record):
            record = None
        return self.policy.decide(record, source, self._renderings(name))

    def _is_outdated(self, record: JobRecord) -> bool:
        """Whether its translation is by another model than would be chosen now."""
        from pipelines.hub import choose_default, resolve

        chosen = record.choices
        if "translator" not in chosen or self.translators is not None:
            return False  # folders on other machines have other paths
        try:
            if self.translation_model is not None:
                model = resolve(self.translation_model)
            else:
                preferred = self.pool.settings.translation_model
                model = choose_default(
                    "translation", chosen["spoken"], self.target, preferred=preferred
                )
        except EdgeError:  # it is said where the model is needed
            return False
        return str(model.folder.resolve()) != chosen["translator"]

    def _renderings(self, name: str) -> dict[Path, str]:
        """The files of a recording, each with how it is rendered."""
        style = None if self.style is None else self.style.name
        how = [asdict(self.layout), style, self.pretty_json, self.output.bilingual]
        return {
            file.path: json.dumps([file.format, file.translated, *how])
            for file in self.output.files(name)
        }

    @property
    def _computes_words(self) -> bool:
        """Whether results that are made of words get their computed times.

        A translation into English has none, because its words do not follow the speech.
        """
        return (
            self.computes_words
            and self.options.task == "transcribe"
            and self.transcriber.capabilities.word_timestamps
        )

    def _is_made_of_words(self, name: str) -> bool:
        """Whether a format is: a list of words, or subtitles that are shaped."""
        form = FORMATS[name]
        shaped = self.style is not None or self.output.bilingual
        return form.needs_words or (form.is_subtitle and shaped)

    def _key(self, source: str) -> str:
        """Return the key of a recording's job.

        A run that needs no times of words takes what was decoded for subtitles, if it is complete.
        """
        key, journal = self._key_of(source, self.options), self.policy.journal
        if (
            journal is None
            or self.policy.overwrite
            or self.options.word_timestamps
            or not self._computes_words
            or (self.style is None and not self.output.bilingual)
            or "json" in self.output.formats  # It has the words that were asked for.
            or journal.record(key) is not None
        ):
            return key
        of_subtitles = self._key_of(source, replace(self.options, word_timestamps=True))
        record = journal.record(of_subtitles)
        done = record is not None and record.state is State.DONE and not self._is_outdated(record)
        return of_subtitles if done else key

    def _key_of(self, source: str, chosen: TranscribeOptions) -> str:
        """Return the key of a job: its content, the models, and the options that matter.

        The model that translates is chosen by the spoken language, which may not be known yet: it
        stands among the job's choices.
        """
        from pipelines import TranscribeOptions, __version__
        from pipelines.asr import WINDOW_VAD

        default, options = asdict(TranscribeOptions()), asdict(chosen)
        if chosen.vad_filter and not chosen.in_chunks:
            # These defaults have changed: a job of an earlier version has other speech.
            options["vad_parameters"] = asdict(chosen.vad.over(WINDOW_VAD))
        del options["priority"], options["batch_size"]
        return self._writer.digests.job_key(
            Path(source),
            verb="transcribe",
            version=__version__,
            model=str(self.transcriber.model.folder),
            compute_type=self.transcriber.model.compute_type,
            options=json.dumps({k: v for k, v in options.items() if v != default[k]}),
            in_chunks=chosen.in_chunks,
            target=self.target,
            translation_model=self.translation_model or self.pool.settings.translation_model,
        )

    def _journaled(self, found: FoundInput, name: str, *, single: bool) -> None:
        """Transcribe one recording, from where an earlier run stopped."""
        source, shown = found.path, found.shown
        files = self._renderings(name)
        journal, writer = self.policy.journal, self._writer_for(found)
        if journal is None or source == "-" or not Path(source).is_file():
            if not self.policy.retry_failed:
                with writer.reserve(_with_parts(files)):
                    self._check_space(source, files)
                    self._transcribe(found, name, None, single=single)
            return
        key = self._key(source)
        decision = self._decision(journal.record(key), shown, name)
        if decision is Decision.SKIP_DONE:
            writer.check(files, done=True)  # A result that was edited is not called done.
        if decision.skips:
            self._progress.skip(decision.value)
            if decision is Decision.SKIP_DONE and self.policy.name_skipped:
                print_note(f"{shown}: {decision.value}; --overwrite does it again")
            return
        writer.check(_with_parts(files))
        model = self.transcriber.capabilities.name
        with journal.job(key, "transcribe", shown, model, TranscriptPiece) as job:
            if job is None:
                raise InputError(f"{shown}: another run is at it")
            with writer.reserve(_with_parts(files)):
                self._check_space(source, files)
                if decision is Decision.BEGIN:
                    job.forget()
                goes_on = decision in (Decision.RESUME, Decision.RETRY)
                if goes_on and (end_s := _end_of(job.pieces)) > 0:
                    print_note(f"{shown}: resuming at {format_clock(end_s)}")
                self._transcribe(found, name, job, single=single)

    def _writer_for(self, found: FoundInput) -> ResultWriter:
        """The writer of the results of a recording."""
        return self._writer.of(Origin.of(found.path, found.shown))

    def _check_space(self, source: str, files: Mapping[Path, str]) -> None:
        """Check that the disks have room for the results, before any work is done."""
        path = Path(source)
        size = path.stat().st_size if source != "-" and path.is_file() else 0
        needed = len(files) * (_MIN_RESULT_BYTES + size // _AUDIO_PER_TEXT)
        self._writer.check_space({path.parent for path in files}, needed)

    def _transcribe(
        self, found: FoundInput, name: str, entry: Job[TranscriptPiece] | None, *, single: bool
    ) -> None:
        """Transcribe one recording and write its results.

        Args:
            found: The recording.
            name: Base name of its results.
            entry: The journal's entry, or None.
            single: It is the only recording, so that its name need not be printed.
        """
        from edgeapp.batch.recordings.transcription_job import TranscriptionJob

        job = TranscriptionJob(
            self.transcriber,
            self.options,
            partial(self._translator_for, entry) if self.target is not None else None,
            self.target,
            pieces=() if entry is None else tuple(entry.pieces),
            keep=None if entry is None else _keeping(entry),
            overlap=self._is_remote or not self._is_live,
        )
        if entry is not None:
            entry.running()
        source = found.path
        audio: Any = sys.stdin.buffer if source == "-" else source
        decodes = self._decodes_sound and source != "-"
        sound = self._sounds.take(source) if decodes else None
        if isinstance(sound, SoundStream):
            audio = job.sound = sound
        elif sound is not None:
            audio, job.warnings = sound.samples, sound.warnings
        del sound  # its samples are held by the job alone
        note = english_only_note(self.transcriber, self.options.language)
        if note and not self._told_language:  # It is about the model, so that once is enough.
            job.warnings, self._told_language = (*job.warnings, note), True
        if not self.options.in_chunks and not self._is_remote:
            self._note_loudness(found)
        if source in self._following:
            self._sounds.begin(self._following[source])
        if not single and self.output.folder is None:
            print_note(found.shown)
        decoded = entry is not None and entry.record.state is State.DONE
        view = self._view(name, math.inf if decoded else _end_of(job.pieces))
        try:
            with view:
                job.run(audio, view)
        except BrokenPipeError:
            raise
        except (KeyboardInterrupt, Exception) as error:
            if entry is not None:
                entry.stopped(job.duration, error)
            self._write_partial(job, name, self._writer_for(found))
            raise
        try:
            self._write(job.transcript, name, self._writer_for(found))
        except OutputError as error:
            if entry is not None:
                entry.stopped(job.duration, error)
            raise
        self._progress.resize(job.duration)
        self._progress.wrote(list(self._renderings(name)))
        if entry is not None:
            try:
                entry.done(job.duration, self._renderings(name))
            except OutputError as error:  # the results are there
                print_note(str(error))

    def _note_loudness(self, found: FoundInput) -> None:
        """Say why the first text of a long recording does not come at once."""
        size = 0
        with suppress(OSError):  # what is wrong with the file is said where it is decoded
            size = 0 if found.path == "-" else Path(found.path).stat().st_size
        if size < _LONG_BYTES:
            return
        print_note(
            f"{found.shown}: window by window needs the loudness of the whole recording, which is "
            "decoded first; --batch-size 8 begins at once"
        )

    @property
    def _is_live(self) -> bool:
        """Whether text goes to stdout as it is decoded, each translation below its source."""
        if self.output.folder is None:
            return not self.output.formats
        return bool(self.verbose)

    def _view(self, name: str, resumed_s: float) -> LiveTextView | ProgressBarView:
        """Text as it is decoded, or a progress bar where stdout is for results in a format."""
        from edgeapp.batch.recordings.progress import LiveTextView, ProgressBarView

        if not self._is_live:
            return ProgressBarView(name, self._progress, resumed_s)
        if self.output.folder is None:
            timed = sys.stdout.isatty() if self.verbose is None else self.verbose
            return LiveTextView(timed=timed, provisional=self.verbose is not False)
        return LiveTextView(timed=True)

    def _translator_for(self, entry: Job[TranscriptPiece] | None, spoken: str) -> Translator:
        assert self.target is not None, "there is a target language"
        translator = (self.translators or self.pool).translator(
            self.translation_model, spoken, self.target
        )
        if entry is not None:
            entry.choose(spoken=spoken, translator=str(translator.model.folder.resolve()))
        return translator

    def _write(
        self, transcript: Transcript, name: str, writer: ResultWriter, *, incomplete: bool = False
    ) -> None:
        """Write a transcript in all formats, to files or to stdout.

        Args:
            transcript: The transcript.
            name: Base name of the files.
            writer: Writes the files.
            incomplete: Only a beginning was transcribed: the files end with .part.
        """
        if self.output.folder is not None:
            for file in self.output.files(name):
                content = self._render(transcript, file.format, file.translated, name)
                part = _part_of(file.path)
                if incomplete:
                    writer.write(part, content)
                else:
                    writer.write(file.path, content)
                    part.unlink(missing_ok=True)  # what an interrupted run has left
            return
        for fmt in self.output.formats:
            text = self._render(transcript, fmt, self.output.bilingual, name)
            assert isinstance(text, str), "TranscriptOutput lets only text go to stdout"
            sys.stdout.write(text + "\n" if fmt == "json" else text)
            sys.stdout.flush()

    def _render(self, transcript: Transcript, fmt: str, translated: bool, name: str) -> str | bytes:
        """A transcript in one format: subtitles as openai-whisper's layout says if one is given,
        else in a style."""
        which, style = "translated" if translated else "", self.style or DEFAULT_STYLE
        if FORMATS[fmt].is_subtitle:
            if translated and self.output.bilingual:
                return render(transcript, fmt, which="both", style=style)
            layout = self.layout
            if layout.highlight_words and fmt in ("ass", "ttml"):
                if fmt == "ass" and not translated and (timed := self._karaoke_cues(transcript)):
                    return karaoke(timed)
                layout = replace(layout, highlight_words=False)
            if layout.active and not translated:
                cues = layout.cues(transcript.segments)  # type: ignore[arg-type]  # Segments
                transcript = replace(transcript, segments=tuple(cues))
            elif self.style is not None and not layout.active:
                transcript = shaped(transcript, self.style)
        title = Path(name).name
        return render(transcript, fmt, which=which, title=title, pretty=self.pretty_json)

    def _karaoke_cues(self, transcript: Transcript) -> list[tuple[Cue, Sequence[TimedWord]]]:
        """Cues with their words; none where no word has a time."""
        segments = cast("Sequence[Segment]", transcript.segments)
        if not any(segment.words for segment in segments):
            return []
        layout = replace(self.layout, highlight_words=False)
        if self.style is not None and not layout.active:
            return shape_with_words(timed_words(segments), self.style)
        return layout.timed_cues(segments)

    def _write_partial(self, job: TranscriptionJob, name: str, writer: ResultWriter) -> None:
        """After an error: write what was transcribed, to stdout or to files that end in .part."""
        if self.output.formats and job.transcript.segments:
            try:
                self._write(job.transcript, name, writer, incomplete=True)
            except OutputError as error:  # the first error is raised again by the caller
                print_note(str(error))
                return
            if (folder := self.output.folder) is not None:
                parent = (folder / name).parent
                where = parent if parent.parts else parent.absolute()  # not "."
                print_note(f"{name}: what was finished is in {where}, in files that end with .part")


def _part_of(path: Path) -> Path:
    """Return the file of a result that is not complete."""
    return beside(path, ".part")


def _with_parts(files: Collection[Path]) -> list[Path]:
    """Return results, and the files that they are in as long as they are not complete."""
    return [*files, *map(_part_of, files)]


def _end_of(pieces: Sequence[TranscriptPiece]) -> float:
    """Seconds up to which pieces reach."""
    return max((segment.end for piece in pieces for segment in piece.segments), default=0.0)


def _keeping(entry: Job[TranscriptPiece]) -> Callable[[TranscriptPiece], None]:
    """Adds pieces to the journal. If it fails, the work goes on without it."""
    failed = False

    def keep(piece: TranscriptPiece) -> None:
        nonlocal failed
        if failed:  # a later piece would leave a gap
            return
        try:
            entry.add(piece)
        except OutputError as error:
            failed = True
            print_note(f"going on without the journal: {error}")

    return keep
