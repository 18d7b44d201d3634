"""Input that a Transcriber refuses, and recordings without speech."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from pipelines.asr import DamagedAudio, TranscribeOptions, Transcriber, TranscriptionInfo
from pipelines.engine import Engine
from pipelines.errors import AudioError, CheckpointError, ModelError, OptionError, UnsupportedTask
from tests.asr.conftest import Pair
from tests.asr.recordings import PHRASES, RECORDINGS, samples_of
from tests.fixtures.checkpoints import write_marian, write_whisper

RATE = 16_000


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def nan_file(folder: Path) -> Path:
    soundfile.write(folder / "nan.wav", np.full(RATE, np.nan, np.float32), RATE, subtype="FLOAT")
    return folder / "nan.wav"


def folder_named_wav(folder: Path) -> Path:
    (folder / "talk.wav").mkdir()
    return folder / "talk.wav"


NO_AUDIO: dict[str, Callable[[Path], Any]] = {
    "empty file": lambda folder: write(folder / "empty.wav", b""),
    "text named mp3": lambda folder: write(folder / "text.mp3", b"Dear all,\nno sound here.\n"),
    "corrupt": lambda folder: write(folder / "a.flac", b"fLaC" + bytes(range(256)) * 40),
    "folder": folder_named_wav,
    "missing": lambda folder: folder / "missing.wav",
    "missing, by its name": lambda folder: str(folder / "missing.wav"),
    "nan file": nan_file,
    "nan": lambda folder: np.array([0.1, np.nan, 0.2]),
    "infinite": lambda folder: (8000, np.array([0.1, -np.inf])),
    "empty array": lambda folder: np.zeros(0, np.float32),
    "no numbers": lambda folder: np.array(["talk.wav"]),
    "a number": lambda folder: 5,
    "bytes": lambda folder: b"RIFF",
    "nothing": lambda folder: None,
}


@pytest.mark.parametrize("what", NO_AUDIO)
def test_input_without_audio_is_refused_before_decoding(
    real: Transcriber, tmp_path: Path, what: str
) -> None:
    source = NO_AUDIO[what](tmp_path)
    for method in (real.transcribe, real.stream, real.detect_language):
        with pytest.raises(AudioError) as caught:
            method(source)
        assert "\n" not in str(caught.value)
        if isinstance(source, (str, Path)):
            assert str(source) in str(caught.value)


def test_one_sample_has_no_text(real: Transcriber, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "one.wav", np.array([0.5]), RATE)
    for source in (tmp_path / "one.wav", np.array([0.5]), np.zeros(159), iter([np.zeros(1)])):
        found = real.transcribe(source)
        assert found.language in real.capabilities.languages
        assert list(found) == []


def test_a_stream_without_blocks_has_no_text(real: Transcriber) -> None:
    for blocks in ([], [np.zeros(0)], iter([np.zeros(0, np.float32)] * 3)):
        assert [type(event) for event in real.stream(blocks)] == [TranscriptionInfo]


@pytest.mark.parametrize("seconds", [0.1, 5.0, 65.0])
def test_silence_has_no_text(fitted: Pair, tmp_path: Path, seconds: float) -> None:
    samples = np.random.default_rng(0).normal(0, 1e-4, int(seconds * RATE)).astype(np.float32)
    certain = {"no_speech_threshold": 0.0, "logprob_threshold": None, "temperature": 0.0}
    assert list(fitted.ours.transcribe(samples, **certain)) == []
    soundfile.write(tmp_path / "silent.flac", np.zeros(int(seconds * RATE)), RATE)
    found = fitted.ours.transcribe(tmp_path / "silent.flac", temperature=0.0)
    assert found.duration == pytest.approx(seconds, abs=0.01)
    assert all(segment.end <= seconds + 30 for segment in found)


def test_the_rest_of_a_truncated_file_is_transcribed(fitted: Pair, tmp_path: Path) -> None:
    path = tmp_path / "talk.flac"
    soundfile.write(path, samples_of(RECORDINGS["long"]), RATE)
    whole = list(fitted.ours.transcribe(path, temperature=0.0))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.warns(DamagedAudio, match=r"talk\.flac"):
        found = fitted.ours.transcribe(path, temperature=0.0)
    rest = list(found)
    assert "talk.flac is damaged" in found.warnings[0]
    assert found.duration is not None
    assert 35 < found.duration < 60
    assert 0 < len(rest) < len(whole)
    assert rest[0].text == whole[0].text


def test_a_file_like_an_array(fitted: Pair, tmp_path: Path) -> None:
    samples = samples_of(RECORDINGS["german"])
    expected = list(fitted.ours.transcribe(samples, temperature=0.0))
    soundfile.write(tmp_path / "talk.wav", samples, RATE, subtype="FLOAT")
    for source in (tmp_path / "talk.wav", str(tmp_path / "talk.wav"), (RATE, samples)):
        assert list(fitted.ours.transcribe(source, temperature=0.0)) == expected
    with (tmp_path / "talk.wav").open("rb") as file:
        assert list(fitted.ours.transcribe(file, temperature=0.0)) == expected


def broken_after(seconds: float, block: Any) -> Iterator[NDArray[np.float32]]:
    samples = samples_of(RECORDINGS["long"])
    for at in range(0, int(seconds * RATE), RATE // 2):
        yield samples[at : at + RATE // 2]
    if isinstance(block, Exception):
        raise block
    yield block


@pytest.mark.parametrize(
    ("block", "error"),
    [
        (np.full(RATE, np.nan, np.float32), AudioError),
        ((8000, np.zeros(800)), AudioError),
        (np.array(["a"]), AudioError),
        (ConnectionResetError("the radio is off"), ConnectionResetError),
    ],
)
def test_a_stream_that_breaks_keeps_the_segments_before(
    fitted: Pair, block: Any, error: type[Exception]
) -> None:
    found = fitted.ours.transcribe(broken_after(40.0, block), temperature=0.0)
    texts = []
    with pytest.raises(error):  # noqa: PT012
        for segment in found:
            texts.append(segment.text)  # noqa: PERF401
    assert texts
    assert set(texts) <= set(PHRASES)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"temprature": 0.5}, "temprature"),
        ({"temperature": ()}, "at least one"),
        ({"temperature": -0.1}, "0 or more"),
        ({"temperature": (0.0, float("nan"))}, "0 or more"),
        ({"task": "summarise"}, "summarise"),
        ({"language": "klingon"}, "klingon"),
        ({"max_initial_timestamp": -1.0}, "0 s or more"),
        ({"suppress_tokens": (51_865,)}, "51865 is no token"),
        ({"suppress_tokens": (-1, -2)}, "-1 or more, not -2"),
    ],
)
def test_impossible_options_are_refused_at_once(
    real: Transcriber, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason) as caught:
        real.transcribe(np.zeros(RATE), **options)
    assert "\n" not in str(caught.value)


def test_overrides_change_the_options_given(real: Transcriber, tmp_path: Path) -> None:
    options = TranscribeOptions(language="German", temperature=0.0)
    assert options.language == "de"
    assert real.transcribe(np.zeros(1), options).language == "de"
    assert real.transcribe(np.zeros(1), options, language="fr").language == "fr"


def assert_refused(transcriber: Transcriber, reason: str, **options: Any) -> None:
    with pytest.raises(UnsupportedTask, match=reason) as caught:
        # Checked before the recording is opened.
        transcriber.transcribe("missing.wav", **options)
    assert "\n" not in str(caught.value)
    assert transcriber.capabilities.name in str(caught.value)


@pytest.mark.slow
def test_an_english_model_takes_english_only(english_only: Path, engine: Engine) -> None:
    transcriber = Transcriber(english_only, engine=engine)
    assert_refused(transcriber, "cannot translate", task="translate")
    assert_refused(transcriber, "only English, not German", language="de")
    assert_refused(transcriber, "only English, not French", language="French", task="translate")
    assert transcriber.detect_language(np.zeros(RATE)) == {"en": 1.0}
    for options in ({}, {"language": "en"}, {"language": "English"}):
        info = transcriber.transcribe(np.zeros(1), **options).info
        assert (info.language, info.language_probability) == ("en", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "dimensions", "translates", "cantonese"),
    [
        ("tiny", {}, True, False),
        ("large-v3", {}, True, True),
        ("turbo", {}, False, True),
        ("distil", {"encoder_layers": 4}, False, True),
    ],
)
def test_capabilities_of_multilingual_models(
    engine: Engine,
    tmp_path: Path,
    shape: str,
    dimensions: dict[str, Any],
    translates: bool,
    cantonese: bool,
) -> None:
    transcriber = Transcriber(write_whisper(tmp_path / shape, shape, **dimensions), engine=engine)
    if translates:
        transcriber.transcribe(np.zeros(1), task="translate")
    else:
        assert_refused(transcriber, "only transcribes: it cannot translate", task="translate")
    if cantonese:
        assert transcriber.transcribe(np.zeros(1), language="Cantonese").language == "yue"
    else:
        assert_refused(transcriber, "not Cantonese", language="yue")
    engine.unload(transcriber.model)


@pytest.mark.slow
def test_folders_without_a_recognition_model(
    english_only: Path, multilingual: Path, engine: Engine, tmp_path: Path
) -> None:
    marian = write_marian(tmp_path / "marian")
    with pytest.raises(ModelError, match="is a marian model, which translates text; speech"):
        Transcriber(marian, engine=engine)
    mixed = tmp_path / "mixed"
    shutil.copytree(english_only, mixed)
    for name in ("tokenizer.json", "vocab.json", "merges.txt", "added_tokens.json"):
        shutil.copy(multilingual / name, mixed)
    # The last timestamp of the larger vocabulary has no logit.
    (mixed / "generation_config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="does not hold a JSON object"):
        Transcriber(mixed, engine=engine)


@pytest.mark.parametrize("heads", [5, [1, 2], [["1", 2]], [[1.7, 2]], {"a": 1}])
def test_damaged_alignment_heads_are_refused(
    multilingual: Path, engine: Engine, tmp_path: Path, heads: object
) -> None:
    shutil.copytree(multilingual, folder := tmp_path / "model")
    path = folder / "generation_config.json"
    path.write_text(json.dumps({"alignment_heads": heads}))
    with pytest.raises(CheckpointError, match=r"generation_config.json is invalid: .* pairs of"):
        Transcriber(folder, engine=engine)


@pytest.mark.slow
def test_no_generation_config_is_needed(
    english_only: Path, multilingual: Path, engine: Engine, tmp_path: Path
) -> None:
    """Its suppress list equals openai-whisper's rule; the rest is derived from the shape."""
    for source in (english_only, multilingual):
        folder = tmp_path / source.name
        shutil.copytree(source, folder)
        bare = Transcriber(folder, engine=engine)
        listed = json.loads((folder / "generation_config.json").read_text())
        (folder / "generation_config.json").unlink()
        other = Transcriber(folder, engine=engine)
        assert other.capabilities == bare.capabilities
        sound = samples_of(RECORDINGS["short"])
        options: dict[str, Any] = {"temperature": 0.0, "no_speech_threshold": None}
        assert list(bare.transcribe(sound, **options)) == list(other.transcribe(sound, **options))
        assert listed["suppress_tokens"]
