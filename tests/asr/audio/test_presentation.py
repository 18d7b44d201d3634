"""Times of sound in films: presentation times, with silence where there is no sound."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from pipelines import SAMPLE_RATE, load_audio
from pipelines.asr import Samples

RATE = 48_000
FILMS = [("mkv", "libopus"), ("webm", "libopus"), ("mp4", "aac"), ("ts", "aac")]


def write_film(
    path: Path, codec: str, tones: Sequence[tuple[float, float]], picture_s: float | None
) -> Path:
    """Write a file with tones from some seconds to others, and with pictures unless `picture_s` is
    None."""
    with av.open(path, "w") as output:
        sound = output.add_stream(codec, rate=RATE, layout="mono")
        packets = []
        if picture_s is not None:
            picture = output.add_stream("mpeg4" if path.suffix != ".webm" else "libvpx", rate=5)
            picture.width = picture.height = 32
            picture.pix_fmt = "yuv420p"
            for number in range(round(picture_s * 5)):
                frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8))
                frame.pts, frame.time_base = number, Fraction(1, 5)
                packets += picture.encode(frame)
            packets += picture.encode(None)
        fifo = av.AudioFifo()
        for start_s, end_s in tones:
            count = round((end_s - start_s) * RATE)
            tone = 0.5 * np.sin(np.arange(count) * 2 * np.pi * 440 / RATE)
            frame = av.AudioFrame.from_ndarray(tone[None].astype(np.float32), "fltp", "mono")
            frame.sample_rate, frame.pts = RATE, None
            fifo.write(frame)
            at = round(start_s * RATE)
            while (part := fifo.read(960) or fifo.read()) is not None:
                part.pts, part.time_base = at, Fraction(1, RATE)
                at += part.samples
                packets += sound.encode(part)
        packets += sound.encode(None)
        packets.sort(key=lambda packet: packet.dts * packet.time_base)
        for packet in packets:
            output.mux(packet)
    return path


def read(path: Path) -> Samples:
    """Decode a file that nothing is missing of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_audio(path)


def sounding(samples: Samples) -> list[tuple[float, float]]:
    """The spans (s) with sound, in which no silence is longer than 0.2 s."""
    at = np.flatnonzero(np.abs(samples) > 0.05) / SAMPLE_RATE
    breaks = np.flatnonzero(np.diff(at) > 0.2)
    return list(zip([at[0], *at[breaks + 1]], [*at[breaks], at[-1]], strict=True))


@pytest.mark.parametrize(("suffix", "codec"), FILMS)
@pytest.mark.parametrize("tones", [[(4.0, 6.0)], [(0.0, 2.0), (9.0, 11.0)]], ids=["late", "gap"])
def test_sound_has_the_time_of_the_film(
    tmp_path: Path, suffix: str, codec: str, tones: list[tuple[float, float]]
) -> None:
    found = sounding(read(write_film(tmp_path / f"film.{suffix}", codec, tones, 12.0)))
    assert len(found) == len(tones)
    assert np.array(found) == pytest.approx(np.array(tones), abs=0.08)


@pytest.mark.parametrize(("suffix", "codec"), [("mka", "libopus"), ("m4a", "aac")])
def test_sound_alone_begins_at_zero(tmp_path: Path, suffix: str, codec: str) -> None:
    found = sounding(read(write_film(tmp_path / f"a.{suffix}", codec, [(5.0, 7.0)], None)))
    assert np.array(found) == pytest.approx(np.array([(0.0, 2.0)]), abs=0.08)


def test_a_gap_of_damaged_times_is_left_out(tmp_path: Path) -> None:
    day = 86_400.0
    path = write_film(tmp_path / "a.mka", "libopus", [(0.0, 2.0), (day, day + 2)], None)
    assert len(load_audio(path)) / SAMPLE_RATE == pytest.approx(4.0, abs=0.1)


def test_a_stream_whose_sound_begins_after_five_seconds_is_read(shared_data: Path) -> None:
    found = sounding(read(shared_data / "cases" / "08_late_sound.ts"))
    assert found[0][0] == pytest.approx(8.0, abs=0.5)


def test_nothing_is_missing_of_late_sound(shared_data: Path) -> None:
    assert sounding(read(shared_data / "cases" / "07_late_sound.mkv"))[0][0] > 11
