"""`edgeapp demo`: the main job on what is bundled, no download needed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from edgeapp.batch.outputs import prepare_folder, write_whole
from edgeapp.commands.options import ComputeType, Debug, Device, Threads, chosen
from edgeapp.console import note
from edgeapp.exit_codes import ending
from edgeapp.subtitles.formats import render

__all__ = ["demo"]

_LANGUAGE, _FORMATS = "de", ("srt", "json")


def demo(
    output_dir: Annotated[
        Path, typer.Option("-o", "--output-dir", help="Where the subtitles go.")
    ] = Path("demo-output"),
    device: Device = None,
    compute_type: ComputeType = None,
    threads: Threads = None,
    debug: Debug = False,
) -> None:
    """Transcribe the bundled recording and translate it into German, live, with bundled models."""
    with ending(debug):
        settings = chosen(device, compute_type, threads)
        prepare_folder(output_dir)
        began = time.perf_counter()
        from edgeapp.batch.progress import LiveView
        from edgeapp.batch.transcription_job import Captions
        from edgeapp.model_pool import Workshop
        from pipelines.asr import TranscribeOptions
        from pipelines.hub import assets_folder

        recording = assets_folder() / "samples" / "talk.flac"
        workshop = Workshop(settings)
        transcriber = workshop.transcriber("demo", "en", "transcribe")
        translator = workshop.translator("demo-en-de", "en", _LANGUAGE)
        note(f"models loaded in {time.perf_counter() - began:.1f} s; listening to {recording.name}")
        captions = Captions(
            transcriber, TranscribeOptions(language="en"), lambda _: translator, _LANGUAGE
        )
        began = time.perf_counter()
        with LiveView(timed=True) as view:
            transcript = captions.run(recording, view)
        wall = time.perf_counter() - began
        for fmt in _FORMATS:
            write_whole(output_dir / f"talk.{fmt}", render(transcript, fmt))
        german = render(transcript, "srt", translated=True)
        write_whole(output_dir / f"talk.{_LANGUAGE}.srt", german)
        note(f"subtitles and JSON are in {output_dir.resolve()}")
        audio = captions.duration or 0.0
        typer.echo(
            f"{audio:.1f} s of audio in {wall:.2f} s: real-time factor {wall / audio:.3f}, "
            f"{captions.tokens / wall:.0f} tokens/s, {workshop.engine.device}, "
            f"recognition {transcriber.model.precision}, translation {translator.model.precision}"
        )
