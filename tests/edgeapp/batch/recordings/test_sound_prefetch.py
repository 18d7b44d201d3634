"""SoundPrefetch: the same samples and warnings as without it, one recording ahead."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeapp.batch.recordings.sound_prefetch import SoundPrefetch
from pipelines import collect_notices, load_audio

SAMPLES = Path(__file__).resolve().parents[4] / "assets" / "samples"


def test_samples_and_warnings_are_those_of_the_path(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.flac"
    content = (SAMPLES / "question.flac").read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    with SoundPrefetch() as sounds:
        sounds.begin(str(damaged))
        sound = sounds.take(str(damaged))
        assert sounds.take(str(damaged)) is None, "it is held once"
    assert sound is not None
    with collect_notices() as notices:
        samples = load_audio(damaged)
    np.testing.assert_array_equal(sound.samples, samples)
    assert sound.warnings == tuple(each.message for each in notices)
    assert "damaged.flac is damaged" in sound.warnings[0]


def test_others_are_decoded_where_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "bad.mp3").write_text("no sound")
    with SoundPrefetch() as sounds:
        for path in (tmp_path / "bad.mp3", tmp_path / "missing.mp3"):
            sounds.begin(str(path))
            assert sounds.take(str(path)) is None
        sounds.begin(str(SAMPLES / "question.flac"))
        assert sounds.take(str(SAMPLES / "talk.flac")) is None


def test_the_end_does_not_wait_for_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def read_on_and_on(file: Any, max_duration_s: float) -> None:
        while True:
            file.seek(0)
            file.read(10)
            begun.set()

    monkeypatch.setattr("pipelines.load_audio", read_on_and_on)
    with SoundPrefetch() as sounds:
        sounds.begin(str(SAMPLES / "talk.flac"))
        assert begun.wait(60)
