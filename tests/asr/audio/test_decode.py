"""load_audio: formats, sample rates, arrays, streams, damaged files and errors."""

from __future__ import annotations

import io
import subprocess
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from PIL import Image

from pipelines.asr.audio.decode import DamagedAudio, is_stream, load_audio
from pipelines.errors import AudioError, LongAudio
from tests.campaign.recordings import encoded_forms

RATE = 16_000


def tone(seconds: float, rate: int = RATE, pitch: float = 440.0) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(int(seconds * rate)) / rate)


def write(path: Path, samples: NDArray[Any], rate: int, **options: Any) -> Path:
    soundfile.write(path, samples, rate, **options)
    return path


def assert_tone(samples: NDArray[np.float32], seconds: float, tolerance: float) -> None:
    """A 440 Hz tone of this length, whatever happens at its edges."""
    assert samples.dtype == np.float32
    assert samples.ndim == 1
    assert len(samples) == pytest.approx(seconds * RATE, abs=0.08 * RATE)
    expected = tone(seconds)[4000:-4000]
    inner = samples[: len(expected) + 8000]
    lags = range(-1300, 1300)  # lossy codecs may start late
    middle = len(expected) // 2
    best = min(
        lags,
        key=lambda lag: float(
            np.abs(inner[4000 + middle + lag :][:400] - expected[middle : middle + 400]).max()
        ),
    )
    actual = inner[4000 + middle + best :][:3000]
    assert np.abs(actual - expected[middle : middle + 3000]).max() < tolerance


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 44_100, 48_000])
def test_any_rate_comes_out_at_16_khz(tmp_path: Path, rate: int) -> None:
    path = write(tmp_path / "tone.wav", tone(2.0, rate), rate)
    assert_tone(load_audio(path), 2.0, 0.001)


@pytest.mark.parametrize(
    ("name", "options", "tolerance"),
    [
        ("a.flac", {}, 0.001),
        ("a.ogg", {}, 0.1),
        ("a.mp3", {}, 0.1),
        ("a.aiff", {}, 0.001),
        ("float.wav", {"subtype": "DOUBLE"}, 0.001),
        ("u8.wav", {"subtype": "PCM_U8"}, 0.02),
    ],
)
def test_formats(tmp_path: Path, name: str, options: dict[str, Any], tolerance: float) -> None:
    path = write(tmp_path / name, tone(2.0, 44_100), 44_100, **options)
    assert_tone(load_audio(str(path)), 2.0, tolerance)


def test_audio_track_of_a_video(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    with av.open(str(path), "w") as container:
        picture = container.add_stream("mpeg4", rate=10)
        picture.width = picture.height = 64
        sound = container.add_stream("aac", rate=48_000, layout="stereo")
        for _ in range(20):
            image = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
            container.mux(picture.encode(image))
        samples = np.stack([tone(2.0, 48_000)] * 2).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="stereo")
        frame.sample_rate = 48_000
        container.mux(sound.encode(frame))
        container.mux(picture.encode(None))
        container.mux(sound.encode(None))
    assert_tone(load_audio(path), 2.0, 0.1)
    with path.open("rb") as file:  # its index is at the end, out of reach in a pipe
        assert_tone(load_audio(Pipe(file.read())), 2.0, 0.1)


def test_stereo_is_averaged(tmp_path: Path) -> None:
    both = np.stack([tone(1.0), np.zeros(RATE)], axis=1)
    path = write(tmp_path / "stereo.wav", both, RATE)
    np.testing.assert_allclose(load_audio(path), tone(1.0) / 2, atol=1e-3)
    for array in (both, both.T):
        np.testing.assert_allclose(load_audio(array), tone(1.0) / 2, atol=1e-6)


@pytest.mark.parametrize("channels", [2, 4, 6, 8])
def test_channels_are_mixed_as_loud_as_openai_whisper_reads_them(
    tmp_path: Path, channels: int
) -> None:
    """It reads 16-bit integers, which libav mixes so that they cannot overflow."""
    noise = np.random.default_rng(channels).normal(0, 0.05, (RATE, channels))
    path = write(tmp_path / "film.wav", noise, RATE)
    with av.open(str(path)) as container:
        resampler = av.AudioResampler("s16", "mono", RATE)
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
        frames += resampler.resample(None)
        theirs = np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames]) / 32768
    np.testing.assert_allclose(load_audio(path), theirs, atol=1e-4)


