"""Recorder: the file is valid at every moment, also after kill -9."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from edgeapp.live import recorder as recorder_module
from edgeapp.live.recorder import Recorder
from pipelines.asr.audio.decode import load_audio
from pipelines.errors import OptionError, OutputError

ENDINGS = (".wav", ".flac")

KILLED = """
import os, signal, sys, time
import numpy as np
from edgeapp.live.recorder import Recorder
samples = np.load(sys.argv[2])
recorder = Recorder(sys.argv[1])
for start in range(0, len(samples), 800):
    recorder.write(samples[start : start + 800])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    """4.3 s, on the grid of 16 bits."""
    levels = np.random.default_rng(7).integers(-20_000, 20_000, 68_800)
    return (levels / 32768).astype(np.float32)


@pytest.mark.parametrize("ending", ENDINGS)
def test_samples_are_read_back_bit_for_bit(
    ending: str, tmp_path: Path, samples: np.ndarray
) -> None:
    path = tmp_path / f"kept{ending.upper()}"
    with Recorder(path) as recorder:
        for block in np.array_split(samples, [1, 2, 900, 900, 20_000]):
            recorder.write(block)
    read, rate = soundfile.read(path, dtype="float32")
    assert rate == 16_000
    np.testing.assert_array_equal(read, samples)
    assert soundfile.info(path).subtype == "PCM_16"


@pytest.mark.parametrize("ending", ENDINGS)
def test_samples_beyond_full_scale_are_clipped(ending: str, tmp_path: Path) -> None:
    with Recorder(tmp_path / f"loud{ending}") as recorder:
        recorder.write(np.array([2.0, -2.0, 1.0, -1.0, 0.5], np.float32))
    read, _ = soundfile.read(tmp_path / f"loud{ending}", dtype="int16")
    assert read.tolist() == [32767, -32768, 32767, -32768, 16384]


@pytest.mark.parametrize("ending", ENDINGS)
def test_kill_9_loses_less_than_a_second_and_leaves_a_file_that_plays(
    ending: str, tmp_path: Path, samples: np.ndarray
) -> None:
    path = tmp_path / f"killed{ending}"
    np.save(tmp_path / "samples.npy", samples)
    command = [sys.executable, "-c", KILLED, str(path), str(tmp_path / "samples.npy")]
    assert subprocess.run(command, timeout=180).returncode == -9
    read, _ = soundfile.read(path, dtype="float32")
    assert len(samples) - 16_000 < len(read) <= len(samples)
    np.testing.assert_array_equal(read, samples[: len(read)])
    # With no warning, which would tell of a damaged file.
    np.testing.assert_array_equal(load_audio(path), read)


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_file_grows_by_the_second_and_plays_meanwhile(
    ending: str, tmp_path: Path, samples: np.ndarray
) -> None:
    path = tmp_path / f"growing{ending}"
    with Recorder(path) as recorder:
        for start in range(0, len(samples), 1600):
            recorder.write(samples[start : start + 1600])
            written = start + 1600
            if written >= 16_000:
                read, _ = soundfile.read(path, dtype="float32")
                assert written - len(read) < 16_000
                np.testing.assert_array_equal(read, samples[: len(read)])


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_earlier_recording_is_not_overwritten(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"earlier{ending}"
    path.write_bytes(b"precious")
    with pytest.raises(OutputError, match="exists already"):
        Recorder(path)
    assert path.read_bytes() == b"precious"


def test_other_endings_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"\.wav or \.flac"):
        Recorder(tmp_path / "kept.mp3")
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is not a folder"):
        Recorder(tmp_path / "nowhere" / "kept.wav")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_full_disk_is_reported_once_and_the_file_kept(
    ending: str, tmp_path: Path, samples: np.ndarray
) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / f"full{ending}"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with Recorder(path) as recorder:
            recorder.write(samples[:32_000])
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5000, before[1]))
            with pytest.raises(OutputError, match="full.* cannot be written: File too large"):
                recorder.write(samples[32_000:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    read, _ = soundfile.read(path, dtype="float32", frames=16_000)
    np.testing.assert_array_equal(read, samples[:16_000])


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_disk_full_at_the_end_is_reported_and_the_file_closed(
    ending: str, tmp_path: Path, samples: np.ndarray
) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / f"full{ending}"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    recorder = Recorder(path)
    recorder.write(samples[:20_000])
    recorder.write(samples[20_000:24_000])
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, before[1]))
        with pytest.raises(OutputError, match="File too large"):
            recorder.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    recorder.close()  # which is done already: nothing more to say


def test_an_empty_recording_is_a_valid_file(tmp_path: Path) -> None:
    with Recorder(tmp_path / "nothing.wav"):
        pass
    assert soundfile.info(tmp_path / "nothing.wav").frames == 0


def test_a_wav_file_ends_before_its_header_overflows(
    tmp_path: Path, samples: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes in the header have 32 bits."""
    monkeypatch.setattr(recorder_module, "_MAX_WAV_BYTES", 2 * 32_000)
    path = tmp_path / "long.wav"
    recorder = Recorder(path)
    recorder.write(samples[:32_000])
    with pytest.raises(OutputError, match="no more than 37 hours; .flac files do"):
        recorder.write(samples[32_000:64_000])
    recorder.close()
    read, _ = soundfile.read(path, dtype="float32")
    np.testing.assert_array_equal(read, samples[:32_000])
