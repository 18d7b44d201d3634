"""Parts with speech, and times in them, equal faster-whisper's on the same probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faster_whisper import vad
from numpy.typing import NDArray

from pipelines.asr.audio.chunks import CHUNK_VAD
from pipelines.asr.audio.decode import load_audio
from pipelines.asr.audio.silero import SileroDetector
from pipelines.asr.audio.speech_filter import WINDOW_VAD, SpeechMap, speech_spans
from pipelines.asr.audio.vad import LIVE_VAD
from pipelines.asr.live.options import LiveOptions
from pipelines.asr.options import TranscribeOptions, VadOptions
from pipelines.options import with_fields

_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"min_silence_duration_ms": 100, "speech_pad_ms": 30},
    {"threshold": 0.3, "neg_threshold": 0.1, "min_speech_duration_ms": 250},
    {"max_speech_duration_s": 3.0, "min_silence_duration_ms": 500, "speech_pad_ms": 100},
    {"max_speech_duration_s": 2.0, "min_silence_duration_ms": 50, "speech_pad_ms": 0},
)


def _probabilities(seed: int, frames: int) -> list[float]:
    """Speech and silence of random lengths, with doubtful frames between them."""
    random = np.random.default_rng(seed)
    found: list[float] = []
    while len(found) < frames:
        level = random.choice([0.02, 0.4, 0.95])
        found += list(np.clip(random.normal(level, 0.08, random.integers(1, 60)), 0, 1))
    return [float(value) for value in found[:frames]]


@pytest.mark.parametrize("options", _OPTIONS, ids=range(len(_OPTIONS)))
@pytest.mark.parametrize("seed", range(12))
def test_parts_equal_faster_whisper(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], seed: int
) -> None:
    samples = np.zeros(16_000 * 20 + 77 * seed, np.float32)
    frames = _probabilities(seed, len(samples) // 512 + 1)

    def given(padded: NDArray[np.float32]) -> Sequence[float]:
        assert len(padded) // 512 == len(frames)
        return frames

    monkeypatch.setattr(vad, "get_vad_model", lambda: given)
    theirs = vad.get_speech_timestamps(samples, vad.VadOptions(**options))
    ours = speech_spans(samples, VadOptions(**{"threshold": 0.5, **options}), given)
    assert ours == [(part["start"], part["end"]) for part in theirs]


@pytest.mark.parametrize("options", _OPTIONS, ids=range(len(_OPTIONS)))
@pytest.mark.parametrize(
    "name",
    ["speech/jfk.flac", "speech-real/sonnet2.mp3", "speech-real/german.mp3", "live/reverb.flac"],
)
def test_parts_of_recordings_equal_faster_whisper(
    monkeypatch: pytest.MonkeyPatch, shared_data: Path, options: dict[str, Any], name: str
) -> None:
    """With the probabilities of our network: faster-whisper has an older one."""
    samples = load_audio(shared_data / name)[: 30 * 16_000]
    found = SileroDetector().probabilities(np.pad(samples, (0, 512 - len(samples) % 512)))
    monkeypatch.setattr(vad, "get_vad_model", lambda: lambda _: found)
    theirs = vad.get_speech_timestamps(samples, vad.VadOptions(**{"threshold": 0.35, **options}))
    ours = speech_spans(samples, VadOptions(**options))
    assert len(ours) == len(theirs) > 0
    for (start, end), part in zip(ours, theirs, strict=True):
        assert abs(start - part["start"]) <= 512
        assert abs(end - part["end"]) <= 512


def test_former_names_of_options_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"VadOptions\(speech_pad_ms=…\)"):
        assert VadOptions(pre_roll_s=0.3) == VadOptions(speech_pad_ms=300)  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match=r"TranscribeOptions\(vad_parameters=…\)"):
        options = TranscribeOptions(vad_threshold=0.4, vad_speech_pad_ms=100)  # type: ignore[call-arg]
    assert options.vad == VadOptions(threshold=0.4, speech_pad_ms=100)
    with pytest.warns(DeprecationWarning, match="vad_parameters"):
        again = with_fields(options, {"vad_min_silence_duration_ms": 300})
    assert again.vad == VadOptions(threshold=0.4, speech_pad_ms=100, min_silence_duration_ms=300)
    former = {"vad_neg_threshold": 0.5, "vad_threshold": 0.6}
    with pytest.warns(DeprecationWarning, match="vad_parameters") as caught:
        options = with_fields(options, former)
    assert {each.filename for each in caught} == {__file__}
    assert (options.vad.threshold, options.vad.neg_threshold) == (0.6, 0.5)


def test_one_threshold_for_files_and_live() -> None:
    assert VadOptions().threshold == LIVE_VAD.threshold == WINDOW_VAD.threshold == 0.35
    assert CHUNK_VAD.threshold == TranscribeOptions().vad.threshold == LiveOptions().vad.threshold


def test_times_equal_faster_whisper() -> None:
    spans = [(1000, 20_000), (36_000, 50_000), (160_000, 240_000)]
    theirs = vad.SpeechTimestampsMap([{"start": a, "end": b} for a, b in spans], 16_000)
    ours = SpeechMap(spans)
    for sample in range(0, 113_000, 250):
        for is_end in (False, True):
            time = sample / 16_000
            assert ours.original(time, is_end=is_end) == theirs.get_original_time(
                time, is_end=is_end
            )
