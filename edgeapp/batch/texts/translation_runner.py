"""Translates several texts and subtitle files, one after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.batch.find_inputs import FoundInput
from edgeapp.batch.journal.decisions import Decision, JobPolicy
from edgeapp.batch.journal.downloads import download_plan, present
from edgeapp.batch.journal.job_journal import Origin
from edgeapp.batch.journal.pieces import LinesPiece, PassagesPiece
from edgeapp.batch.outputs import check_no_collisions
from edgeapp.batch.result_writer import ResultWriter
from edgeapp.batch.run_progress import ProgressOutput, RunProgress
from edgeapp.batch.texts.html_job import HtmlJob, text_of_html_file
from edgeapp.batch.texts.language_check import LanguageCheck, language_name
from edgeapp.batch.texts.subtitle_job import SubtitleJob
from edgeapp.batch.texts.text_kind import ApplicableOptions, first_cues, kind_of, subtitles_in
from edgeapp.batch.texts.text_source import TextSource
from edgeapp.batch.texts.translation_job import TranslationJob
from edgeapp.batch.texts.translation_models import TranslationModels
from edgeapp.console import print_note
from edgeapp.documents.subtitle_file import SUBTITLE_SUFFIXES
from edgeapp.documents.text_encoding import NO_HINT, EncodingHint, text_of_head
from edgeapp.exit_codes import InputFailures
from edgeapp.subtitles.style import DEFAULT_STYLE, SubtitleStyle
from pipelines import InputError, ModelNotFound

if TYPE_CHECKING:
    from pipelines.text_language import TextLanguage

__all__ = ["TEXT_SUFFIXES", "OutputName", "TextInput", "TranslationRunner"]

TEXT_SUFFIXES = frozenset({".txt", *SUBTITLE_SUFFIXES})
"""Suffixes of the files of a folder that are translated."""

OutputName = Callable[[str], Path]  # from the target language

_GROWTH = 3  # a translation has at most about so many bytes for each byte of its source


@dataclass(frozen=True)
class TextInput:
    """A text, and where its translation goes.

    Attributes:
        source: The text.
        output: Path of the translation by its language; None is stdout.
        found: How a file was found; None for stdin and for text of the command line.
    """

    source: TextSource
    output: OutputName | None
    found: FoundInput | None = None


@dataclass
class TranslationRunner:
    """Translates texts and writes their results.

    Attributes:
        models: The models.
        automatic: Detect the language of each text, and choose its model.
        assumed: Code of the language that texts are taken to be in because none was named. A text
            that is surely in another one gets the model for that. None: it was named.
        debug: Print tracebacks of errors.
        as_text: Translate subtitle files and others line by line.
        document: Join wrapped lines into paragraphs.
        format: Of output lines: text, tsv, json.
        bilingual: Keep the original lines of subtitles.
        style: Of subtitles.
        policy: How earlier runs are treated; for results in files.
        events: Print the progress as JSON lines on stdout.
        applicable: Options that are refused where they have no effect.
        hint: What is known about the encoding of all texts.
    """

    models: TranslationModels
    automatic: bool
    debug: bool = False
    as_text: bool = False
    document: bool = False
    format: str = "text"
    bilingual: bool = False
    style: SubtitleStyle = DEFAULT_STYLE
    policy: JobPolicy = field(default_factory=JobPolicy)
    events: bool = False
    applicable: ApplicableOptions = field(default_factory=ApplicableOptions)
    assumed: str | None = None
    hint: EncodingHint = NO_HINT

    def __post_init__(self) -> None:
        self._progress = RunProgress()
        self._writer = ResultWriter(self.policy.journal, self.policy.overwrite)

    def without_results(self, inputs: Sequence[TextInput]) -> list[TextInput]:
        """The inputs without files that were found in a folder, but written by an earlier run."""
        journal = self.policy.journal
        return [
            each
            for each in inputs
            if journal is None
            or each.found is None
            or each.found.name is None
            or not journal.digests_of(Path(each.found.path))
        ]

    def run(self, inputs: Sequence[TextInput]) -> int:
        """Translate texts in order. One that fails does not stop the others.

        Args:
            inputs: The texts.

        Returns:
            The exit code: 0, or the highest of the failed inputs.

        Raises:
            BrokenPipeError: The reader of stdout is gone.
        """
        failures = InputFailures(len(inputs), self.debug)
        names = [_progress_name(each) for each in inputs]
        shown = ProgressOutput.EVENTS if self.events else ProgressOutput.TERMINAL
        to_stdout = any(each.output is None for each in inputs)
        on_terminal = sys.stderr.isatty() and not sys.stdout.isatty()
        if to_stdout and not (on_terminal and len(inputs) == 1):  # the text is progress enough
            shown = ProgressOutput.NONE
        run = RunProgress(names, "lines", shown, name_done=self.policy.name_done)
        with run as self._progress:
            self._run_all(inputs, names, failures)
        return failures.exit_code(counted=run.summarizes)

    def _run_all(
        self, inputs: Sequence[TextInput], names: Sequence[str], failures: InputFailures
    ) -> None:
        for each, name in zip(inputs, names, strict=True):
            with (
                failures.catch(each.source.shown),
                self._progress.file(name),
                ExitStack() as stack,
            ):
                if each.found is not None:
                    if each.found.problem is not None:
                        raise InputError(each.found.problem)
                    skipped = stack.enter_context(present(each.found, "translate", self.policy))
                    if skipped is not None:
                        self._progress.skip(skipped.value)
                        continue
                self._translate(each, stack)

    def plan(self, inputs: Sequence[TextInput]) -> Iterator[str]:
        """What `run` would do, one line for each text.

        Args:
            inputs: The texts.
        """
        for each in inputs:
            if each.found is not None and each.found.problem is not None:
                yield each.found.problem
                continue
            if each.found is not None and each.found.remote is not None:
                yield download_plan(each.found, "translate", self.policy)
                continue
            try:
                with ExitStack() as stack:
                    job, path = self._job(each, stack)
                    decision = self._decision(job, path, each.source.shown)
                    paths = [] if path is None else [path]
                    yield job.writer.plan(each.source.shown, decision, "translate", paths)
            except InputError as error:
                yield str(error)

    def _translate(self, each: TextInput, stack: ExitStack) -> None:
        """Translate one text, from where an earlier run stopped."""
        job, path = self._job(each, stack)
        journal = self.policy.journal
        if path is None or journal is None or not _is_file(each.source):
            if self.policy.retry_failed:
                return
            if path is not None:
                stack.enter_context(job.writer.reserve([path]))
                self._check_space(each.source, path)
            job.run(path)
            self._progress.wrote([] if path is None else [path])
            return
        decision = self._decision(job, path, each.source.shown)
        if decision is Decision.SKIP_DONE:
            job.writer.check([path], done=True)  # A result that was edited is not called done.
        if decision.skips:
            self._progress.skip(decision.value)
            if decision is Decision.SKIP_DONE and self.policy.name_skipped:
                print_note(f"{each.source.shown}: {decision.value}; --overwrite does it again")
            return
        job.writer.check([path])
        self._run_in_journal(job, each.source, path, decision)

    def _run_in_journal(
        self,
        job: TranslationJob | SubtitleJob | HtmlJob,
        source: TextSource,
        path: Path,
        decision: Decision,
    ) -> None:
        journal, name = self.policy.journal, source.shown
        assert journal is not None, "the caller has looked"
        piece: type[LinesPiece | PassagesPiece]
        piece = LinesPiece if isinstance(job, TranslationJob) else PassagesPiece
        model = self.models.translator.name
        with ExitStack() as stack:
            entry = stack.enter_context(
                journal.job(self._key(job), "translate", name, model, piece)
            )
            if entry is None:
                raise InputError(f"{name}: another run is at it")
            stack.enter_context(job.writer.reserve([path]))
            self._check_space(source, path)
            failed = any(isinstance(each, LinesPiece) and each.failed for each in entry.stored())
            if decision is Decision.BEGIN or (decision is Decision.RETRY and failed):
                entry.forget()
            entry.running()
            job.entry = entry  # type: ignore[assignment]  # of the job's own kind of pieces
            try:
                job.run(path)
            except BaseException as error:
                entry.stopped(None, error)
                raise
            self._progress.wrote([path])
            entry.done(None, self._renderings(job, path), job.lines)

    def _check_space(self, source: TextSource, path: Path) -> None:
        """Check that the disk has room for the result, before any work is done."""
        size = Path(source.name).stat().st_size if _is_file(source) else 0
        self._writer.check_space([path.parent], _GROWTH * size)

    def _job(
        self, each: TextInput, stack: ExitStack
    ) -> tuple[TranslationJob | SubtitleJob | HtmlJob, Path | None]:
        """The work on a text, and the path of its result. Loads the model for its language."""
        language = None if self.automatic or self.assumed else self.models.source_language
        hint = replace(self.hint, language=language)
        source = replace(each.source, hint=hint)
        origin = Origin.of(source.name, source.shown)
        if source.text is not None:
            origin = Origin("-", text=source.text)
        writer = self._writer.of(origin)
        film, content, opened = Path(source.name), None, None
        literal = self.as_text or source.text is not None
        kind = "text" if literal else kind_of(source.name)
        if kind == "text" and not literal:
            opened = source.open(stack, with_head=True)
            if (form := subtitles_in(source, opened)) is not None:
                film, kind = Path(f"{source.shown}.{form}"), "subtitles"
                content = opened.head + opened.file.read()
        self.applicable.check(source.shown, kind)
        if self.automatic or self.assumed is not None:
            if kind == "subtitles":
                head = first_cues(film, content, hint)
            elif kind == "html":
                head = text_of_html_file(film, hint)
            else:
                opened = opened or source.open(stack, with_head=True)
                head = text_of_head(opened.head, hint).strip()
            self._load_for(self._language_of(source, head))
        path = None if each.output is None else each.output(self.models.suffix)
        if self.automatic and path is not None:
            check_no_collisions([path], [source.name] if source.text is None else [])
        if kind == "subtitles":
            return (
                SubtitleJob(
                    self.models.line_translator,
                    self.models.options,
                    film,
                    self.bilingual,
                    self.style,
                    content,
                    writer=writer,
                    progress=self._progress,
                    shown=source.shown,
                    hint=hint,
                ),
                path,
            )
        if kind == "html":
            return (
                HtmlJob(
                    self.models.line_translator,
                    self.models.options,
                    film,
                    writer=writer,
                    progress=self._progress,
                    shown=source.shown,
                    hint=hint,
                ),
                path,
            )
        if self.automatic or self.assumed is not None:
            source = replace(source, hint=replace(hint, language=self.models.source_language))
        language = None if self.automatic else self.models.source_language
        return (
            TranslationJob(
                self.models.line_translator,
                self.models.translator,
                self.models.options,
                source,
                self.document,
                self.format,
                LanguageCheck(language),
                opened,
                writer=writer,
                progress=self._progress,
            ),
            path,
        )

    def _load_for(self, detected: TextLanguage | None) -> None:
        """Load the model for a language, None for the one that is assumed.

        Raises:
            EdgeError: As TranslationModels.load.
        """
        from pipelines.hub import translator_to_download

        try:
            self.models.load(None if detected is None else detected.code, None)
        except ModelNotFound as error:
            target = self.models.target_code
            if detected is None or detected.sure or target is None or error.download is None:
                raise
            model = translator_to_download(detected.code, target, sure=False)
            languages = f"{language_name(detected.code)} into {language_name(target)}"
            raise ModelNotFound(
                f"no translator from {languages} is on this machine"
                + (f"; download {model}, which knows many languages" if model else ""),
                download=model,
            ) from None

    def _language_of(self, source: TextSource, head: str) -> TextLanguage | None:
        """The language of an input, told from its first lines; None for the one that is assumed.

        Raises:
            InputError: It cannot be told, and none is assumed.
        """
        if self.assumed is None:
            return _detected(source, head)
        from pipelines.text_language import text_language_other_than

        other = text_language_other_than(head, self.assumed) if head else None
        if other is None or other.code == self.models.target_code:
            return None
        _note_detected(source, other)
        return other

    def _decision(
        self, job: TranslationJob | SubtitleJob | HtmlJob, path: Path | None, shown: str
    ) -> Decision:
        journal = self.policy.journal
        if path is None or journal is None or not Path(_name(job)).is_file():
            return Decision.BEGIN
        record = journal.record(self._key(job))
        return self.policy.decide(record, shown, self._renderings(job, path))

    def _key(self, job: TranslationJob | SubtitleJob | HtmlJob) -> str:
        return job.key() if isinstance(job, TranslationJob) else job.key(self.models.translator)

    def _renderings(
        self, job: TranslationJob | SubtitleJob | HtmlJob, path: Path
    ) -> dict[Path, str]:
        """The file of a text, with how it is rendered; lines are kept as they are written."""
        if not isinstance(job, SubtitleJob):
            return {path: "html" if isinstance(job, HtmlJob) else "lines"}
        return {path: f"{self.style.name}{' bilingual' if self.bilingual else ''}"}


def _progress_name(each: TextInput) -> str:
    """The name of an input in the progress; its size is looked up by it."""
    literal = each.source.text is not None or each.source.name == "-"
    return "-" if literal else each.source.shown


def _name(job: TranslationJob | SubtitleJob | HtmlJob) -> str:
    return job.source.name if isinstance(job, TranslationJob) else str(job.source)


def _is_file(source: TextSource) -> bool:
    """Whether an input is a regular file, which can be read again."""
    return source.text is None and source.name != "-" and os.path.isfile(source.name)  # noqa: PTH113


def _detected(source: TextSource, head: str) -> TextLanguage:
    """The language of an input, told from its first lines.

    Raises:
        InputError: It cannot be told.
    """
    from pipelines.text_language import detect_text_language

    found = detect_text_language(head)
    if found is None:
        raise InputError(
            f"{source.shown}: the language cannot be told from its first {len(head)} characters; "
            "name it with --from, such as --from en"
        )
    _note_detected(source, found)
    return found


def _note_detected(source: TextSource, language: TextLanguage) -> None:
    """Say in which language a text is, and if it may as well be in one with the same script."""
    hint = "" if language.sure else " (perhaps; --from names another one)"
    print_note(f"{source.shown}: detected language: {language_name(language.code)}{hint}")
