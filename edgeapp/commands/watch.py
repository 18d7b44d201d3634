"""`edgeapp watch`: what arrives in a folder is transcribed and translated."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeapp.batch.find_inputs import MEDIA_SUFFIXES, FoundInput
from edgeapp.batch.folder_watch import FolderWatch
from edgeapp.batch.journal.decisions import JobPolicy
from edgeapp.batch.journal.job_journal import JobJournal
from edgeapp.batch.outputs import plan_translations, prepare_folder
from edgeapp.batch.recordings.transcript_output import TranscriptOutput
from edgeapp.batch.recordings.transcription_runner import TranscriptionRunner
from edgeapp.batch.texts.text_source import TextSource
from edgeapp.batch.texts.translation_models import TranslationModels
from edgeapp.batch.texts.translation_runner import TEXT_SUFFIXES, TextInput, TranslationRunner
from edgeapp.commands.options.batch import open_journal
from edgeapp.commands.options.common import (
    INPUT_OUTPUT,
    ComputeType,
    Debug,
    Device,
    Model,
    ModelDirectory,
    NoDownload,
    Threads,
    TranslateTo,
    TranslationModel,
    known_language,
    settings_from_flags,
    use_model_directory,
)
from edgeapp.commands.options.declared import Given, declared
from edgeapp.commands.options.download import find_or_pull_recognizer
from edgeapp.commands.transcribe import recognition_options
from edgeapp.console import print_note
from edgeapp.english_only import choosing_language
from edgeapp.exit_codes import exit_with_code, print_error
from edgeapp.subtitles.word_cues import WordCueLayout
from pipelines import ModelNotFound, OptionError, TranscribeOptions, TranslateOptions

if TYPE_CHECKING:
    from edgeapp.model_pool import ModelPool

__all__ = ["watch"]

_LOOK_EVERY_S = 1.0


@declared(only=("language", "languages"), chosen=TranscribeOptions)
def watch(
    *,
    inside: Annotated[Path, typer.Argument(metavar="IN", help="Folder in which files arrive.")],
    outside: Annotated[Path, typer.Argument(metavar="OUT", help="Folder for the results.")],
    model: Model = None,
    model_dir: ModelDirectory = None,
    no_download: NoDownload = False,
    translation_model: TranslationModel = None,
    chosen: Given,
    translate_to: TranslateTo = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--output-format",
            help="Formats of transcripts, with commas. Default: all.",
            metavar="FORMATS",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="Do what is there, and end.", rich_help_panel=INPUT_OUTPUT),
    ] = False,
    settle: Annotated[
        float,
        typer.Option(
            "--settle",
            min=0,
            help="Seconds without change after which a file counts as wholly written.",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = 2.0,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Do what arrives in a folder: transcribe recordings, translate texts and subtitles.

    Texts and subtitles are translated with --translate-to only; their language is detected. A file
    is begun once it is wholly written. Ctrl-C and SIGTERM end the watch; the same command goes on
    where it was. Results are those of `edgeapp transcribe` and `translate`.
    """
    with exit_with_code(debug), ExitStack() as stack:
        if not inside.is_dir():
            raise OptionError(f"{inside} is no folder")
        settings = settings_from_flags(device, compute_type, threads, no_download=no_download)
        use_model_directory(model_dir)
        target = known_language(translate_to, "--translate-to")
        options = recognition_options(chosen, settings.transcribe, target)
        from edgeapp.model_pool import ModelPool

        pool = ModelPool(settings)
        media = MEDIA_SUFFIXES
        try:
            find_or_pull_recognizer(pool, model, options)
        except ModelNotFound as error:
            if target is None or model or settings.model:
                raise
            print_error(error, None, debug)
            print_note("only texts and subtitles are done")
            media = frozenset()
        prepare_folder(outside)
        journal = open_journal(stack, settings, wanted=True)
        if journal is None and outside.resolve().is_relative_to(inside.resolve()):
            raise OptionError(
                f"{outside} is inside of {inside}: without the journal, which is switched off, "
                "results would be taken for new files"
            )
        worker = _Worker(
            stack, pool, journal, outside, model, translation_model, options, target,
            output_format, debug,
        )  # fmt: skip
        suffixes = media | (TEXT_SUFFIXES if target is not None else frozenset())
        if target is None:
            print_note("only recordings are done: --translate-to adds texts and subtitles")
        files = FolderWatch(inside, suffixes, settle, partial(_is_input, inside, outside, journal))
        print_note(f"watching {inside}; Ctrl-C ends it")
        try:
            code = _watch(files, worker, once)
        except KeyboardInterrupt:
            print_note("the watch has ended; the same command goes on where it was")
            code = 0
        raise typer.Exit(code)


