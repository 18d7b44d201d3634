"""Absurd headers and oversized packets are rejected within little memory."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from pipelines.asr.audio.decode import DamagedAudio, load_audio
from pipelines.errors import AudioError, LongAudio
from tests.asr.audio.hostile import RATE, endless_wav, flac, flac_frame, wav
from tests.conftest import REPOSITORY

DATA = bytes(200_000)
DAYS_50 = (1 << 36) - 1  # samples at 16 kHz

FILES: dict[str, tuple[bytes, str]] = {
    "slow.flac": (flac(4, [flac_frame(0)]), "sample rate of 4 Hz"),
    "one.flac": (flac(1, [flac_frame(0)]), "sample rate of 1 Hz"),
    "one.wav": (wav(1, 1, DATA), "sample rate of 1 Hz"),
    "below.wav": (wav(999, 1, DATA), "sample rate of 999 Hz"),
    "above.wav": (wav(768_001, 1, DATA), "sample rate of 768001 Hz"),
    "fast.wav": (wav(2_000_000_000, 1, DATA), "sample rate of 2000000000 Hz"),
    "wide.wav": (wav(RATE, 65_535, DATA), "no audio that can be decoded"),
    "wide65.wav": (wav(RATE, 65, DATA), "65 channels, more than 64"),
    "days.flac": (flac(RATE, [flac_frame(0)], DAYS_50), "announces 50 days"),
    "splice.flac": (flac(RATE, [flac_frame(0), flac_frame(1, 10)]), "sample rate of 10 Hz"),
}


def test_the_smallest_is_of_55_bytes() -> None:
    assert len(FILES["slow.flac"][0]) == 55


# The limit is above what Python, numpy and PyAV reserve, by less than any of the files would take.
LIMITED = """
import resource, sys
import av
from pipelines.asr.audio.decode import load_audio
from pipelines.errors import AudioError
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (160 << 20),) * 2)
for path in sys.argv[1:]:
    try:
        print(len(load_audio(path)))
    except AudioError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux'")
def test_absurd_headers_are_rejected_in_little_memory(tmp_path: Path) -> None:
    for name, (content, _) in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "long.wav").write_bytes(wav(RATE, 1, DATA, 0xFFFFFFF0))
    (tmp_path / "fine.flac").write_bytes(flac(655_350, [flac_frame(0)]))
    names = [*FILES, "long.wav", "fine.flac"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIMITED, *(str(tmp_path / name) for name in names)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=180,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(names), done.stderr
    for (name, (_, reason)), line in zip(FILES.items(), lines, strict=False):
        assert line.startswith(str(tmp_path / name))
        assert reason in line
    assert lines[-2] == str(len(DATA) // 2), "what is there is read; what was announced, not held"
    assert int(lines[-1]) == pytest.approx(65_535 * RATE / 655_350, abs=2)


PEAK = """
import resource, sys
from pipelines.asr.audio.decode import load_audio
from pipelines.errors import AudioError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # at least that of the parent
try:
    load_audio(sys.argv[1])
except AudioError as error:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10, error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="units of ru_maxrss are Linux'")
def test_what_a_chunk_announces_is_not_allocated(tmp_path: Path) -> None:
    """libav would allocate 1.6 GB for the name of the program that wrote the file."""
    path = tmp_path / "title.wav"
    chunks = b"LIST" + struct.pack("<I", 0xF0000000) + b"INFOISFT" + struct.pack("<I", 0x60000000)
    path.write_bytes(wav(RATE, 1, b"")[:36] + chunks + b"a" * 64)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=180,
    )
    megabytes, _, error = done.stdout.partition(" ")
    assert int(megabytes) < 300, done.stdout
    assert str(path) in error


def test_announced_duration_above_the_limit_is_not_decoded(tmp_path: Path) -> None:
    with pytest.raises(LongAudio, match=r"lasts more than 60 s") as caught:
        load_audio(endless_wav(tmp_path), 60.0)
    assert caught.value.announced_s == pytest.approx((1 << 30) / 2 / RATE)


@pytest.mark.parametrize("rate", [-1, 0, 1, 999, 768_001, 10**12])
@pytest.mark.parametrize("stream", [False, True])
def test_rates_of_arrays_have_the_same_bounds(rate: int, stream: bool) -> None:
    block = (rate, np.zeros(100, np.float32))
    with pytest.raises(AudioError, match=f"sample rate of {rate} Hz"):
        load_audio([block] if stream else block)


def test_arrays_with_too_many_channels_are_errors() -> None:
    with pytest.raises(AudioError, match="80 channels, more than 64"):
        load_audio(np.zeros((80, 3000), np.float32))


@pytest.mark.parametrize("rate", [1000, 768_000])
def test_rates_at_the_bounds_are_read(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "bound.wav"
    path.write_bytes(wav(rate, 1, DATA))
    assert len(load_audio(path)) == pytest.approx(len(DATA) // 2 * RATE / rate, abs=20)
    assert len(load_audio((rate, np.zeros(rate)))) == pytest.approx(RATE, abs=20)


def one_packet(path: Path, samples: NDArray[Any], rate: int, codec: str, layout: str) -> Path:
    """A Matroska file with all samples [1, n × channels] in one packet."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, layout=layout)
        form = {"pcm_s16le": "s16", "pcm_u8": "u8"}[codec]
        frame = av.AudioFrame.from_ndarray(samples, format=form, layout=layout)
        frame.sample_rate = rate
        packets = [*stream.encode(frame), *stream.encode(None)]
        assert len(packets) == 1
        container.mux(packets)
    return path


@pytest.mark.parametrize("layout", ["mono", "stereo"])
def test_a_long_frame_is_resampled_in_parts(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = {"mono": 1, "stereo": 2}[layout]
    samples = np.random.default_rng(1).integers(-9000, 9000, (1, 700_000 * channels), np.int16)
    path = one_packet(tmp_path / "long.mka", samples, 48_000, "pcm_s16le", layout)
    lengths = []
    resample = av.AudioResampler.resample

    class Watched:
        def __init__(self, *given: Any, **named: Any) -> None:
            self._inner = av_resampler(*given, **named)

        def resample(self, frame: Any) -> Any:
            lengths.append(0 if frame is None else frame.samples)
            return resample(self._inner, frame)

    av_resampler: Callable[..., Any] = av.AudioResampler
    monkeypatch.setattr(av, "AudioResampler", Watched)
    parts = load_audio(path)
    assert lengths == [480_000, 220_000, 0]
    plain = tmp_path / "plain.wav"
    plain.write_bytes(wav(48_000, channels, samples.tobytes()))
    np.testing.assert_array_equal(parts, load_audio(plain))


def test_a_frame_of_any_length_is_not_decoded(tmp_path: Path) -> None:
    samples = np.zeros((1, (1 << 24) + 1), np.uint8)
    path = one_packet(tmp_path / "huge.mka", samples, RATE, "pcm_u8", "mono")
    with pytest.raises(AudioError, match=r"huge\.mka holds no audio that can be decoded"):
        load_audio(path)


def test_a_file_that_announces_much_and_holds_little_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "hour.flac"
    path.write_bytes(flac(RATE, [flac_frame(0)], 3600 * RATE))
    with pytest.warns(DamagedAudio, match=r"4\.1 s of the 3600\.0 s it announces"):
        assert len(load_audio(path)) == 65_535
