"""`edgeapp translate`: text → text, line by line."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgeapp.batch.html_job import HTML_SUFFIXES, HtmlJob, text_of_html_file
from edgeapp.batch.language_check import LanguageCheck, language_name
from edgeapp.batch.line_formats import WRITERS
from edgeapp.batch.outputs import check_no_collisions, plan_translations
from edgeapp.batch.subtitle_job import UNREADABLE_SUFFIXES as UNREADABLE
from edgeapp.batch.subtitle_job import SubtitleJob
from edgeapp.batch.text_source import OpenText, TextSource
from edgeapp.batch.translation_job import LineTranslator, TranslationJob
from edgeapp.commands.completion import complete_languages
from edgeapp.commands.options import (
    COMPUTING,
    INPUT_OUTPUT,
    LANGUAGES,
    MODELS,
    ComputeType,
    Debug,
    Device,
    Model,
    ModelDirectory,
    Threads,
    known_language,
    settings_from_flags,
    use_model_directory,
)
from edgeapp.console import print_note
from edgeapp.documents.subtitle_file import SUBTITLE_SUFFIXES, is_subtitle_file, subtitle_format
from edgeapp.exit_codes import InputFailures, exit_with_code
from edgeapp.subtitles.formats import FORMATS
from edgeapp.subtitles.style import DEFAULT_STYLE, STYLES, style_of
from pipelines import InputError, OptionError

if TYPE_CHECKING:
    from edgeapp.model_pool import ModelPool
    from pipelines import TranslateOptions, Translator

__all__ = ["translate"]

_AUTO = "auto"
OutputName = Callable[[str], Path]  # from the target language


def translate(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Text files; none or - reads stdin. Words with a space that name no file are "
            "text.",
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
    beam_size: Annotated[
        int,
        typer.Option(
            "--beam-size",
            min=1,
            help="Number of beams; 1 is greedy and faster.",
            rich_help_panel="Decoding",
        ),
    ] = 1,
    format: Annotated[
        Literal["text", "tsv", "json"],
        typer.Option(
            "--format",
            help="tsv: source, tab, translation; json: one object per line.",
            case_sensitive=False,
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = "text",
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Add the word alignment as source-target pairs: 0-0 1-2 (after ||| in text; "
            "words are separated by spaces).",
            rich_help_panel="Decoding",
        ),
    ] = False,
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
    debug: Debug = False,
) -> None:
    """Translate text: exactly one output line for each input line, in every format.

    Each line is written as soon as it is translated. With -o, an interrupted run keeps its lines
    in a file that ends with .part; the same command resumes there if its input is a regular file.

    Subtitles (srt, vtt, ass, ttml …), also from a pipe, are translated by whole sentences and keep
    their times: film.srt becomes film.de.srt. They are written when all is translated, so an
    interrupted run begins anew. HTML keeps its tags.
    """
    with exit_with_code(debug):
        # Languages first: an error about them must not wait for a model or an input.
        _check_not_a_format(source)
        automatic = source is not None and source.strip().lower() == _AUTO
        source_code = None if automatic else known_language(source, "--from")
        target_code = known_language(target, "--to")
        inputs = _inputs(files, text)
        style = style_of(subtitle_style)
        for_text = {
            "--format": format != "text", "--document": document, "--alignments": alignments
        }  # fmt: skip
        for_subtitles = {
            "--bilingual": bilingual, "--subtitle-style": style.name != DEFAULT_STYLE.name
        }  # fmt: skip
        applicable = _Applicable(for_text, for_subtitles)
        for each in inputs:
            if as_text or each.text is not None or os.path.isfile(each.name):  # noqa: PTH113
                literal = as_text or each.text is not None
                applicable.check(each.shown, "text" if literal else _kind_of_name(each.name))
        names = _planned(inputs, output, as_text)
        settings = settings_from_flags(device, compute_type, threads)
        use_model_directory(model_dir)
        if source is None and model is None and settings.translation_model is None:
            # Text is in English where nothing else is said, and English needs no translation.
            automatic = target_code == "en"
        if [each.name for each in inputs] == ["-"] and sys.stdin.isatty():
            print_note("reading from the terminal; press Ctrl-D to end")
        # Takes half a second, while the model is loaded.
        threading.Thread(target=_load_language_detection, daemon=True).start()
        from edgeapp.model_pool import ModelPool

        failures = InputFailures(len(inputs), debug)
        with ExitStack() as stack:
            models = _Models(
                stack,
                ModelPool(settings),
                model,
                _with_region(target, target_code),
                target_code,
                beam_size,
                alignments,
                shortlist,
                workers,
            )
            if not automatic:
                models.load(source_code, _with_region(source, source_code))
                paths = [None if name is None else name(models.suffix) for name in names]
                _check_outputs(paths, inputs)
            for each, name in zip(inputs, names, strict=True):
                with failures.catch(each.shown), ExitStack() as opened_files:
                    kind = "text" if as_text or each.text is not None else _kind(each.name)
                    film, content, opened = Path(each.name), None, None
                    if kind == "text" and not as_text and each.text is None:
                        opened = each.open(opened_files, with_head=True)
                        if (form := _subtitles_in(each, opened)) is not None:
                            film, content = Path(f"{each.shown}.{form}"), _rest(opened)
                            kind = "subtitles"
                    applicable.check(each.shown, kind)
                    if automatic and kind == "subtitles":
                        models.load(_detected(each, _said(film, content)), None)
                    elif automatic and kind == "html":
                        models.load(_detected(each, text_of_html_file(film)), None)
                    elif automatic:
                        opened = opened or each.open(opened_files, with_head=True)
                        head = opened.head.decode(errors="ignore").strip()
                        models.load(_detected(each, head), None)
                    path = None if name is None else name(models.suffix)
                    if automatic:
                        _check_outputs([path], inputs)
                    if kind == "subtitles":
                        translator = models.line_translator
                        SubtitleJob(
                            translator, models.options, film, bilingual, style, content
                        ).run(path)
                        continue
                    if kind == "html":
                        HtmlJob(models.line_translator, models.options, film).run(path)
                        continue
                    TranslationJob(
                        models.line_translator,
                        models.translator,
                        models.options,
                        each,
                        document,
                        format,
                        LanguageCheck(None if automatic else models.source_language),
                        opened,
                    ).run(path)
        raise typer.Exit(failures.exit_code())


@dataclass
class _Models:
    """The model for the language of the inputs; another one where the language changes.

    Attributes:
        stack: Ends worker processes.
        pool: Loads models.
        name: The model that was named, or None.
        target: Language to translate into, as the model names it, or None.
        target_code: The code of that language, or None.
        beam_size, alignments, shortlist, workers: Options of the command line.
    """

    stack: ExitStack
    pool: ModelPool
    name: str | None
    target: str | None
    target_code: str | None
    beam_size: int
    alignments: bool
    shortlist: bool
    workers: int

    def __post_init__(self) -> None:
        self._parallel: dict[int, LineTranslator] = {}

    def load(self, source_code: str | None, source: str | None) -> None:
        """Load the model.

        Args:
            source_code: Code of the language of the text, or None.
            source: The same as the model names it, where it was named so.

        Raises:
            EdgeError: As ModelPool.translator, and for languages that the model lacks.
        """
        from pipelines import TranslateOptions

        self.translator = self.pool.translator(
            self.name, source_code, self.target_code, self.shortlist
        )
        self.options = TranslateOptions(
            target=self.target if self.translator.target_codes else None,
            source_language=source or source_code,
            beam_size=self.beam_size,
            word_alignments=self.alignments,
        )
        _check_languages(self.translator, self.options)
        self.line_translator = self._with_workers(self.translator)

    @property
    def source_language(self) -> str | None:
        """Code of the language from which is translated; None if it is not known."""
        return self.options.source_language or self.translator.source_language

    @property
    def suffix(self) -> str:
        """The language in the names of output files."""
        return self.target or self.translator.target_language or "translated"

    def _with_workers(self, translator: Translator) -> LineTranslator:
        """The translator itself, or `workers` processes that share its threads."""
        if self.workers == 1:
            return translator
        if id(translator) not in self._parallel:
            from pipelines import ParallelTranslator

            threads = max(1, translator.engine.threads // self.workers)
            processes = ParallelTranslator(translator, self.workers, threads)
            self._parallel[id(translator)] = self.stack.enter_context(processes)
        return self._parallel[id(translator)]


def _kind(name: str) -> str:
    """What an input is, by its suffix: "text", "subtitles" or "html".

    Raises:
        InputError: Translation line by line would spoil its structure.
    """
    kind, suffix = _kind_of_name(name), Path(name).suffix.lower()
    if kind == "text" and suffix in UNREADABLE:
        raise InputError(
            f"{name}: a {suffix} file has a structure that translation line by line would spoil; "
            "--as-text does it all the same"
        )
    return kind


def _kind_of_name(name: str) -> str:
    if is_subtitle_file(name):
        return "subtitles"
    return "html" if Path(name).suffix.lower() in HTML_SUFFIXES else "text"


@dataclass(frozen=True)
class _Applicable:
    """Options that are given, and apply to one kind of input only.

    Attributes:
        text: Those for text, each with whether it is given.
        subtitles: Those for subtitles.
    """

    text: Mapping[str, bool]
    subtitles: Mapping[str, bool]

    def check(self, name: str, kind: str) -> None:
        """Raise OptionError if an option has no effect on an input of this kind."""
        other, options = {
            "text": ("subtitles", self.subtitles),
            "subtitles": ("text", self.text),
            "html": ("text or subtitles", {**self.text, **self.subtitles}),
        }[kind]
        wrong = [option for option, given in options.items() if given]
        if wrong:
            raise OptionError(f"{name}: {', '.join(wrong)} applies to {other}, and this is {kind}")


def _subtitles_in(source: TextSource, opened: OpenText) -> str | None:
    """The format of the subtitles that an input without the name of a subtitle file holds.

    Raises:
        InputError: It is a regular file, whose name should say so.
    """
    form = subtitle_format(opened.head)
    if form is not None and opened.size is not None:
        raise InputError(
            f"{source.name} holds {form} subtitles: rename it to {Path(source.name).stem}.{form}, "
            "or translate its lines with --as-text"
        )
    return form


def _rest(opened: OpenText) -> bytes:
    """All bytes of an input of which the first have been read."""
    return opened.head + opened.file.read()


def _check_not_a_format(source: str | None) -> None:
    """Raise OptionError for the name of a format: -f is the format in `edgeapp transcribe`."""
    name = (source or "").strip().lower()
    if name in (*FORMATS, *WRITERS):
        raise OptionError(
            f"-f is the language of the text here (-f en), and {name} is a format: --format takes "
            f"{', '.join(WRITERS)}"
        )


def _inputs(files: Sequence[str] | None, texts: Sequence[str] | None) -> list[TextSource]:
    """The inputs, in their order. Words with a space that name no file are text themselves."""
    inputs = []
    names = list(files or ())
    if len(names) > 1 and all(map(_is_a_word, names)):
        text = " ".join(names)
        raise OptionError(f'no file is called {names[0]}; quote a text: edgeapp translate "{text}"')
    for name in names:
        is_text = " " in name.strip() and not _may_be_a_file(name)
        inputs.append(TextSource("text", name) if is_text else TextSource(name))
    inputs += [TextSource("text", text) for text in texts or ()]
    return inputs or [TextSource("-")]


def _may_be_a_file(name: str) -> bool:
    """Whether an argument is, or ends like, the name of a file."""
    suffixes = {".txt", *SUBTITLE_SUFFIXES, *HTML_SUFFIXES, *UNREADABLE}
    # Not Path.exists, which raises for a text that is too long for a name.
    return os.path.exists(name) or Path(name).suffix.lower() in suffixes  # noqa: PTH110


def _is_a_word(name: str) -> bool:
    """Whether an argument is a word of a text that was not quoted."""
    return not (name == "-" or set(name) & {" ", os.sep} or _may_be_a_file(name))


def _planned(
    inputs: Sequence[TextSource], output: str | None, as_text: bool
) -> list[OutputName | None]:
    """Where the translation of each input goes: as plan_translations; texts share stdout."""
    if output == "-" and len(inputs) == 1:
        return [None]
    if output is None and all(each.text is not None for each in inputs):
        return [None] * len(inputs)
    return plan_translations([each.name for each in inputs], output, subtitles=not as_text)


def _check_outputs(paths: Sequence[Path | None], inputs: Sequence[TextSource]) -> None:
    read = [each.name for each in inputs if each.text is None]
    check_no_collisions([path for path in paths if path is not None], read)


def _said(film: Path, content: bytes | None) -> str:
    """What the first cues of a subtitle file say."""
    from edgeapp.documents.subtitle_file import parse, read
    from edgeapp.documents.subtitle_markup import plain_text

    file = read(film) if content is None else parse(content, film.suffix[1:], film.stem)
    return "\n".join(plain_text(cue.text, file.format) for cue in file.cues[:50])


def _detected(source: TextSource, head: str) -> str:
    """The language of an input, told from its first lines.

    Raises:
        InputError: It cannot be told.
    """
    from pipelines import detect_text_language

    found = detect_text_language(head)
    if found is None:
        raise InputError(
            f"{source.shown}: the language cannot be told from its first {len(head)} characters; "
            "name it with --from, such as --from en"
        )
    print_note(f"{source.shown}: detected language: {language_name(found.code)}")
    return found.code


def _load_language_detection() -> None:
    from pipelines import detect_text_language

    with suppress(Exception):  # raised again where a language is needed
        detect_text_language("")


def _check_languages(translator: Translator, options: TranslateOptions) -> None:
    """Raise for languages that are missing or that the model lacks, before any input is read.

    Raises:
        UnsupportedTask: The model does not translate from or into the language.
        OptionError: The model needs --from.
    """
    source = options.source_language or translator.source or translator.source_language
    if translator.source_codes and not source:
        raise OptionError(
            f"{translator.name} needs the language of the text: name it with --from, such as "
            f"--from en, or --from auto; it has {', '.join(translator.source_codes)}"
        )
    # A missing target is no error yet: each line may name its own (">>deu<< Good morning.").
    translator.translate_lines([], options)


def _with_region(text: str | None, code: str | None) -> str | None:
    """The code of a language, or the given text where it names a region or script (zho_Hant)."""
    if text is None or code is None or not set("-_") & set(text.strip()):
        return code
    return text.strip()
