"""`edgeapp live`: captions of what is being said, on the terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

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
from edgeapp.exit_codes import DONE, discard_stdout, exit_with_code
from pipelines import OptionError

if TYPE_CHECKING:
    from edgeapp.live.capture import LiveCapture
    from edgeapp.live.files import LiveFiles
    from edgeapp.live.session import LiveSession
    from edgeapp.model_pool import ModelPool
    from pipelines import LiveOptions

__all__ = ["live"]


def live(
    model: Model = None,
    language: Language = None,
    task: Task = "transcribe",
    translate_to: TranslateTo = None,
    translation_model: TranslationModel = None,
    list_devices: Annotated[
        bool, typer.Option("--list-devices", help="Show the microphones and end.")
    ] = False,
    device_name: Annotated[
        str | None,
        typer.Option("--device-name", help="A microphone: its number or part of its name."),
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option("--from-file", help="Play a recording as if it were spoken.")
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", help="How fast to play it; 0: as fast as possible.")
    ] = 1.0,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            help="agreement: commit what two updates agree on; attention: sooner, less sure.",
        ),
    ] = "agreement",
    min_chunk: Annotated[
        float, typer.Option("--min-chunk", help="Seconds of new audio between two updates.")
    ] = 0.5,
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", help="A .srt, .vtt, .txt or .jsonl file; may be repeated."),
    ] = None,
    save_audio: Annotated[
        Path | None, typer.Option("--save-audio", help="Keep what was heard: a .wav file.")
    ] = None,
    initial_prompt: Annotated[
        str | None, typer.Option("--initial-prompt", help="Text it is always reminded of: names.")
    ] = None,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Caption what is being said, live.

    On a terminal: committed text solid, what may still change dim, the translation below. In a
    pipe: one JSON event a line. Ctrl-C ends; what was said before it is still written.
    """
    with exit_with_code(debug):
        if list_devices:
            _list_devices()
            raise typer.Exit(DONE)
        if policy not in ("agreement", "attention"):
            raise OptionError(f"--policy takes agreement or attention, not {policy!r}")
        if speed < 0:
            raise OptionError(f"--speed must be 0 or more, not {speed:g}")
        settings = chosen(device, compute_type, threads)
        from edgeapp.live.capture import LiveCapture
        from edgeapp.live.files import LiveFiles, planned
        from edgeapp.model_pool import ModelPool, language_code_of
        from pipelines import LiveOptions, TranscribeOptions

        translate_to = translate_to and language_code_of(translate_to)
        written = planned(output or (), translate_to)
        options = LiveOptions(
            transcribe=TranscribeOptions(
                language=language,
                task=cast(Literal["transcribe", "translate"], task),
                initial_prompt=initial_prompt,
            ),
            min_chunk_s=min_chunk,
            policy=cast(Literal["agreement", "attention"], policy),
        )
        with ExitStack() as stack:
            source = LiveCapture(stack, from_file, speed, device_name)
            session = _session(ModelPool(settings), options, model, translate_to, translation_model)
            outputs = []
            for path, translated in written:
                outputs.append(LiveFiles(path, translated=translated))
                stack.callback(outputs[-1].close)
            if save_audio is not None:
                source.keep(save_audio)
            stack.enter_context(_stopped_by_ctrl_c(source))
            _run(session, source, outputs, translated=translate_to is not None)


def _session(
    pool: ModelPool,
    options: LiveOptions,
    model: str | None,
    target: str | None,
    translation_model: str | None,
) -> LiveSession:
    from edgeapp.live.session import LiveSession
    from edgeapp.priorities import Priority
    from pipelines import LiveTranscriber, LiveTranslator, TranslateOptions

    spoken, task = options.transcribe.language, options.transcribe.task
    recogniser = pool.transcriber(model, spoken, task)
    translator = None
    if target is not None:
        if task == "translate" or not recogniser.capabilities.multilingual:
            spoken = "en"
        if spoken is None:
            raise OptionError("--translate-to needs --language: the translator is chosen by it")
        found = pool.translator(translation_model, spoken, target)
        several = target if found.target_codes else None
        translator = LiveTranslator(
            found, TranslateOptions(target=several, priority=Priority.LIVE_TRANSLATION)
        )
    return LiveSession(LiveTranscriber(recogniser, options), translator)


def _run(
    session: LiveSession, source: LiveCapture, outputs: list[LiveFiles], *, translated: bool
) -> None:
    from edgeapp.live.view import CaptionView, JsonView
    from pipelines import UpdateDecoded

    view = CaptionView(translated=translated) if sys.stdout.isatty() else JsonView()
    shown = True
    with view:
        for event in session.run(source.feed, source.another):
            if isinstance(event, UpdateDecoded):
                continue
            for output in outputs:
                output.take(event)
            if not shown:
                continue
            try:
                view.take(event)
            except BrokenPipeError:
                if not outputs and not source.kept:
                    raise
                # Ctrl-C ends the whole pipeline: the files still want the last words.
                discard_stdout()
                shown = False


@contextmanager
def _stopped_by_ctrl_c(source: LiveCapture) -> Iterator[None]:
    """The first Ctrl-C ends the audio, and what was said is still worked on; a second one does
    not wait for that."""

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        source.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _list_devices() -> None:
    from edgeapp.live.microphone import list_devices

    for found in list_devices():
        star = "*" if found.default else " "
        typer.echo(
            f"{star} {found.index}\t{found.name}\t{found.channels} channels\t{found.rate:g} Hz"
        )
