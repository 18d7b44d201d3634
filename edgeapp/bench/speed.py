"""How fast models are on this machine: a recording transcribed, a text translated."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.bench.machine import machine
from edgeapp.bench.word_lag import plain_words, word_errors
from edgeapp.model_pool import ModelPool
from pipelines import SAMPLE_RATE, TranscribeOptions, TranslateOptions, load_audio
from pipelines.hub import assets_folder
from pipelines.languages import two_letter

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Speed", "conditions", "markdown", "measure", "table", "to_json"]

_RECORDING = "story"  # the bundled sample: English, 53 s, with its text
_OPTIONS = TranscribeOptions(language="en")


@dataclass(frozen=True)
class Speed:
    """The figures of a model.

    Attributes:
        model: Its name.
        task: "asr" or "translation".
        compute_type: Number format of its weights.
        load_s: Seconds until it was loaded.
        amount: Seconds of audio, or words of text.
        wall_s: Seconds for them, the second time.
        errors: Share of wrong words, for recognition; else None.
    """

    model: str
    task: str
    compute_type: str
    load_s: float
    amount: float
    wall_s: float
    errors: float | None = None

    @property
    def rate(self) -> float:
        """Seconds of audio, or words, per second."""
        return self.amount / self.wall_s


def measure(pool: ModelPool, name: str, task: str) -> Speed | None:
    """Load a model and time it, after a first run that fills caches.

    Args:
        pool: Loads the model.
        name: The model.
        task: "asr" or "translation".

    Returns:
        None for a translation model that does not read English, the language of the sample.

    Raises:
        ModelError: It cannot be loaded.
    """
    began = time.perf_counter()
    pool.load(name, task)
    load_s = time.perf_counter() - began
    sample = assets_folder() / "samples" / f"{_RECORDING}.txt"
    text = sample.read_text(encoding="utf-8")
    if task == "asr":
        return _recognition(pool, name, load_s, sample.with_suffix(".flac"), plain_words(text))
    return _translation(pool, name, load_s, text)


def _recognition(
    pool: ModelPool, name: str, load_s: float, recording: Path, reference: list[str]
) -> Speed:
    transcriber = pool.transcriber(name, None)
    audio = load_audio(recording)

    def run() -> str:
        return "".join(segment.text for segment in transcriber.transcribe(audio, _OPTIONS))

    run()
    began = time.perf_counter()
    heard = run()
    wall_s = time.perf_counter() - began
    model = transcriber.model
    return Speed(
        name,
        "asr",
        model.compute_type,
        load_s,
        len(audio) / SAMPLE_RATE,
        wall_s,
        word_errors(reference, plain_words(heard)) / len(reference),
    )


def _translation(pool: ModelPool, name: str, load_s: float, text: str) -> Speed | None:
    translator = pool.translator(name, None, None)
    multilingual = bool(translator.source_codes)
    if not multilingual and two_letter(translator.source_language) != "en":
        return None
    options = TranslateOptions(
        target="de" if translator.target_codes else None,
        source_language="en" if multilingual else None,
    )
    lines = text.splitlines()
    list(translator.translate_lines(lines, options))
    began = time.perf_counter()
    list(translator.translate_lines(lines, options))
    wall_s = time.perf_counter() - began
    model = translator.model
    return Speed(name, "translation", model.compute_type, load_s, len(text.split()), wall_s)


_HEADS = ("model", "task", "weights", "loaded in", "speed", "takes", "wrong words")


def table(speeds: Sequence[Speed]) -> Table:
    """A table for a terminal: one row per model."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, head in enumerate(_HEADS):
        table.add_column(head, justify="right" if number > 2 else "left", no_wrap=True)
    for speed in speeds:
        table.add_row(*_row(speed))
    return table


def markdown(speeds: Sequence[Speed]) -> str:
    """The same table in Markdown."""
    rows = [f"| {' | '.join(_row(speed))} |" for speed in speeds]
    return "\n".join([f"| {' | '.join(_HEADS)} |", "|---|---|---" + "|--:" * 5 + "|", *rows])


def _row(speed: Speed) -> list[str]:
    if speed.task == "asr":
        rate = f"{speed.rate:.1f} × real time"
        takes = f"{60 / speed.rate:.1f} min for an hour"
    else:
        rate = f"{speed.rate:.0f} words/s"
        takes = f"{1000 / speed.rate:.1f} s for 1,000 words"
    return [
        speed.model,
        speed.task,
        speed.compute_type,
        f"{speed.load_s:.1f} s",
        rate,
        takes,
        "" if speed.errors is None else f"{100 * speed.errors:.1f} %",
    ]


def to_json(speeds: Sequence[Speed]) -> str:
    """One object: the machine, and the figures of each model."""
    models = [asdict(speed) | {"rate": speed.rate} for speed in speeds]
    return json.dumps({"machine": machine("edgeapp", "torch"), "models": models})


def conditions(pool: ModelPool) -> str:
    """What was measured, and where, in one paragraph."""
    engine = pool.engine
    where = "the GPU" if engine.device == "cuda" else f"{engine.threads} CPU threads"
    return (
        f"The bundled {_RECORDING} (53 s of English, {_OPTIONS.parallel_chunks} chunks in "
        f"parallel) or its text, the second run, on {where}. {machine('edgeapp', 'torch')}."
    )
