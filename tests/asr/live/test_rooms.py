"""Live captions in rooms: echoes cost few words, and no noise becomes a word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeapp.bench.word_lag import plain_words, word_errors
from pipelines import (
    SAMPLE_RATE,
    CommittedText,
    LiveOptions,
    LiveTranscriber,
    TranscribeOptions,
    Transcriber,
    load_audio,
)
from pipelines.asr import CorrectionDue
from pipelines.asr.audio.vad import SpeechStart, VoiceActivity
from tests.asr.noises import NOISES, noise
from tests.benchmarks.live_correction import sound

_SHARED = Path(__file__).parents[4] / "shared"
_MODEL, _ROOM = _SHARED / "models" / "whisper-base", _SHARED / "data" / "live" / "reverb.flac"


@pytest.mark.parametrize("name", NOISES)
def test_a_room_in_which_no_one_speaks_is_silent(name: str) -> None:
    voice = VoiceActivity(LiveOptions().vad)
    events = voice.feed(noise(name, 20.0)) + voice.finish()
    assert not [event for event in events if isinstance(event, SpeechStart)]


@pytest.mark.slow
@pytest.mark.skipif(not (_MODEL.exists() and _ROOM.exists()), reason="needs the real Whisper base")
def test_corrections_mend_what_a_room_and_a_clipped_recording_cost() -> None:
    transcriber = Transcriber(str(_MODEL), threads=2)
    options = LiveOptions(transcribe=TranscribeOptions(language="en"), correct=True)
    before = after = 0
    for name in ("room", "clipped"):
        samples, text = sound(name, 2)
        live = LiveTranscriber(transcriber, options)
        dues = [e for e in live.feed(samples) + live.finish() if isinstance(e, CorrectionDue)]
        texts = "".join(due.text for due in dues)
        corrected = "".join((live.correct(due) or due).text for due in dues)
        before += word_errors(plain_words(text), plain_words(texts))
        after += word_errors(plain_words(text), plain_words(corrected))
    assert after < before


@pytest.mark.slow
@pytest.mark.skipif(not (_MODEL.exists() and _ROOM.exists()), reason="needs the real Whisper base")
def test_an_echoing_room_costs_few_words() -> None:
    transcriber = Transcriber(str(_MODEL), threads=2)
    options = LiveOptions(transcribe=TranscribeOptions(language="en"))
    samples, block = load_audio(_ROOM), SAMPLE_RATE // 10
    truth = plain_words(_ROOM.with_suffix(".txt").read_text(encoding="utf-8"))
    errors = 0
    # The mean of four versions that sound alike: one alone is a matter of chance.
    gains = (1, -1, 10 ** (1 / 20), 10 ** (-1 / 20))
    for gain in gains:
        live = LiveTranscriber(transcriber, options)
        events = []
        for at in range(0, len(samples), block):
            events += live.feed(samples[at : at + block] * np.float32(gain))
        events += live.finish()
        text = "".join(event.text for event in events if isinstance(event, CommittedText))
        errors += word_errors(truth, plain_words(text))
    assert errors / (len(gains) * len(truth)) <= 0.26
