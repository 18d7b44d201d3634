"""Recognition with models that transformers runs: each chunk equals `generate`, on the command
line too."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeapp.cli import main
from pipelines import LiveTranscriber, SegmentDone, TextDelta, Transcriber, UnsupportedTask
from pipelines.asr.audio.chunks import split_at_pauses
from pipelines.hub import assets_folder, resolve
from pipelines.processors import open_feature_extractor
from tests.fixtures.wrapped import save_module, save_words

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
quiet = pytest.mark.filterwarnings("ignore:.*run by transformers")

RATE = 16_000
EXTRACTORS: dict[str, dict[str, Any]] = {
    "moonshine": {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": RATE,
        "feature_size": 1, "do_normalize": False, "return_attention_mask": True,
    },
    "speech2text": {
        "feature_extractor_type": "Speech2TextFeatureExtractor", "sampling_rate": RATE,
        "feature_size": 20, "num_mel_bins": 20,
    },
    "speecht5": {
        "feature_extractor_type": "SpeechT5FeatureExtractor", "sampling_rate": RATE,
        "feature_size": 1, "do_normalize": False,
    },
}  # fmt: skip


def save_recognizer(folder: Path, family: str) -> Any:
    module = save_module(folder, family)
    save_words(folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(EXTRACTORS[family]), "utf-8")
    return module


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    from pipelines import load_audio

    return load_audio(assets_folder() / "samples" / "question.flac")


@quiet
@pytest.mark.parametrize("family", EXTRACTORS)
def test_each_chunk_equals_generate(family: str, tmp_path: Path, speech: np.ndarray) -> None:
    module = save_recognizer(tmp_path, family)
    assert resolve(tmp_path).task == "asr"
    part = speech[: RATE * 5 // 4]
    twice = np.concatenate([part, np.zeros(RATE * 2, np.float32), part])
    with Transcriber(tmp_path, device="cpu") as transcriber:
        segments = list(transcriber.transcribe(twice, batch_size=4, chunk_s=2))
        chunks = list(split_at_pauses([twice], 2))
        assert len(segments) == len(chunks) > 1
        extractor = open_feature_extractor(tmp_path)
        for segment, chunk in zip(segments, chunks, strict=True):
            first = chunk.start_frame * 160 - chunk.offset
            samples = chunk.samples[max(0, first) : chunk.end_frame * 160 - chunk.offset]
            made = extractor(samples, sampling_rate=RATE, return_tensors="pt")
            features = made["input_values" if "input_values" in made else "input_features"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ids = module.generate(
                    features, max_new_tokens=max(1, len(segment.tokens)), do_sample=False,
                    decoder_start_token_id=transcriber.model.architecture.start_id,
                )[0, 1:].tolist()  # fmt: skip
            assert [*segment.tokens] == ids[: len(segment.tokens)]
            assert segment.start == chunk.start_frame / 100


@quiet
def test_live_text_and_order(tmp_path: Path, speech: np.ndarray) -> None:
    save_recognizer(tmp_path, "moonshine")
    with Transcriber(tmp_path, device="cpu", name="moonshine-tiny-ja") as transcriber:
        info, *events = transcriber.stream(speech)
        assert info.language == "ja"
        done = [event.segment for event in events if isinstance(event, SegmentDone)]
        live = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert live == "".join(segment.text for segment in done)
        assert [segment.id for segment in done] == [*range(len(done))]


@quiet
def test_what_they_cannot_do_is_refused(tmp_path: Path, speech: np.ndarray) -> None:
    save_recognizer(tmp_path, "moonshine")
    with Transcriber(tmp_path, device="cpu") as transcriber:
        with pytest.raises(UnsupportedTask, match="without word timestamps"):
            transcriber.transcribe(speech, word_timestamps=True)
        with pytest.raises(UnsupportedTask, match="only transcribes"):
            transcriber.transcribe(speech, task="translate")
        with pytest.raises(UnsupportedTask, match="recordings only"):
            LiveTranscriber(transcriber)


@pytest.mark.filterwarnings("always")
def test_the_command_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    folder = tmp_path / "moonshine"
    save_recognizer(folder, "moonshine")
    recording = assets_folder() / "samples" / "question.flac"
    capfd.readouterr()
    for format in ("txt", "json"):
        with pytest.raises(SystemExit) as stop:
            main(
                ["transcribe", str(recording), "-m", str(folder), "-f", format, "-o", str(tmp_path)]
                + ["--no-journal"]
            )
        _, err = capfd.readouterr()
        assert stop.value.code in (0, None), err
        assert err.count("run by transformers") == 1
        assert (tmp_path / f"{recording.stem}.{format}").is_file()