def _watch(files: FolderWatch, worker: _Worker, once: bool) -> int:
    """Work on files as they become ready. Returns the exit code of `once`."""
    code, began = 0, time.monotonic()
    while True:
        ready = files.ready()
        if ready:
            code = max(code, worker.run(ready))
        elif once and time.monotonic() - began > files.settle_s:
            for path in files.growing:
                print_note(f"{path} is not wholly written yet: left out")
            return code
        else:
            time.sleep(min(_LOOK_EVERY_S, max(0.05, files.settle_s)))


def _is_input(inside: Path, outside: Path, journal: JobJournal | None, path: Path) -> bool:
    """Whether a file is no result of this or an earlier run."""
    if outside.resolve() != inside.resolve() and path.resolve().is_relative_to(outside.resolve()):
        return False
    return journal is None or not journal.digests_of(path)


class _Worker:
    """Transcribes and translates files; models stay loaded from file to file."""

    def __init__(
        self,
        stack: ExitStack,
        pool: ModelPool,
        journal: JobJournal | None,
        outside: Path,
        model: str | None,
        translation_model: str | None,
        options: TranscribeOptions,
        target: str | None,
        formats: str | None,
        debug: bool,
    ) -> None:
        from edgeapp.model_pool import NO_DRAFTS

        self._options = options
        TranscriptOutput.of(f"{outside}/", formats, (), target)  # raises OptionError now
        self._pool = pool
        if target is not None and translation_model is not None:
            self._pool.find_translator(translation_model, None, target)
        self._policy = JobPolicy(journal, name_skipped=False, name_done=True)
        self._outside, self._target, self._formats, self._debug = outside, target, formats, debug
        self._model, self._translation_model = model, translation_model
        self._models = TranslationModels(
            stack, self._pool, translation_model, target, target,
            TranslateOptions(**pool.settings.translate), False, workers=1, drafts=NO_DRAFTS,
        )  # fmt: skip

    def run(self, files: Sequence[FoundInput]) -> int:
        """Do the work on files. Returns the exit code: 0, or the highest of failed files."""
        recordings = [each for each in files if Path(each.path).suffix.lower() in MEDIA_SUFFIXES]
        texts = [each for each in files if each not in recordings]
        codes = [0]
        if recordings:
            codes.append(self._transcribe(recordings))
        if texts:
            codes.append(self._translate(texts))
        return max(codes)

    def _transcribe(self, files: Sequence[FoundInput]) -> int:
        output = TranscriptOutput.of(f"{self._outside}/", self._formats, files, self._target)
        output.prepare()
        runner = TranscriptionRunner(
            self._pool,
            self._pool.transcriber(
                self._model, choosing_language(self._options), self._options.task
            ),
            self._options,
            self._target,
            self._translation_model,
            output,
            self._debug,
            WordCueLayout(),
            policy=self._policy,
            computes_words=self._pool.settings.transcribe.get("word_timestamps") is not False,
        )
        return runner.run(files)

    def _translate(self, files: Sequence[FoundInput]) -> int:
        names = plan_translations(
            [each.path for each in files],
            f"{self._outside}/",
            names=[each.name for each in files],
        )
        runner = TranslationRunner(
            self._models, automatic=True, debug=self._debug, policy=self._policy
        )
        return runner.run(
            [
                TextInput(TextSource(each.path), name, each)
                for each, name in zip(files, names, strict=True)
            ]
        )
