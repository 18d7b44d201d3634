"""SoundPrefetch: the same samples and warnings as without it, one recording ahead."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from edgeapp.batch.recordings.sound_prefetch import DecodedSound, SoundPrefetch, SoundStream
from pipelines import AudioError, TranscribeOptions, Transcriber, load_audio
from pipelines.asr import open_audio
from pipelines.notices import collect_notices

SAMPLES = Path(__file__).resolve().parents[4] / "assets" / "samples"


def test_samples_and_warnings_are_those_of_the_path(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.flac"
    content = (SAMPLES / "question.flac").read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    with SoundPrefetch() as sounds:
        sounds.begin(str(damaged))
        sound = sounds.take(str(damaged))
        assert sounds.take(str(damaged)) is None, "it is held once"
    assert isinstance(sound, DecodedSound)
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

    def read_on_and_on(file: Any, max_duration_s: float, *, keep_unlike: bool) -> None:
        while True:
            file.seek(0)
            file.read(10)
            begun.set()

    monkeypatch.setattr("pipelines.load_audio", read_on_and_on)
    with SoundPrefetch() as sounds:
        sounds.begin(str(SAMPLES / "talk.flac"))
        assert begun.wait(60)


def test_blocks_are_the_samples_of_the_path_a_bounded_time_ahead(tmp_path: Path) -> None:
    path = SAMPLES / "talk.flac"
    whole = load_audio(path)
    stream = SoundStream(open_audio(path), ahead_s=5.0)
    assert stream.duration_s == pytest.approx(len(whole) / 16_000, abs=0.1)
    thread = threading.Thread(target=stream.decode)
    thread.start()
    blocks = []
    for block in stream:
        assert stream._held < 7 * 16_000, "it waits until the sound is needed"
        blocks.append(block)
    thread.join()
    np.testing.assert_array_equal(np.concatenate(blocks), whole)
    assert stream.duration_s == len(whole) / 16_000


def test_the_end_of_a_damaged_recording_is_an_error_or_a_warning(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.flac"
    content = (SAMPLES / "question.flac").read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    (tmp_path / "bad.mp3").write_text("no sound")
    with SoundPrefetch(in_blocks=True) as sounds:
        assert sounds.take(str(tmp_path / "bad.mp3")) is None
        sound = sounds.take(str(damaged))
        assert isinstance(sound, SoundStream)
        sounds.begin(str(SAMPLES / "question.flac"))
        with collect_notices():
            whole = load_audio(damaged)
        np.testing.assert_array_equal(np.concatenate(list(sound)), whole)
        assert "damaged.flac is damaged" in sound.warnings[0]
        following = sounds.take(str(SAMPLES / "question.flac"))
        assert isinstance(following, SoundStream)
        assert sum(map(len, following)) == len(load_audio(SAMPLES / "question.flac"))

    audio = open_audio(SAMPLES / "question.flac")
    broken = SoundStream(audio)
    object.__setattr__(audio, "path", str(tmp_path / "gone.flac"))
    broken.decode()
    with pytest.raises(AudioError, match="there is no such file"):
        list(broken)


def test_floats_of_any_size_are_decoded_as_a_whole(tmp_path: Path) -> None:
    """They are scaled by the loudest of all."""
    loud = tmp_path / "loud.wav"
    samples = np.linspace(-100, 100, 16_000, dtype=np.float32)
    soundfile.write(loud, samples, 16_000, subtype="FLOAT")
    with SoundPrefetch(in_blocks=True) as sounds:
        sound = sounds.take(str(loud))
        assert isinstance(sound, DecodedSound)
        np.testing.assert_array_equal(sound.samples, samples / np.float32(100))


def test_nothing_waits_for_a_recording_that_is_not_needed_any_more() -> None:
    with SoundPrefetch(in_blocks=True) as sounds:
        first = sounds.take(str(SAMPLES / "talk.flac"))
        assert isinstance(first, SoundStream)
        assert len(next(iter(first)))
        second = sounds.take(str(SAMPLES / "question.flac"))
        assert isinstance(second, SoundStream)
        assert list(first) == []
        assert sum(map(len, second))


@pytest.mark.slow
def test_text_is_the_same_in_blocks() -> None:
    path = str(SAMPLES / "talk.flac")
    with Transcriber("demo", device="cpu", threads=1) as transcriber:
        options = TranscribeOptions(batch_size=4)
        whole = transcriber.transcribe(path, options)
        with SoundPrefetch(in_blocks=True) as sounds:
            sound: Any = sounds.take(path)
            assert list(transcriber.transcribe(sound, options)) == list(whole)
