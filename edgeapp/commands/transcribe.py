"""`edgeapp transcribe`: recordings → text, subtitles, translations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeapp.batch.outputs import prepare_folder
from edgeapp.batch.runner import TranscriptionRunner
from edgeapp.batch.transcription_job import BATCH_SIZE
from edgeapp.commands.options import (
    ComputeType,
    Debug,
    Device,
    Language,
    Model,
    Task,
    Threads,
    TranslateTo,
    TranslationModel,
    chosen,
)
from edgeapp.exit_codes import exit_with_code
from edgeapp.subtitles.formats import formats_of
from edgeapp.subtitles.word_cues import WordCueLayout
from pipelines import OptionError

if TYPE_CHECKING:
    from pipelines import TranscribeOptions

__all__ = ["transcribe"]


def transcribe(
    audio: Annotated[list[str], typer.Argument(help="Audio or video files; - is stdin.")],
    model: Model = None,
    language: Language = None,
    task: Task = "transcribe",
    output_format: Annotated[
        str | None,
        typer.Option(
            "-f", "--output-format", help="txt, srt, vtt, tsv, json (a,b for several), all."
        ),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("-o", "--output-dir", help="Where files go.")
    ] = None,
    translate_to: TranslateTo = None,
    translation_model: TranslationModel = None,
    initial_prompt: Annotated[
        str | None,
        typer.Option("--initial-prompt", help="Text put before each piece: names, style."),
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", help="0 is greedy.")] = 0.0,
    temperature_increment_on_fallback: Annotated[
        float,
        typer.Option(
            "--temperature-increment-on-fallback",
            help="Added when a window's text fails a threshold; 0: never.",
        ),
    ] = 0.2,
    beam_size: Annotated[
        int | None, typer.Option("--beam-size", help="Beams at temperature 0; greedy if not given.")
    ] = None,
    best_of: Annotated[
        int | None, typer.Option("--best-of", help="Samples to choose from above temperature 0.")
    ] = None,
    patience: Annotated[
        float | None, typer.Option("--patience", help="More makes the beams search on for longer.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option("--length-penalty", help="0 to 1: how much length counts among beams."),
    ] = None,
    condition_on_previous_text: Annotated[
        str,
        typer.Option(
            "--condition-on-previous-text", help="True or False; matters with --batch-size 1."
        ),
    ] = "True",
    compression_ratio_threshold: Annotated[
        float, typer.Option("--compression-ratio-threshold", help="Above it, text repeats itself.")
    ] = 2.4,
    logprob_threshold: Annotated[
        float, typer.Option("--logprob-threshold", help="Below it, text is too unsure.")
    ] = -1.0,
    no_speech_threshold: Annotated[
        float, typer.Option("--no-speech-threshold", help="Above it, a window holds no speech.")
    ] = 0.6,
    suppress_tokens: Annotated[
        str, typer.Option("--suppress-tokens", help="Ids never chosen; -1: unspoken symbols.")
    ] = "-1",
    word_timestamps: Annotated[
        str, typer.Option("--word-timestamps", help="True or False: find when each word is said.")
    ] = "False",
    max_line_width: Annotated[
        int | None, typer.Option("--max-line-width", help="Of subtitles by word: characters.")
    ] = None,
    max_line_count: Annotated[
        int | None, typer.Option("--max-line-count", help="Of subtitles by word: lines.")
    ] = None,
    max_words_per_line: Annotated[
        int | None, typer.Option("--max-words-per-line", help="Of subtitles by word: words.")
    ] = None,
    highlight_words: Annotated[
        str, typer.Option("--highlight-words", help="True or False: underline the word spoken.")
    ] = "False",
    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size",
            help="Pieces decoded side by side, cut at pauses and each without the text before it; "
            "1: window after window, exactly as openai-whisper.",
        ),
    ] = BATCH_SIZE,
    seed: Annotated[int, typer.Option("--seed", help="Makes sampling repeatable.")] = 0,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Turn recordings into text.

    Without -o and -f, text goes to stdout: with live words on a terminal, plain lines in a pipe.
    With -f alone and one format, that goes to stdout. With -o, or -f all, files are written, named
    after their recording; a translation goes beside them (talk.srt, talk.de.srt).
    """
    with exit_with_code(debug):
        settings = chosen(device, compute_type, threads)
        formats = formats_of(output_format) if output_format else ()
        if formats and len(formats) > 1 or output_dir is not None:
            output_dir = output_dir or Path()
            formats = formats or formats_of("all")
        if output_dir is not None:
            prepare_folder(output_dir)
        from edgeapp.model_pool import ModelPool, language_code_of
        from pipelines import TranscribeOptions

        layout = WordCueLayout(
            max_line_width,
            max_line_count,
            max_words_per_line,
            _boolean("--highlight-words", highlight_words),
        )
        words = _boolean("--word-timestamps", word_timestamps)
        options = TranscribeOptions(
            word_timestamps=words or layout.asked,
            language=language,
            task=task,  # type: ignore[arg-type]  # checked by TranscribeOptions
            temperature=_ladder(temperature, temperature_increment_on_fallback),
            beam_size=beam_size,
            best_of=best_of,
            patience=patience,
            length_penalty=length_penalty,
            compression_ratio_threshold=compression_ratio_threshold,
            logprob_threshold=logprob_threshold,
            no_speech_threshold=no_speech_threshold,
            condition_on_previous_text=_boolean(
                "--condition-on-previous-text", condition_on_previous_text
            ),
            initial_prompt=initial_prompt,
            suppress_tokens=_ids(suppress_tokens),
            seed=seed,
            batch_size=batch_size,
        )
        translate_to = translate_to and language_code_of(translate_to)
        pool = ModelPool(settings)
        recogniser = pool.transcriber(model, options.language, task)
        if translate_to is not None and options.language is not None:
            # Known already: say at once what cannot be done.
            pool.translator(translation_model, _spoken(options), translate_to)
        batch = TranscriptionRunner(
            pool,
            recogniser,
            options,
            translate_to,
            translation_model,
            formats,
            output_dir,
            debug,
            layout,
        )
        raise typer.Exit(batch.run(audio))


def _spoken(options: TranscribeOptions) -> str | None:
    return "en" if options.task == "translate" else options.language


def _ladder(first: float, step: float) -> tuple[float, ...]:
    """The temperatures to try, as openai-whisper's command line makes them."""
    if step <= 0 or first < 0:
        return (first,)
    count = int((1.0 + 1e-6 - first) / step) if first <= 1.0 else 0
    return tuple(round(first + i * step, 6) for i in range(count + 1))


def _boolean(flag: str, text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    try:
        return values[text.lower()]
    except KeyError:
        raise OptionError(f"{flag} takes True or False, not {text!r}") from None


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise OptionError(f"--suppress-tokens takes ids behind commas, not {text!r}") from None
