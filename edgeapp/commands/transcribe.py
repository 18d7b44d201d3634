"""`edgeapp transcribe`: recordings → text, subtitles, translations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    settings_from_flags,
)
from edgeapp.exit_codes import exit_with_code
from edgeapp.subtitles.formats import formats_of
from edgeapp.subtitles.word_cues import WordCueLayout
from pipelines import OptionError

__all__ = ["transcribe"]


def transcribe(
    audio: Annotated[list[str], typer.Argument(help="Audio or video files; - reads stdin.")],
    model: Model = None,
    language: Language = None,
    task: Task = "transcribe",
    output_format: Annotated[
        str | None,
        typer.Option(
            "-f", "--output-format", help="txt, srt, vtt, tsv, json or all; several with commas."
        ),
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("-o", "--output-dir", help="Folder for the output files.")
    ] = None,
    translate_to: TranslateTo = None,
    translation_model: TranslationModel = None,
    initial_prompt: Annotated[
        str | None,
        typer.Option(
            "--initial-prompt",
            help="Prompt before each segment (--batch-size 1: the first window): names, style.",
        ),
    ] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", help="Sampling temperature; 0 is greedy.")
    ] = 0.0,
    temperature_increment_on_fallback: Annotated[
        float,
        typer.Option(
            "--temperature-increment-on-fallback",
            help="Added to the temperature when a window fails a threshold; 0 disables it.",
        ),
    ] = 0.2,
    beam_size: Annotated[
        int | None,
        typer.Option("--beam-size", help="Number of beams at temperature 0. Default: greedy."),
    ] = None,
    best_of: Annotated[
        int | None, typer.Option("--best-of", help="Number of samples above temperature 0.")
    ] = None,
    patience: Annotated[
        float | None, typer.Option("--patience", help="Beam search patience; default 1.0.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            "--length-penalty",
            help="Length penalty of beams, 0 to 1. Default: rank by mean log probability.",
        ),
    ] = None,
    condition_on_previous_text: Annotated[
        str,
        typer.Option(
            "--condition-on-previous-text",
            help="True or False: prompt with the text before; with --batch-size 1.",
        ),
    ] = "True",
    compression_ratio_threshold: Annotated[
        float,
        typer.Option(
            "--compression-ratio-threshold", help="Above it, a window fails: it repeats itself."
        ),
    ] = 2.4,
    logprob_threshold: Annotated[
        float,
        typer.Option(
            "--logprob-threshold", help="Below it, a window fails (mean log probability)."
        ),
    ] = -1.0,
    no_speech_threshold: Annotated[
        float,
        typer.Option(
            "--no-speech-threshold",
            help="Above it, a window below --logprob-threshold is skipped as silence.",
        ),
    ] = 0.6,
    suppress_tokens: Annotated[
        str,
        typer.Option("--suppress-tokens", help="Token ids never decoded; -1: non-speech symbols."),
    ] = "-1",
    word_timestamps: Annotated[
        str, typer.Option("--word-timestamps", help="True or False: add the times of words.")
    ] = "False",
    max_line_width: Annotated[
        int | None,
        typer.Option("--max-line-width", help="Characters per subtitle line, with word times."),
    ] = None,
    max_line_count: Annotated[
        int | None, typer.Option("--max-line-count", help="Lines per subtitle, with word times.")
    ] = None,
    max_words_per_line: Annotated[
        int | None, typer.Option("--max-words-per-line", help="Words per line, with word times.")
    ] = None,
    highlight_words: Annotated[
        str, typer.Option("--highlight-words", help="True or False: underline the spoken word.")
    ] = "False",
    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size",
            help="Segments decoded in parallel, cut at pauses, without previous text; 1: window "
            "after window, exactly as openai-whisper.",
        ),
    ] = BATCH_SIZE,
    seed: Annotated[int, typer.Option("--seed", help="Random seed of sampling.")] = 0,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Transcribe recordings.

    Without -o and -f, text goes to stdout: live on a terminal, finished lines in a pipe. With -f
    and one format, the output goes to stdout in that format. With -o, or several formats, files
    are written, named after their recording; translations have the language in their name
    (talk.srt, talk.de.srt).
    """
    with exit_with_code(debug):
        settings = settings_from_flags(device, compute_type, threads)
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
            word_timestamps=words or layout.active,
            language=language,
            task=task,  # type: ignore[arg-type]  # checked by TranscribeOptions
            temperature=_temperatures(temperature, temperature_increment_on_fallback),
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
            suppress_tokens=_token_ids(suppress_tokens),
            seed=seed,
            batch_size=batch_size,
        )
        translate_to = translate_to and language_code_of(translate_to)
        pool = ModelPool(settings)
        transcriber = pool.transcriber(model, options.language, task)
        if translate_to is not None and options.language is not None:
            # The language is known: load the translator now, so that errors come early.
            source = "en" if task == "translate" else options.language
            if source != translate_to:  # else no translator is needed
                pool.translator(translation_model, source, translate_to)
        runner = TranscriptionRunner(
            pool,
            transcriber,
            options,
            translate_to,
            translation_model,
            formats,
            output_dir,
            debug,
            layout,
        )
        raise typer.Exit(runner.run(audio))


def _temperatures(first: float, step: float) -> tuple[float, ...]:
    """The temperatures of the fallback, computed as in openai-whisper's command line."""
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


def _token_ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise OptionError(
            f"--suppress-tokens takes token ids, separated by commas, not {text!r}"
        ) from None