def test_the_bytes_of_a_file_are_decoded_as_the_file_is(tmp_path: Path) -> None:
    path = write(tmp_path / "talk.flac", tone(2.0), RATE)
    content, expected = path.read_bytes(), load_audio(path)
    for source in (content, bytearray(content), memoryview(content), io.BytesIO(content)):
        np.testing.assert_array_equal(load_audio(source), expected)
        assert not is_stream(source)
    with path.open("rb") as file:
        np.testing.assert_array_equal(load_audio(file), expected)
    with pytest.raises(AudioError, match="is empty"):
        load_audio(b"")


def test_max_duration_s_is_enforced_during_decoding(tmp_path: Path) -> None:
    """Files need not tell how long they are."""
    path = write(tmp_path / "talk.wav", tone(2.0), RATE)
    blocks = [tone(1.0), tone(1.0)]
    sources = [
        lambda: path,
        lambda: io.BytesIO(path.read_bytes()),
        lambda: tone(2.0),
        lambda: blocks,
    ]
    for source in sources:
        assert len(load_audio(source(), 3.0)) == 2 * RATE
        with pytest.raises(LongAudio, match=r"lasts more than 1\.5 s"):
            load_audio(source(), 1.5)


def test_unmixable_channel_layouts_are_errors(tmp_path: Path) -> None:
    path = write(tmp_path / "nine.wav", np.zeros((RATE, 9)), RATE)
    with pytest.raises(AudioError, match=r"nine\.wav has channels \(9 channels\) that cannot"):
        load_audio(path)


def test_blocks_with_fewer_samples_than_channels() -> None:
    """As a sound device hands them over, and some of them empty."""
    whole = np.random.default_rng(8).normal(0, 0.1, (RATE, 8)).astype(np.float32)
    blocks = np.split(whole, [RATE // 2, RATE // 2 + 4, RATE // 2 + 4, RATE // 2 + 5])
    assert [len(block) for block in blocks][1:4] == [4, 0, 1]
    np.testing.assert_allclose(load_audio(iter(blocks)), whole.mean(1), atol=1e-6)
    assert len(load_audio(np.zeros((0, 2)))) == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.int32, np.uint8])
def test_arrays_of_any_number_type(dtype: type) -> None:
    samples = tone(1.0)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        full = (int(limits.max) + 1 - int(limits.min)) / 2
        array = np.rint(samples * (full - 1) + (full if limits.min == 0 else 0)).astype(dtype)
    else:
        array = samples.astype(dtype)
    np.testing.assert_allclose(load_audio(array), samples, atol=0.01)
    np.testing.assert_allclose(load_audio((RATE, array)), samples, atol=0.01)


def test_an_array_with_its_rate_is_resampled() -> None:
    assert_tone(load_audio((44_100, tone(2.0, 44_100))), 2.0, 0.001)


def test_float32_at_16_khz_is_not_copied() -> None:
    samples = tone(1.0).astype(np.float32)
    assert load_audio(samples) is samples


def test_blocks_are_resampled_across_their_seams() -> None:
    samples = tone(2.0, 48_000)
    whole = load_audio((48_000, samples))
    pieces = load_audio((48_000, block) for block in np.array_split(samples, 29))
    np.testing.assert_array_equal(pieces, whole)


