"""`edgeapp demo`: transcription and translation with bundled models; no download needed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from edgeapp.batch.outputs import prepare_folder, write_atomically
from edgeapp.commands.options.common import ComputeType, Debug, Device, Threads, settings_from_flags
from edgeapp.console import print_note
from edgeapp.exit_codes import exit_with_code
from edgeapp.subtitles.formats import render

__all__ = ["demo"]

_LANGUAGE, _FORMATS = "de", ("srt", "json")


def demo(
    output_dir: Annotated[
        Path, typer.Option("-o", "--output-dir", help="Folder for the subtitles.")
    ] = Path("demo-output"),
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Transcribe the bundled recording and translate it into German, live, with bundled models."""
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
        transcriber = pool.transcriber("demo", "en", "transcribe")
        translator = pool.translator("demo-en-de", "en", _LANGUAGE)
        print_note(
            f"models loaded in {time.perf_counter() - began:.1f} s; transcribing {recording.name}"
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
        translation = render(transcript, "srt", translated=True)
        write_atomically(output_dir / f"talk.{_LANGUAGE}.srt", translation)
        print_note(f"subtitles and JSON are in {output_dir.resolve()}")
        audio = job.duration or 0.0
        typer.echo(
            f"{audio:.1f} s of audio in {wall:.2f} s: real-time factor {wall / audio:.3f}, "
            f"{job.tokens / wall:.0f} tokens/s, {pool.engine.device}, "
            f"recognition {transcriber.model.compute_type}, "
            f"translation {translator.model.compute_type}"
        )
