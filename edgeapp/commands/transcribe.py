"""`edgeapp transcribe`: recordings → text, subtitles, translations."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from edgeapp.batch.find_inputs import MEDIA_SUFFIXES, find_inputs, read_list
from edgeapp.batch.journal.decisions import JobPolicy
from edgeapp.batch.recordings.transcript_output import TranscriptOutput
from edgeapp.batch.recordings.transcription_runner import TranscriptionRunner, TranslatorSource
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
from edgeapp.commands.options.command import GroupedCommand
from edgeapp.commands.options.common import (
    COMPUTING,
    DECODING,
    INPUT_OUTPUT,
    OPTIONAL_FLOAT,
    OPTIONAL_INT,
    SWITCHED,
    WORDS,
    ComputeType,
    Debug,
    Device,
    Draft,
    DraftModel,
    Model,
    ModelDirectory,
    NoDownload,
    Switch,
    Threads,
    TranslateTo,
    TranslationModel,
    drafts_from_flags,
    known_language,
    optional_float,
    settings_from_flags,
    use_model_directory,
)
from edgeapp.commands.options.declared import Given, declared, values_of, without_json
from edgeapp.commands.options.download import find_or_pull_recognizer
from edgeapp.commands.options.refused import REFUSED
from edgeapp.console import print_note
from edgeapp.documents.transcript_formats import FORMATS
from edgeapp.english_only import choosing_language
from edgeapp.exit_codes import exit_with_code
from edgeapp.subtitles.style import AS_RECOGNIZED, DEFAULT_STYLE, STYLES, style_of
from edgeapp.subtitles.word_cues import WordCueLayout
from pipelines import OptionError, TranscribeOptions
from pipelines.loading import device_name

if TYPE_CHECKING:
    from edgeapp.cluster.remote_models import Cluster
    from edgeapp.settings import Settings
    from pipelines import Transcriber

__all__ = ["TranscribeCommand", "recognition_options", "transcribe"]

_RETRY_FAILED = (
    "--retry-failed needs the journal: results in files (-o FOLDER), and no --no-journal"
)


class TranscribeCommand(GroupedCommand):
    """Also refuses the options of openai-whisper and whisper-ctranslate2 that are missing."""

    refused = REFUSED


def _decoding(*names: str, help: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=DECODING, **settings)


def _words(*names: str, help: str, **settings: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=WORDS, **settings)


def _step(text: str | float | None) -> float:
    """An increment of the temperature; None is none."""
    return optional_float(text) or 0.0


def _complete_formats() -> list[str]:
    return [*FORMATS, "all"]


@declared(chosen=TranscribeOptions)
def transcribe(
    *,
    audio: Annotated[
        list[str] | None,
        typer.Argument(
            help="Audio or video files, folders, or quoted patterns; - reads stdin.",
            metavar="FILE",
        ),
    ] = None,
    model: Model = None,
    model_dir: ModelDirectory = None,
    no_download: NoDownload = False,
    translation_model: TranslationModel = None,
    draft_model: DraftModel = None,
    draft: Draft = None,
    chosen: Given,
    translate_to: TranslateTo = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--output-format",
            help="Format of the output; several with commas.",
            metavar=f"[{'|'.join([*FORMATS, 'all'])}]",
            rich_help_panel=INPUT_OUTPUT,
            autocompletion=_complete_formats,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output-dir",
            "--output",
            help="Folder for the output files, or a file that ends with a format (talk.srt).",
            metavar="FOLDER|FILE",
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
    pretty_json: Annotated[
        Switch,
        typer.Option(
            "-p", "--pretty-json", help="Indent JSON.", rich_help_panel=INPUT_OUTPUT, **SWITCHED
        ),
    ] = "False",
    verbose: Annotated[
        Switch | None,
        typer.Option(
            "--verbose",
            help="True: also print the text with its times, and what drafts did; False: never "
            "print times.",
            rich_help_panel=INPUT_OUTPUT,
            **SWITCHED,
        ),
    ] = None,
    temperature_increment_on_fallback: Annotated[
        float | None,
        _decoding(
            "--temperature-increment-on-fallback",
            help="Added to the temperature when a window fails a threshold; None disables it.",
            show_default="0.2",
            parser=_step,
            metavar=OPTIONAL_FLOAT["metavar"],
        ),
    ] = None,
    batched: Annotated[
        Switch | None,
        _decoding("--batched", help="False: --batch-size 1.", **SWITCHED),
    ] = None,
    highlight_words: Annotated[
        Switch,
        _words("--highlight-words", help="Underline the spoken word; ass: karaoke.", **SWITCHED),
    ] = "False",
    max_line_width: Annotated[
        int | None,
        _words("--max-line-width", help="Characters per subtitle line.", **OPTIONAL_INT),
    ] = None,
    max_line_count: Annotated[
        int | None, _words("--max-line-count", help="Lines per subtitle.", **OPTIONAL_INT)
    ] = None,
    max_words_per_line: Annotated[
        int | None, _words("--max-words-per-line", help="Words per line.", **OPTIONAL_INT)
    ] = None,
    subtitle_style: Annotated[
        str,
        _words(
            "--subtitle-style",
            help="Rules of subtitles, unless the options above give a layout; whisper: one cue "
            "per segment.",
            metavar=f"[{'|'.join([*STYLES, AS_RECOGNIZED])}]",
        ),
    ] = DEFAULT_STYLE.name,
    bilingual: Annotated[
        bool,
        _words(
            "--bilingual",
            help="Subtitles with --translate-to: the original above each translation.",
        ),
    ] = False,
    device: Device = None,
    device_index: Annotated[
        int | None,
        typer.Option(
            "--device-index",
            min=0,
            help="Number of the GPU: --device cuda:N.",
            rich_help_panel=COMPUTING,
        ),
    ] = None,
    compute_type: ComputeType = None,
    fp16: Annotated[
        Switch | None,
        typer.Option(
            "--fp16",
            help="True: --compute-type float16; False: float32.",
            rich_help_panel=COMPUTING,
            **SWITCHED,
        ),
    ] = None,
    threads: Threads = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="Machines of a Ray cluster, or local; they share the recordings.",
            metavar="ADDRESS|local",
            rich_help_panel=COMPUTING,
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Transcribe recordings.

    Without -o and -f, text goes to stdout: live on a terminal, finished lines in a pipe. With -f,
    one recording in one format goes to stdout, too (-o -: several); folders, several recordings or
    formats go to files beside their recordings, with -o OUT to a folder. Files are named after
    their recording; translations have the language in their name (talk.srt, talk.de.srt).

    A run that was ended goes on where it was, inside a recording too, if the same command is given
    again with files as results; `edgeapp jobs` lists what was done.

    Options are those of openai-whisper, also with _ for -; assets/docs/command-line.md compares
    them.
    """
    with exit_with_code(debug), ExitStack() as stack:
        if not audio and from_list is None:
            raise OptionError(
                "name a recording, a folder or a list of recordings: edgeapp transcribe talk.mp3; "
                "`edgeapp transcribe --help` lists the options"
            )
        if device_index is not None:
            device = device_name(device or "auto", device_index)
        if fp16 is not None:
            compute_type = _compute_type_of(fp16 == "True", compute_type)
        style = None if subtitle_style == AS_RECOGNIZED else style_of(subtitle_style)
        settings = settings_from_flags(
            device, compute_type, threads, no_download=no_download or dry_run
        )
        layout = WordCueLayout(
            max_line_width, max_line_count, max_words_per_line, highlight_words == "True"
        )
        use_model_directory(model_dir)
        target = known_language(translate_to, "--translate-to")
        found = find_inputs(
            [*(audio or ()), *(read_list(from_list) if from_list else ())],
            MEDIA_SUFFIXES,
            remote_files(allow_urls, allow_private),
        )
        destination = TranscriptOutput.of(output, output_format, found, target, bilingual)
        defaults = settings.transcribe
        words = chosen.get("word_timestamps", defaults.get("word_timestamps"))
        if "json" not in destination.formats:
            defaults = without_json(chosen, defaults, "-f json")
        options = recognition_options(
            {**chosen, "word_timestamps": "True"} if layout.active else chosen,
            defaults, target, batched, temperature_increment_on_fallback,
        )  # fmt: skip
        from edgeapp.model_pool import ModelPool

        in_files = destination.folder is not None
        if events and (not in_files or verbose == "True"):
            raise OptionError(
                "--json needs stdout for itself: write results to files with -o, without --verbose"
            )
        if retry_failed and (no_journal or not in_files):
            raise OptionError(_RETRY_FAILED)
        drafts = drafts_from_flags(draft_model, draft)
        if cluster is not None and (draft_model or draft):
            raise OptionError("--draft and --draft-model do nothing on the machines of a cluster")
        if cluster is not None and not in_files:
            raise OptionError("--cluster needs results in files: -o FOLDER")
        pool = ModelPool(settings)
        # The language of the text that is translated into the target.
        spoken = "en" if options.task == "translate" else options.language
        if cluster is None:
            find_or_pull_recognizer(pool, model, options, drafts)
            if target not in (None, spoken) and (spoken or translation_model):
                pool.find_translator(translation_model, spoken, target)
        if not dry_run:
            end_without_files(found, "audio", events=events, debug=debug)
        destination.prepare()
        if output is None and in_files:
            print_note(f"results go to {destination.listing()}; -o names another folder")
        machines = _machines(cluster, settings, model, options)
        transcriber = machines or pool.transcriber(
            model, choosing_language(options), options.task, drafts
        )
        if machines is None and options.language is not None and target not in (None, spoken):
            # The language is known: load the translator now, so that errors come early.
            pool.translator(translation_model, spoken, target)
        journal = open_journal(stack, settings, wanted=in_files and not no_journal)
        runner = TranscriptionRunner(
            pool,
            cast("Transcriber", transcriber),
            options,
            target,
            translation_model,
            destination,
            debug,
            layout,
            verbose=_boolean(verbose),
            pretty_json=pretty_json == "True",
            policy=JobPolicy(journal, overwrite, retry_failed),
            style=style,
            events=events,
            translators=cast(TranslatorSource | None, machines),
            computes_words=words not in (False, "False"),
        )
        if retry_failed and journal is None:
            raise OptionError(_RETRY_FAILED)
        if dry_run:
            for line in runner.plan(found):
                typer.echo(line)
            raise typer.Exit
        if machines is not None:
            from edgeapp.cluster.cluster_run import run_on_cluster

            with machines:
                raise typer.Exit(run_on_cluster(runner, machines, found))
        raise typer.Exit(runner.run(found))


