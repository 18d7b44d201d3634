"""Speech that the detector takes for silence is said; silence, pauses, noise and tones are not."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
import pytest

from pipelines import Transcriber, load_audio
from pipelines.asr import LeftOut
from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.left_out import LeftOutSound
from pipelines.hub import assets_folder

MINUTE = 60 * SAMPLE_RATE


@cache
def talk() -> Samples:
    return load_audio(assets_folder() / "samples" / "talk.flac")


def whispered(samples: Samples) -> Samples:
    """Return noise with the loudness of speech, which the detector takes for silence."""
    loudness = np.sqrt(np.convolve(np.square(samples), np.ones(800) / 800, "same"))
    noise = np.random.default_rng(1).standard_normal(len(samples))
    return (noise * loudness).astype(np.float32)


def seconds(samples: Samples, kept: Iterable[tuple[float, float]] = ()) -> float:
    left_out = LeftOutSound()
    for at in range(0, len(samples), 7000):
        list(left_out.measured([samples[at : at + 7000]]))
    for start_s, end_s in kept:
        left_out.keep(start_s, end_s)
    assert left_out.duration_s == pytest.approx(len(samples) / SAMPLE_RATE)
    return left_out.seconds


def test_speech_that_was_left_out_is_counted() -> None:
    assert 15 < seconds(talk()) <= 24
    assert 7 < seconds(talk(), [(0.0, 10.0)]) <= 14
    assert seconds(talk(), [(0.0, 24.0)]) == 0
    assert seconds(talk(), [(0.0, 14.0)]) == 0, "most was recognized"
    assert 15 < seconds(talk() * 0.05) <= 24, "quiet recordings, too"


@pytest.mark.parametrize("gain", [0.0, 0.001, 0.1])
def test_what_is_no_speech_is_not_counted(gain: float) -> None:
    noise = np.random.default_rng(0).standard_normal(MINUTE).astype(np.float32) * gain
    assert seconds(noise) == 0
    at = np.arange(MINUTE) / SAMPLE_RATE
    assert seconds((gain * np.sin(2760 * at)).astype(np.float32)) == 0
    clicks = noise.copy()
    clicks[::8000] = 0.9
    assert seconds(clicks) == 0
    noise[: len(talk())] += talk()
    assert seconds(noise, [(0.0, 24.0)]) == 0
    assert seconds(np.zeros(0, np.float32)) == 0


def test_faint_sounds_of_a_long_pause_are_not_counted() -> None:
    """Far below the speech before it, which is a small part of the recording."""
    faint = np.tile(talk(), 30) * 0.02
    assert seconds(np.concatenate([talk(), faint]), [(0.0, 24.0)]) == 0
    assert seconds(faint) > 500


@pytest.mark.slow
def test_it_is_the_last_event() -> None:
    loud = whispered(talk())
    with Transcriber("demo", device="cpu", threads=1) as transcriber:
        *_, last = transcriber.stream(loud, language="en", batch_size=8)
        result = transcriber.transcribe(np.stack([loud, loud], axis=1), language="en", batch_size=8)
        assert result.warnings == ()
        assert list(result) == []
        clipped = list(transcriber.stream(loud, batch_size=8, clip_timestamps=(0.0, 2.0)))
        pauses = np.concatenate([talk()[: 3 * SAMPLE_RATE], np.zeros(MINUTE, np.float32)])
        quiet = list(transcriber.stream(pauses, language="en", batch_size=8))
    assert isinstance(last, LeftOut)
    assert 15 < last.seconds <= last.duration == pytest.approx(len(loud) / SAMPLE_RATE)
    assert result.warnings == (last.message,)
    assert last.message.endswith(" of 24 s sound like speech and were taken for silence")
    assert not any(isinstance(event, LeftOut) for event in [*clipped, *quiet])
