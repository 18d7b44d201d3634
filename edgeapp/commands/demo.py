"""`edgeapp demo`: transcription and translation of a bundled recording; nothing is downloaded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from edgeapp.batch.outputs import prepare_folder, write_atomically
from edgeapp.commands.options.common import ComputeType, Debug, Device, Threads, settings_from_flags
from edgeapp.console import print_note
from edgeapp.documents.transcript_formats import render
from edgeapp.exit_codes import exit_with_code, pull_command

__all__ = ["demo"]

_LANGUAGE, _FORMATS = "de", ("srt", "json")
_RECOGNIZER, _BUNDLED = "tiny.en", "demo"


def demo(
    output_dir: Annotated[
        Path, typer.Option("-o", "--output-dir", help="Folder for the subtitles.")
    ] = Path("demo-output"),
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Transcribe the bundled recording and translate it into German, live.

    Nothing is downloaded. Speech is recognized by tiny.en if that is on this machine, else by the
    bundled demo.
    """
    with exit_with_code(debug):
        settings = settings_from_flags(device, compute_type, threads)
        prepare_folder(output_dir)
        began = time.perf_counter()
        from edgeapp.batch.recordings.progress import LiveTextView
        from edgeapp.batch.recordings.transcription_job import TranscriptionJob
        from edgeapp.model_pool import ModelPool
        from pipelines import TranscribeOptions
        from pipelines.hub import assets_folder

        recording = assets_folder() / "samples" / "talk.flac"
        pool = ModelPool(settings)
        recognizer = _recognizer()
        transcriber = pool.transcriber(recognizer, "en", "transcribe")
        translator = pool.translator("demo-en-de", "en", _LANGUAGE)
        print_note(
            f"models loaded in {time.perf_counter() - began:.1f} s; transcribing {recording.name} "
            f"with {'the bundled ' * (recognizer == _BUNDLED)}{recognizer}"
        )
        job = TranscriptionJob(
            transcriber, TranscribeOptions(language="en"), lambda _: translator, _LANGUAGE
        )
        began = time.perf_counter()
        with LiveTextView(timed=True) as view:
            transcript = job.run(recording, view)
        wall = time.perf_counter() - began
        for fmt in _FORMATS:
            write_atomically(output_dir / f"talk.{fmt}", render(transcript, fmt))
        translation = render(transcript, "srt", which="translated")
        write_atomically(output_dir / f"talk.{_LANGUAGE}.srt", translation)
        print_note(f"subtitles and JSON are in {output_dir.resolve()}")
        audio = job.duration or 0.0
        typer.echo(
            f"{audio:.1f} s of audio in {wall:.2f} s: real-time factor {wall / audio:.3f}, "
            f"{job.tokens / wall:.0f} tokens/s, {pool.engine.device}, "
            f"recognition {transcriber.model.compute_type}, "
            f"translation {translator.model.compute_type}"
        )
        _print_next_commands()


def _recognizer() -> str:
    """The model for people's voices that `make demo` downloads, else the bundled one."""
    from pipelines import ModelError
    from pipelines.hub import resolve

    try:
        resolve(_RECOGNIZER)
    except ModelError:
        return _BUNDLED
    return _RECOGNIZER


def _print_next_commands() -> None:
    """Print how to go on, with what is installed."""
    from edgeapp.live.devices import has_portaudio
    from pipelines import ModelNotFound
    from pipelines.hub import choose_default

    try:
        choose_default("asr")
    except ModelNotFound:
        print_note(
            "the bundled demo knows synthetic voices only: for yours, first "
            + pull_command(_RECOGNIZER)
        )
    page = "`edgeapp ui`"
    live = "`edgeapp live`" if has_portaudio() else f"{page}, as PortAudio is not installed"
    print_note(f"your microphone: {live}")
    print_note("your file: `edgeapp transcribe FILE`")
    print_note(f"the page: {page}")