class Pipe(io.RawIOBase):
    """A file that can only be read on, as standard input is when something is piped in."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)


def test_binary_files_and_pipes(tmp_path: Path) -> None:
    content = write(tmp_path / "tone.flac", tone(2.0), RATE).read_bytes()
    for file in (io.BytesIO(content), Pipe(content)):
        assert_tone(load_audio(file), 2.0, 0.001)
    with subprocess.Popen(["cat", tmp_path / "tone.flac"], stdout=subprocess.PIPE) as cat:
        assert cat.stdout is not None
        assert_tone(load_audio(cat.stdout), 2.0, 0.001)


def test_a_header_written_before_the_length_was_known(tmp_path: Path) -> None:
    content = bytearray(write(tmp_path / "tone.wav", tone(2.0), RATE).read_bytes())
    for field in (4, 40):
        content[field : field + 4] = b"\xff\xff\xff\x7f"
    assert_tone(load_audio(io.BytesIO(content)), 2.0, 0.001)


def chained(folder: Path, *rates: int) -> Path:
    """A tone of a second at each rate, as one Ogg file."""
    links = [write(folder / f"{rate}.ogg", tone(1.0, rate), rate) for rate in rates]
    path = folder / "chained.ogg"
    path.write_bytes(b"".join(link.read_bytes() for link in links))
    return path


@pytest.mark.parametrize("rates", [(16_000, 16_000), (16_000, 44_100, 8_000)])
def test_all_links_of_a_chained_ogg_file_are_heard(tmp_path: Path, rates: tuple[int, ...]) -> None:
    samples = load_audio(chained(tmp_path, *rates))
    assert len(samples) == pytest.approx(len(rates) * RATE, abs=0.1 * RATE)
    for second in range(len(rates)):
        middle = samples[second * RATE + 4_000 : second * RATE + 12_000]
        assert np.abs(middle).max() == pytest.approx(0.5, abs=0.1)


def test_a_link_that_is_damaged_does_not_hide_the_others(tmp_path: Path) -> None:
    path = chained(tmp_path, 16_000, 44_100)
    content = path.read_bytes()
    second = content.rindex(b"\x01vorbis")
    path.write_bytes(content[:second] + bytes(30) + content[second + 30 :])
    with pytest.warns(DamagedAudio, match="other parts of the file are used"):
        assert len(load_audio(path)) == pytest.approx(RATE, abs=0.1 * RATE)


def test_flac_in_nut_is_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.nut"
    samples = (32767 * tone(1.0)).astype(np.int16)
    with av.open(str(path), "w", format="nut") as container:
        stream = container.add_stream("flac", rate=RATE, layout="mono")
        for start in range(0, RATE, 1_000):
            block = samples[None, start : start + 1_000]
            frame = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
            frame.sample_rate, frame.pts = RATE, start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamagedAudio)
        assert len(load_audio(path)) == RATE


def test_an_end_mark_before_the_end_is_damage_only(tmp_path: Path) -> None:
    path, block = tmp_path / "a.adx", 18  # bytes of a block of 32 samples
    with av.open(path, "w") as container:
        stream = container.add_stream("adpcm_adx", rate=RATE, layout="stereo")
        values = (tone(2.0) * 0.5 * 32767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(np.repeat(values, 2)[None], "s16", "stereo")
        frame.sample_rate = RATE
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    data = bytearray(path.read_bytes())
    start = len(data) - 2 * block * (RATE // 32)  # a second before the end
    data[start : start + 2] = b"\x80\x01"
    path.write_bytes(data)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        samples = load_audio(path)
    assert {warning.category for warning in raised} == {DamagedAudio}
    assert len(samples) / RATE == pytest.approx(1.0, abs=0.01)


def test_an_mp3_with_thousands_of_covers(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (1, 1)).save(picture, "PNG")
    body = b"\0image/png\0\x03\0" + picture.getvalue()
    covers = 2_000 * (b"APIC" + len(body).to_bytes(4, "big") + b"\0\0" + body)
    size = bytes(len(covers) >> shift & 127 for shift in (21, 14, 7, 0))
    sound = write(tmp_path / "a.mp3", tone(1.0), RATE).read_bytes()
    path = tmp_path / "covers.mp3"
    path.write_bytes(b"ID3\x03\0\0" + size + covers + sound)
    assert len(load_audio(path)) == pytest.approx(RATE, abs=0.1 * RATE)


def test_odd_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "plain.wav", tone(1.0), RATE)
    for name in ("http:talk.wav", "-", "%03d.wav", "grüße 1'2\".wav"):
        Path("plain.wav").rename(name)
        assert len(load_audio(name)) == RATE
        Path(name).rename("plain.wav")


def test_one_sample_is_audio(tmp_path: Path) -> None:
    assert len(load_audio(write(tmp_path / "one.wav", np.array([0.5]), RATE))) == 1
    assert load_audio(np.array([0.5])).tolist() == [0.5]


def truncated_flac(folder: Path) -> Path:
    path = write(folder / "whole.flac", np.random.default_rng(0).uniform(-0.5, 0.5, 80_000), RATE)
    cut = folder / "cut.flac"
    cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return cut


def holed_mp3(folder: Path) -> Path:
    path = write(folder / "hole.mp3", np.random.default_rng(0).uniform(-0.5, 0.5, 80_000), RATE)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 6000] = bytes(6000)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("make", [truncated_flac, holed_mp3])
def test_damaged_files_are_decoded_in_part(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path)
    with pytest.warns(DamagedAudio, match=path.name):
        samples = load_audio(path)
    assert 1.0 < len(samples) / RATE < 5.0


def folder_named_wav(folder: Path) -> Path:
    (folder / "folder.wav").mkdir()
    return folder / "folder.wav"


def content(name: str, data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return make


def no_samples(folder: Path) -> Path:
    return write(folder / "none.wav", np.zeros(0), RATE)


# Matroska with an audio track for which libav opens no decoder: its header is damaged.
NO_DECODER = bytes.fromhex(
    "1a45dfa3a342008100420081004200810042008100420088000000000000000042008100400040000016"
    "54ae6bd5bf8400000000ae0100000000000046d78100c58800000000000000009c8100868a4100000000"
    "0000000000838102e191001f43b675"
)
# CAF with the size of a chunk that leads before the beginning of the file.
SEEKS_BACK = bytes.fromhex(
    "636166660001000064657363000000000000002000000000000000000000000000000000000000000000"
    "00000000000000000000000000006e00000000000000000000000200000000000000"
)


def not_numbers(folder: Path) -> Path:
    samples = tone(1.0)
    samples[777] = np.nan
    return write(folder / "nan.wav", samples, RATE, subtype="FLOAT")


def playlist(folder: Path) -> Path:
    write(folder / "secret.wav", tone(1.0), RATE)
    return content("list.mp3", b"ffconcat version 1.0\nfile secret.wav\n")(folder)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (content("empty.wav", b""), "is empty"),
        (content("text.mp3", b"Dear all,\nthis is no sound.\n"), "is not audio"),
        (content("long.mp3", b"and so it goes on, line by line.\n" * 5000), "no audio"),
        (content("noise.flac", np.random.default_rng(0).bytes(50_000)), "is not audio|no audio"),
        (content("head.wav", b"RIFF\x24\x00\x00\x00WAVEfmt "), "is not audio|no audio"),
        (folder_named_wav, "is a folder"),
        (no_samples, "holds no audio"),
        (not_numbers, "not numbers"),
        (playlist, "is not audio"),
        (content("track.mkv", NO_DECODER), "its header is damaged"),
        (content("back.caf", SEEKS_BACK), "is not audio"),
        (lambda folder: folder / "missing.wav", "there is no such file"),
    ],
)
def test_files_without_audio_are_errors(
    tmp_path: Path,
    make: Callable[[Path], Path],
    reason: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = make(tmp_path)
    with pytest.raises(AudioError, match=reason) as caught:
        load_audio(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == "", "the libraries print nothing"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (np.array([0.1, np.inf]), "not numbers"),
        ((44_100, np.array([0.0, np.nan] * 2000)), "not numbers"),
        (np.array(["a"]), "floats or integers"),
        (np.zeros((2, 2, 2)), "one or two dimensions"),
        ((0, np.zeros(5)), "sample rate"),
        ((1, 2, 3), "pair"),
        (b"RIFF", "is not audio that can be decoded"),
        (5, "int"),
        ([np.zeros(5), (8000, np.zeros(5))], "changes its sample rate"),
        ([np.zeros(5), np.array([np.nan])], "not numbers"),
    ],
)
def test_invalid_arrays_are_errors(source: Any, reason: str) -> None:
    with pytest.raises(AudioError, match=reason):
        load_audio(source)


@pytest.mark.slow
def test_a_long_recording_is_held_once(tmp_path: Path) -> None:
    minutes = 20
    path = tmp_path / "long.flac"
    with soundfile.SoundFile(path, "w", RATE, 1) as file:
        for _ in range(minutes):
            file.write(tone(60.0))
    size = minutes * 60 * RATE * 4

    def stream() -> Iterator[NDArray[np.float32]]:
        for _ in range(minutes):
            yield tone(60.0).astype(np.float32)

    for source in (path, stream()):
        tracemalloc.start()
        samples = load_audio(source)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert samples.nbytes == size
        assert peak < 1.3 * size


def test_no_whole_recording_is_called_damaged() -> None:
    forms = encoded_forms()
    assert len(forms) > 40
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamagedAudio)
        for name, content in forms.items():
            assert load_audio(io.BytesIO(content)).size > 0.4 * 16_000, name
    with pytest.warns(DamagedAudio):  # cut off within a chunk
        load_audio(io.BytesIO(forms["wsaud-adpcm.ima.ws"][:-200]))
