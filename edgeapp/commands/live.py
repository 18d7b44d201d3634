"""`edgeapp live`: live captions of a microphone, on the terminal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgeapp.commands.options.common import (
    CAPTIONS,
    INPUT_OUTPUT,
    OTHER,
    ComputeType,
    Debug,
    Device,
    Draft,
    DraftModel,
    Model,
    ModelDirectory,
    NoDownload,
    Threads,
    TranslateTo,
    TranslationModel,
    drafts_from_flags,
    known_language,
    settings_from_flags,
    use_model_directory,
)
from edgeapp.commands.options.declared import Given, declared, values_of
from edgeapp.commands.options.download import find_or_pull_recognizer
from edgeapp.console import counted, print_draft_report, print_note, printable
from edgeapp.english_only import choosing_language
from edgeapp.exit_codes import DONE, end_of_output, end_signals, exit_with_code, interrupt
from pipelines import OptionError, OutputError, TranscribeOptions

if TYPE_CHECKING:
    from edgeapp.live.capture import LiveCapture
    from edgeapp.live.events import SessionEvent
    from edgeapp.live.files import LiveOutputFile
    from edgeapp.live.session import LiveSession
    from edgeapp.live.view import EventView

__all__ = ["live"]

_SPEAKERS = "Me,Them"  # of two microphones


@declared(
    only=("language", "languages", "task", "initial_prompt", "hotwords"), chosen=TranscribeOptions
)
def live(
    *,
    model: Model = None,
    model_dir: ModelDirectory = None,
    no_download: NoDownload = False,
    translation_model: TranslationModel = None,
    draft_model: DraftModel = None,
    draft: Draft = None,
    chosen: Given,
    translate_to: TranslateTo = None,
    list_devices: Annotated[
        bool,
        typer.Option(
            "--list-devices", help="List the microphones and exit.", rich_help_panel=INPUT_OUTPUT
        ),
    ] = False,
    input_device: Annotated[
        list[str] | None,
        typer.Option(
            "--input-device",
            "--device-name",
            help="Microphone: its number or a part of its name (monitor: what programs play, on "
            "Linux). Default: the system's. Twice: two speakers, one on each.",
            metavar="MICROPHONE",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    speakers: Annotated[
        str | None,
        typer.Option(
            "--speakers",
            help="Names of two speakers: the first on the left channel or the first "
            "--input-device, the second on the other.",
            metavar="NAME,NAME",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            help="Use a recording instead of a microphone.",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    speed: Annotated[
        float,
        typer.Option(
            "--speed",
            help="Playback speed of --from-file; 0: as fast as possible.",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = 1.0,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--output",
            help="A .srt, .vtt, .txt or .jsonl file; repeatable. A translation goes beside it "
            "(talk.de.srt).",
            metavar="FILE",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    append: Annotated[
        bool,
        typer.Option(
            "--append",
            help="Go on in -o files that exist; times continue after the last one (not in .jsonl).",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = False,
    save_audio: Annotated[
        Path | None,
        typer.Option(
            "--save-audio",
            help="Save the audio as a .wav or .flac file.",
            metavar="FILE",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON event per line instead of text.",
            rich_help_panel=INPUT_OUTPUT,
        ),
    ] = False,
    policy: Annotated[
        Literal["agreement", "attention"],
        typer.Option(
            "--policy",
            help="agreement: text is final when two updates agree; attention: earlier, with more "
            "errors.",
            case_sensitive=False,
            rich_help_panel=CAPTIONS,
        ),
    ] = "agreement",
    min_chunk: Annotated[
        float,
        typer.Option(
            "--min-chunk", help="Seconds of new audio per update.", rich_help_panel=CAPTIONS
        ),
    ] = 0.5,
    calm: Annotated[
        bool,
        typer.Option(
            "--calm/--fast",
            help="Running text without its last word, which changes most often; or each word at "
            "once.",
            rich_help_panel=CAPTIONS,
        ),
    ] = True,
    correct: Annotated[
        bool,
        typer.Option(
            "--correct",
            help="Decode each finished utterance once more, and replace its text if that is "
            "better within 3 seconds.",
            rich_help_panel=CAPTIONS,
        ),
    ] = False,
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="At the end, say what drafts did.", rich_help_panel=OTHER),
    ] = False,
    debug: Debug = False,
) -> None:
    """Live captions of a microphone.

    On a terminal: solid text is final, dim text may still change, the translation is below. In a
    pipe or a file: final text, a sentence per line; with --json one event per line. Ctrl-C ends;
    speech before it is still transcribed.
    """
    with exit_with_code(debug):
        if list_devices:
            _list_devices()
            raise typer.Exit(DONE)
        if speed < 0:
            raise OptionError(f"--speed must be 0 or more, not {speed:g}")
        settings = settings_from_flags(
            device,
            compute_type,
            threads,
            no_download=no_download,
            device_hint="; --input-device names the microphone",
        )
        use_model_directory(model_dir)
        translate_to = known_language(translate_to, "--translate-to")
        from edgeapp.live.capture import LiveCapture
        from edgeapp.live.files import LiveOutputFile, last_time, plan_outputs
        from edgeapp.live.recorder import check_recording
        from edgeapp.live.setup import make_session
        from edgeapp.live.speakers import checked_speakers
        from edgeapp.model_pool import ModelPool
        from pipelines import LiveOptions

        devices = input_device or []
        if len(devices) > 2:
            raise OptionError("--input-device can be given twice at most, for two speakers")
        if len(devices) == 2:
            speakers = speakers or _SPEAKERS
        names = checked_speakers(speakers.split(",") if speakers else ())
        files = plan_outputs(output or (), translate_to, append=append)
        append_at = last_time(path for path, _ in files) if append else None
        if save_audio is not None:
            check_recording(save_audio)
        options = LiveOptions(
            transcribe=TranscribeOptions(**values_of(TranscribeOptions, chosen, {})),
            min_chunk_s=min_chunk,
            policy=policy,
            calm=calm,
            correct=correct,
        )
        pool, drafts = ModelPool(settings), drafts_from_flags(draft_model, draft)
        language, task = choosing_language(options.transcribe), options.transcribe.task
        find_or_pull_recognizer(pool, model, options.transcribe, drafts)
        source = "en" if task == "translate" else options.transcribe.language
        if translate_to is not None and (source or translation_model):
            pool.find_translator(translation_model, source, translate_to)
        with ExitStack() as stack:
            # The microphone opens first: what is said while the models load is transcribed too.
            stop = stack.enter_context(_signals_stop())
            capture = LiveCapture(stack, from_file, speed, devices, max(1, len(names)))
            stop.use(capture.stop)
            with capture.loading():
                transcriber = pool.transcriber(model, language, task, drafts)
                setup = make_session(
                    pool, transcriber, options, translate_to, translation_model, names
                )
            stack.enter_context(setup.using(pool))
            outputs = []
            for path, translated in files:
                outputs.append(LiveOutputFile(path, translated=translated, append_at=append_at))
                stack.callback(outputs[-1].close)
            if save_audio is not None:
                capture.record_to(save_audio)
            view = _view(as_json, setup.session, capture, translated=translate_to is not None)
            _run(setup.session, capture, outputs, view)
            if verbose:
                print_draft_report(transcriber.draft_report)


def _view(
    as_json: bool, session: LiveSession, capture: LiveCapture, *, translated: bool
) -> EventView:
    """What is written to stdout."""
    from edgeapp.live.event_encoder import EventEncoder
    from edgeapp.live.view import CaptionView, JsonView, TextView

    if as_json:
        return JsonView(EventEncoder(lambda: session.language, capture.now, capture.began))
    if sys.stdout.isatty():
        return CaptionView(translated=translated, corrects=session.corrects)
    return TextView()


def _run(
    session: LiveSession,
    capture: LiveCapture,
    outputs: list[LiveOutputFile],
    view: EventView,
) -> None:
    """Run a session to its end and write its events to the files and to stdout.

    A file that cannot be written is said; the captions go on without it.

    Raises:
        BrokenPipeError: The reader of stdout is gone, and no file is written.
        OutputError: A file could not be written, after the end.
    """
    from edgeapp.live.corrections import SettledEvents
    from edgeapp.live.events import WarningRaised
    from pipelines.asr import UpdateDecoded

    shown, writing, failures = True, list(outputs), list[OutputError]()
    warnings = list[str]()
    settled_events = SettledEvents(corrects=session.corrects)
    try:
        with view:
            for event in session.run(capture.source, capture.reopen_microphone):
                if isinstance(event, UpdateDecoded):
                    continue
                settled = settled_events.add(event)
                lost = [failure] if (failure := capture.take_failure()) else list[OutputError]()
                lost += _write(writing, settled)
                failures += lost
                warnings += [f"{failure}; captions go on without it" for failure in lost]
                if not shown:
                    if not writing and not capture.is_recording:
                        break
                    continue
                try:
                    for warning in warnings:
                        view.show(WarningRaised(warning))
                    warnings = []
                    for each in settled if view.settled else [event]:
                        view.show(each)
                except BrokenPipeError as error:
                    if not writing and not capture.is_recording:
                        raise
                    # Ctrl-C ends the reader of the pipe too; the last words still go to the files.
                    end_of_output(error)
                    shown = False
    finally:
        rest = settled_events.end()  # of a session that was interrupted
        failures += _write(writing, rest)
        if shown and view.settled:
            try:
                for each in rest:
                    view.show(each)
            except BrokenPipeError as error:
                end_of_output(error)
    if failures:
        raise failures[0]


def _write(outputs: list[LiveOutputFile], events: list[SessionEvent]) -> list[OutputError]:
    """Write events to files; remove those that cannot be written, and return their errors."""
    failures = list[OutputError]()
    for output in list(outputs):
        try:
            for event in events:
                output.write(event)
        except OutputError as error:
            outputs.remove(output)
            failures.append(error)
    return failures


class _Stop:
    """What Ctrl-C does: it ends the audio as soon as there is some."""

    def __init__(self) -> None:
        self._end_audio: Callable[[], None] | None = None
        self._requested = False

    def use(self, end_audio: Callable[[], None]) -> None:
        """There is audio now."""
        self._end_audio = end_audio
        if self._requested:
            end_audio()

    def handle(self, number: int, frame: object) -> None:
        """Handle a signal."""
        signal.signal(number, interrupt)
        self._requested = True
        if self._end_audio is not None:
            self._end_audio()


@contextmanager
def _signals_stop() -> Iterator[_Stop]:
    """The first Ctrl-C, SIGTERM or SIGHUP ends the audio; what was captured is still transcribed.

    A second one raises KeyboardInterrupt.
    """
    stop = _Stop()
    numbers = [n for n in end_signals() if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop.handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _list_devices() -> None:
    from edgeapp.live.microphone import list_devices

    devices = list_devices()
    if not devices:
        print_note("no microphone was found")
    for device in devices:
        mark = "*" if device.default else " "
        kind = ["what programs play"] if device.loopback else []
        muted = ["muted"] if device.muted else []
        channels = counted(device.channels, "channel")
        columns = [device.name, channels, f"{device.rate:g} Hz", *kind, *muted]
        typer.echo("\t".join([f"{mark} {device.index}", *map(printable, columns)]))
