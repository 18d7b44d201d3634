"""`edgeapp translate`: text → text, line by line."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgeapp.batch.find_inputs import FoundInput, find_inputs, read_list
from edgeapp.batch.journal.decisions import JobPolicy
from edgeapp.batch.outputs import check_no_collisions, plan_translations
from edgeapp.batch.remote_file import RemoteFiles, is_address
from edgeapp.batch.texts.html_job import HTML_SUFFIXES
from edgeapp.batch.texts.line_formats import WRITERS
from edgeapp.batch.texts.text_kind import ApplicableOptions
from edgeapp.batch.texts.text_source import TextSource
from edgeapp.batch.texts.translation_job import LineTranslator
from edgeapp.batch.texts.translation_models import TranslationModels
from edgeapp.batch.texts.translation_runner import (
    TEXT_SUFFIXES,
    OutputName,
    TextInput,
    TranslationRunner,
)
from edgeapp.commands.options.batch import (
    AllowPrivate,
    AllowUrls,
    DryRun,
    Events,
    FromList,
    NoJournal,
    Overwrite,
    RetryFailed,
    end_without_files,
    open_journal,
    remote_files,
)
from edgeapp.commands.options.common import (
    COMPUTING,
    INPUT_OUTPUT,
    LANGUAGES,
    MODELS,
    OTHER,
    ComputeType,
    Debug,
    Device,
    Draft,
    DraftModel,
    Model,
    ModelDirectory,
    Threads,
    drafts_from_flags,
    known_language,
    settings_from_flags,
    use_model_directory,
)
from edgeapp.commands.options.completion import complete_languages
from edgeapp.commands.options.declared import Given, declared, values_of, without_json
from edgeapp.console import print_draft_report, print_note
from edgeapp.documents.structure import STRUCTURED_SUFFIXES
from edgeapp.documents.subtitle_file import is_subtitle_file
from edgeapp.documents.text_encoding import EncodingHint, named_encoding
from edgeapp.documents.transcript_formats import FORMATS
from edgeapp.exit_codes import exit_with_code
from edgeapp.settings import Settings
from edgeapp.subtitles.style import DEFAULT_STYLE, STYLES, style_of
from pipelines import OptionError, TranslateOptions

__all__ = ["translate"]

_AUTO = "auto"
_FILE_SUFFIXES = {*TEXT_SUFFIXES, *HTML_SUFFIXES, *STRUCTURED_SUFFIXES}
_RETRY_FAILED = "--retry-failed needs the journal: results in files, and no --no-journal"
_HINT = "; --text translates words of the command line"


@declared(chosen=TranslateOptions)
def translate(
    *,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Text files, subtitles, folders, or quoted patterns; none or - reads stdin. "
            "Words with a space that name no file are text.",
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            help="Text to translate; repeatable.",
            metavar="TEXT",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    model: Model = None,
    model_dir: ModelDirectory = None,
    draft_model: DraftModel = None,
    draft: Draft = None,
    source: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--from",
            help="Language of the text, such as en; auto: detected in its first lines. Default: "
            "that of the model.",
            metavar="LANGUAGE",
            rich_help_panel=LANGUAGES,
            autocompletion=complete_languages,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--to",
            help="Language to translate into: a code such as de, or a code of the model such as "
            "zho_Hant.",
            metavar="LANGUAGE",
            rich_help_panel=LANGUAGES,
            autocompletion=complete_languages,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="Output file; a folder for several inputs (talk.de.txt).",
            metavar="FILE|FOLDER",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    from_list: FromList = None,
    allow_urls: AllowUrls = False,
    allow_private: AllowPrivate = False,
    overwrite: Overwrite = False,
    retry_failed: RetryFailed = False,
    dry_run: DryRun = False,
    no_journal: NoJournal = False,
    events: Events = False,
    document: Annotated[
        bool,
        typer.Option(
            "--document",
            help="Join wrapped lines; each paragraph becomes one line.",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = False,
    as_text: Annotated[
        bool,
        typer.Option(
            "--as-text",
            help="Line by line, whatever the name of the file is.",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = False,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding",
            help="Encoding of the files, such as windows-1251 or shift_jis. Default: what a file "
            "says, UTF-8, or what its letters tell for sure.",
            metavar="NAME",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    bilingual: Annotated[
        bool,
        typer.Option(
            "--bilingual",
            help="Subtitles: keep the original above the translation.",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = False,
    subtitle_style: Annotated[
        str,
        typer.Option(
            "--subtitle-style",
            help="Subtitles: width of the lines and reading speed.",
            metavar=f"[{'|'.join(STYLES)}]",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = DEFAULT_STYLE.name,
    chosen: Given,
    format: Annotated[
        Literal["text", "tsv", "json"],
        typer.Option(
            "--format",
            help="text: alignments after |||; tsv: source, tab, translation; json: one object per "
            "line.",
            case_sensitive=False,
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = "text",
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Restrict the output to the vocabulary of the target language: faster, for "
            "models with one vocabulary per language.",
            rich_help_panel=MODELS,
        ),
    ] = False,
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            min=1,
            help="Number of processes, each with a copy of the model and a share of the threads; "
            "for long files on a CPU.",
            rich_help_panel=COMPUTING,
        ),
    ] = 1,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="Machines of a Ray cluster, or local: each translates some lines at a time.",
            metavar="ADDRESS|local",
            rich_help_panel=COMPUTING,
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="At the end, say what drafts did.", rich_help_panel=OTHER),
    ] = False,
    debug: Debug = False,
) -> None:
    """Translate text: exactly one output line for each input line, in every format.

    Subtitles (srt, vtt, ass, ttml, lrc, smi …), also from a pipe, are translated by whole sentences
    and keep their times: film.srt becomes film.de.srt. HTML keeps its tags.

    On stdout each line is written as soon as it is translated, subtitles when all are. A run with
    files as results that was ended goes on where it was if the same command is given again;
    `edgeapp jobs` lists what was done.
    """
    with exit_with_code(debug):
        # Languages first: an error about them must not wait for a model or an input.
        _check_not_a_format(source)
        automatic = source is not None and source.strip().lower() == _AUTO
        source_code = None if automatic else known_language(source, "--from")
        target_code = known_language(target, "--to")
        named_as = None if encoding is None else named_encoding(encoding)
        hint = EncodingHint(named_as, has_option=True)
        listed = read_list(from_list) if from_list else []
        remote = remote_files(allow_urls, allow_private)
        inputs = _inputs([*(files or ()), *listed], text or (), output, as_text, remote)
        style = style_of(subtitle_style)
        settings = settings_from_flags(device, compute_type, threads)
        applicable = ApplicableOptions(
            {
                "--format": format != "text",
                "--document": document,
                "--alignments": chosen.get("word_alignments") == "True",
            },
            {"--bilingual": bilingual, "--subtitle-style": style.name != DEFAULT_STYLE.name},
        )
        for each in inputs:
            name, literal = each.source.name, as_text or each.source.text is not None
            if literal or os.path.isfile(name):  # noqa: PTH113
                kind = "subtitles" if is_subtitle_file(name) and not literal else "text"
                if Path(name).suffix.lower() in HTML_SUFFIXES and not literal:
                    kind = "html"
                applicable.check(each.source.shown, kind)
        defaults = settings.translate
        if format != "json":
            defaults = without_json(chosen, defaults, "--format json")
        choices = TranslateOptions(**values_of(TranslateOptions, chosen, defaults))
        use_model_directory(model_dir)
        assumed = None
        if source is None and model is None and settings.translation_model is None:
            # Text is in English where nothing else is said, and English needs no translation.
            automatic = target_code == "en"
            assumed = None if automatic or target_code is None or cluster else "en"
        in_files = all(each.output is not None for each in inputs)
        if cluster is not None and (
            automatic or not in_files or workers > 1 or draft_model or draft
        ):
            raise OptionError(
                "--cluster needs results in files (-o) and the language of the texts "
                "(--from), and takes no --workers and no drafts"
            )
        if events and not in_files:
            raise OptionError("--json needs stdout for itself: write results to files with -o")
        if retry_failed and (no_journal or not in_files):
            raise OptionError(_RETRY_FAILED)
        from edgeapp.model_pool import ModelPool

        pool, drafts = ModelPool(settings), drafts_from_flags(draft_model, draft)
        if model is not None or not automatic:
            pool.find_translator(model, source_code, target_code, drafts)
        named = [each.found for each in inputs if each.found is not None]
        if len(named) == len(inputs) and not dry_run:
            end_without_files(named, "lines", events=events, debug=debug)
        if [each.source.name for each in inputs] == ["-"] and sys.stdin.isatty():
            print_note("reading from the terminal; press Ctrl-D to end")
        # Takes half a second, while the model is loaded.
        threading.Thread(target=_load_language_detection, daemon=True).start()
        with ExitStack() as stack:
            models = TranslationModels(
                stack,
                pool,
                model,
                _with_region(target, target_code),
                target_code,
                choices,
                shortlist,
                workers,
                drafts,
            )
            if not automatic:
                models.load(source_code, _with_region(source, source_code))
            if cluster is not None:
                choice = (model, source_code, target_code, shortlist)
                models.use_machines(_machines(stack, cluster, settings, choice, models))
            journal = open_journal(stack, settings, wanted=in_files and not no_journal)
            runner = TranslationRunner(
                models,
                automatic,
                debug,
                as_text,
                document,
                format,
                bilingual,
                style,
                JobPolicy(journal, overwrite, retry_failed),
                events,
                applicable,
                assumed,
                hint,
            )
            inputs = runner.without_results(inputs)
            if not automatic:
                _check_outputs(inputs, models.suffix)
            if retry_failed and journal is None:
                raise OptionError(_RETRY_FAILED)
            if dry_run:
                for line in runner.plan(inputs):
                    typer.echo(line)
                raise typer.Exit
            code = runner.run(inputs)
            if verbose:
                for translator in models.used:
                    print_draft_report(translator.draft_report)
        raise typer.Exit(code)


def _machines(
    stack: ExitStack,
    address: str,
    settings: Settings,
    choice: tuple[str | None, str | None, str | None, bool],
    models: TranslationModels,
) -> LineTranslator:
    """The machines of a cluster, which translate as this machine would."""
    from edgeapp.cluster.node_worker import ModelChoice
    from edgeapp.cluster.remote_lines import RemoteLines
    from edgeapp.cluster.remote_models import Cluster

    cluster = stack.enter_context(Cluster(address, settings, ModelChoice("translator", choice)))
    own = models.translator.model
    if (cluster.model.folder.name, cluster.model.compute_type) != (
        own.folder.name,
        own.compute_type,
    ):
        raise OptionError(
            "the machines chose another model or compute type than this one: name them with -m "
            "and --compute-type"
        )
    return RemoteLines(cluster)


def _check_not_a_format(source: str | None) -> None:
    """Raise OptionError for the name of a format: -f is the format in `edgeapp transcribe`."""
    name = (source or "").strip().lower()
    if name in (*FORMATS, *WRITERS):
        raise OptionError(
            f"-f is the language of the text here (-f en), and {name} is a format: --format takes "
            f"{', '.join(WRITERS)}"
        )


def _may_be_a_file(name: str) -> bool:
    """Whether an argument is, or ends like, the name of a file."""
    # Not Path.exists, which raises for a text that is too long for a name.
    exists = os.path.exists(name)  # noqa: PTH110
    return exists or Path(name).suffix.lower() in _FILE_SUFFIXES


def _is_a_word(name: str) -> bool:
    """Whether an argument is a word of a text that was not quoted."""
    if is_address(name):
        return False
    return not (name == "-" or set(name) & {" ", "*", "[", os.sep} or _may_be_a_file(name))


def _inputs(
    files: Sequence[str],
    texts: Sequence[str],
    output: str | None,
    as_text: bool,
    remote: RemoteFiles | None,
) -> list[TextInput]:
    """The inputs, in their order, with where their translations go.

    Words with a space that name no file are text themselves.
    """
    sources: list[tuple[TextSource, FoundInput | None]] = []
    if len(files) > 1 and all(map(_is_a_word, files)):
        text = " ".join(files)
        raise OptionError(f'no file is called {files[0]}; quote a text: edgeapp translate "{text}"')
    for name in files:
        if " " in name.strip() and not _may_be_a_file(name):
            sources.append((TextSource("text", name), None))
        else:
            found = find_inputs([name], TEXT_SUFFIXES, remote, hint=_HINT)
            sources += [(_source_of(each), each) for each in found]
    sources += [(TextSource("text", text), None) for text in texts]
    sources = sources or [(TextSource("-"), None)]
    names: Sequence[OutputName | None] = [None] * len(sources)
    from_address = any(found is not None and found.remote is not None for _, found in sources)
    if (
        output is None
        and from_address
        and (len(sources) > 1 or is_subtitle_file(sources[0][0].name))
    ):
        raise OptionError("files from addresses need a folder for their translations: -o FOLDER")
    all_texts = all(source.text is not None for source, _ in sources)
    if not (output == "-" and len(sources) == 1) and not (output is None and all_texts):
        names = plan_translations(
            [source.name for source, _ in sources],
            output,
            subtitles=not as_text,
            names=[None if found is None else found.name for _, found in sources],
        )
    return [
        TextInput(source, name, found) for (source, found), name in zip(sources, names, strict=True)
    ]


def _source_of(found: FoundInput) -> TextSource:
    return TextSource(found.path, title=None if found.remote is None else found.shown)


def _check_outputs(inputs: Sequence[TextInput], suffix: str) -> None:
    """Check that every output is a file of its own."""
    paths = [each.output(suffix) for each in inputs if each.output is not None]
    check_no_collisions(paths, [e.source.name for e in inputs if e.source.text is None])


def _load_language_detection() -> None:
    from pipelines.text_language import detect_text_language

    with suppress(Exception):  # raised again where a language is needed
        detect_text_language("")


def _with_region(text: str | None, code: str | None) -> str | None:
    """The code of a language, or the given text where it names a region or script (zho_Hant)."""
    if text is None or code is None or not set("-_") & set(text.strip()):
        return code
    return text.strip()