def _machines(
    address: str | None,
    settings: Settings,
    model: str | None,
    options: TranscribeOptions,
) -> Cluster | None:
    """The machines of a cluster, or None without an address."""
    if address is None:
        return None
    from edgeapp.cluster.node_worker import ModelChoice
    from edgeapp.cluster.remote_models import Cluster

    choice = (model, choosing_language(options), options.task)
    return Cluster(address, settings, ModelChoice("transcriber", choice))


def recognition_options(
    chosen: Given,
    settings: Mapping[str, Any],
    target: str | None,
    batched: Switch | None = None,
    step: float | None = None,
) -> TranscribeOptions:
    """Return the options of a recognition.

    Args:
        chosen: Values of flags.
        settings: Name of a field → its default.
        target: Language into which the text is translated.
        batched: Value of --batched.
        step: Value of --temperature-increment-on-fallback.

    Raises:
        OptionError: A flag has a wrong value, or two exclude each other.
    """
    excluded: dict[str, Any] = {} if target is None else {"multilingual": True}
    if batched == "True":
        excluded |= {"batch_size": 1, "vad_filter": False}
    elif batched == "False":
        chosen = {**chosen, "batch_size": _sequential(chosen.get("batch_size"))}
    defaults = {name: each for name, each in settings.items() if excluded.get(name) != each}
    values = values_of(TranscribeOptions, chosen, defaults)
    temperature = values.get("temperature", 0.0)
    if isinstance(temperature, int | float) or step is not None:
        first = temperature if isinstance(temperature, int | float) else temperature[0]
        values["temperature"] = _temperatures(float(first), 0.2 if step is None else step)
    options = TranscribeOptions(**values)
    if target is not None and options.multilingual:
        raise OptionError(
            "--multilingual and --translate-to exclude each other: one model translates all"
        )
    return options


def _temperatures(first: float, step: float) -> tuple[float, ...]:
    """The temperatures of the fallback, computed as in openai-whisper's command line."""
    if step <= 0 or first < 0:
        return (first,)
    count = int((1.0 + 1e-6 - first) / step) if first <= 1.0 else 0
    return tuple(round(first + i * step, 6) for i in range(count + 1))


def _boolean(switch: str | None) -> bool | None:
    return None if switch is None else switch == "True"


def _sequential(batch_size: int | None) -> int:
    """Return the batch size of --batched False.

    Raises:
        OptionError: Another one is given.
    """
    if batch_size not in (None, 1):
        raise OptionError(f"--batched False and --batch-size {batch_size} exclude each other")
    return 1


def _compute_type_of(fp16: bool, compute_type: str | None) -> str:
    if compute_type is not None:
        raise OptionError(f"--fp16 and --compute-type {compute_type} exclude each other")
    return "float16" if fp16 else "float32"
