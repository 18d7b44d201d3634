"""Silence before made-up text is skipped as openai-whisper skips it: its own code is run beside.

The logic is one block of `whisper.transcribe.transcribe`; it is taken out of the source and run on
random segments.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from functools import cache
from importlib import import_module
from types import CodeType
from typing import Any

import numpy as np
import pytest

from pipelines.asr.hallucinations import _PUNCTUATION, WindowTimes, skip_hallucinations
from pipelines.asr.results import Segment, Word

# `whisper.transcribe` is the function; the module has the same name.
_OPENAI = vars(import_module("whisper.transcribe"))
_SOURCE = inspect.getsource(_OPENAI["transcribe"])


def _block(begin: str, end: str) -> str:
    found = re.search(rf"^( *){begin}.*?(?=\n\1{end})", _SOURCE, re.DOTALL | re.MULTILINE)
    assert found is not None, "openai-whisper's source has changed"
    return textwrap.dedent(found[0])


@cache
def _code() -> CodeType:
    """A function `run` of the block, of one window."""
    skipping = _block("if hallucination_silence_threshold is not None", "last_word_end = get_end")
    # The block stands in a loop over windows; here each window is one call.
    skipping = re.sub(r"\bcontinue\b(?=\n\n)", "return None, seek", skipping)
    source = "\n".join(
        [
            f"punctuation = {_PUNCTUATION!r}",
            _block("def word_anomaly_score", "timestamp_tokens: torch"),
            "def run(current_segments, seek):",
            textwrap.indent(skipping, "    "),
            "    return current_segments, seek",
        ]
    )
    return compile(source, "whisper.transcribe", "exec")


def _theirs(
    segments: list[dict[str, Any]],
    *,
    seek: int,
    previous_seek: int,
    segment_size: int,
    content_frames: int,
    last_speech_timestamp: float,
    single_timestamp_ending: bool,
    threshold: float,
) -> tuple[list[dict[str, Any]] | None, int]:
    scope: dict[str, Any] = {
        **_OPENAI,
        "hallucination_silence_threshold": threshold,
        "single_timestamp_ending": single_timestamp_ending,
        "time_offset": previous_seek / 100,
        "window_end_time": (previous_seek + 3000) / 100,
        "previous_seek": previous_seek,
        "segment_size": segment_size,
        "segment_duration": segment_size / 100,
        "content_duration": content_frames / 100,
        "content_frames": content_frames,
        "last_speech_timestamp": last_speech_timestamp,
    }
    exec(_code(), scope)
    result: tuple[list[dict[str, Any]] | None, int] = scope["run"](segments, seek)
    return result


def _random_segments(random: np.random.Generator, offset: float) -> list[Segment]:
    segments, at = [], offset
    for number in range(random.integers(1, 5)):
        at += float(random.choice([0.0, 0.4, 3.0]))
        words = []
        for _ in range(random.integers(0, 6)):
            duration = float(random.choice([0.02, 0.3, 0.5, 3.5]))
            probability = float(random.choice([0.05, 0.9]))
            text = str(random.choice([" word", "."]))
            words.append(Word(text, round(at, 2), round(at + duration, 2), probability))
            at += duration
        start, end = (words[0].start, words[-1].end) if words else (at, at + 0.5)
        segments.append(Segment(number, 0, start, end, "x", (1,), 0.0, 0.0, 1.0, 0.0, tuple(words)))
    return segments


def _as_dict(segment: Segment) -> dict[str, Any]:
    return {
        "id": segment.id,
        "start": segment.start,
        "end": segment.end,
        "words": [vars(word) | {} for word in segment.words],
    }


@pytest.mark.parametrize("seed", range(300))
def test_decisions_equal_openai_whisper(seed: int) -> None:
    random = np.random.default_rng(seed)
    previous_seek = int(random.integers(0, 6000))
    frames = int(random.choice([3000, 1700]))
    content = previous_seek + frames + int(random.choice([0, 5000]))
    ended = bool(random.integers(0, 2))
    threshold = float(random.choice([0.1, 1.0, 2.0]))
    last_speech = previous_seek / 100 - float(random.choice([0.0, 0.05, 4.0]))
    segments = _random_segments(random, previous_seek / 100)
    seek = previous_seek + int(random.integers(100, frames))
    if not ended:
        ends = [word.end for segment in segments for word in segment.words]
        end = ends[-1] if ends else segments[-1].end
        if end > previous_seek / 100:
            seek = round(end * 100)
    kept, ours = skip_hallucinations(
        segments,
        WindowTimes(previous_seek, frames, 3000, content),
        threshold=threshold,
        last_speech=last_speech,
        ended=ended,
        seek=seek,
    )
    theirs, expected = _theirs(
        [_as_dict(segment) for segment in segments],
        seek=seek,
        previous_seek=previous_seek,
        segment_size=frames,
        content_frames=content,
        last_speech_timestamp=last_speech,
        single_timestamp_ending=ended,
        threshold=threshold,
    )
    assert ours == expected
    assert (kept is None) == (theirs is None)
    if kept is not None and theirs is not None:
        assert [segment.id for segment in kept] == [segment["id"] for segment in theirs]
