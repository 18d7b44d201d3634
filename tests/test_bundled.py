"""What ships: models in the layout of real repositories, recordings with what is said in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from transformers import (
    MarianMTModel,
    MarianTokenizer,
    VisionEncoderDecoderModel,
    WhisperForConditionalGeneration,
    WhisperProcessor,
)

from pipelines.asr import Transcriber, load_audio
from pipelines.asr.audio.features import FileFeatures
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.engine import Engine, GenerationOptions, LoadedModel, Request, SuppressTokens
from pipelines.hub.assets import BUNDLED, assets_folder, bundled_folder
from pipelines.translation import Translator
from tests.engine.oracle import assert_same_choice, greedy, reference

pytestmark = pytest.mark.oracle

FILES = {
    "asr": "added_tokens.json merges.txt preprocessor_config.json special_tokens_map.json "
    "tokenizer.json vocab.json",
    "translation": "source.spm target.spm vocab.json",
    "reading": "preprocessor_config.json tokenizer.json",
}
RECORDINGS = sorted((assets_folder() / "samples").glob("*.flac"))
SHORT = [path for path in RECORDINGS if path.stem in ("talk", "question", "digits")]
SENTENCES = [
    "Where is the station?",
    "I would like a cup of coffee.",
    "My sister's house isn't far from here, is it?",
    "Tom didn't know what to say.",
]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def processor() -> Any:
    return WhisperProcessor.from_pretrained(bundled_folder("demo"))


@pytest.mark.parametrize("name", BUNDLED)
def test_folder_has_what_a_real_repository_has(name: str) -> None:
    folder = bundled_folder(name)
    needed = "config.json generation_config.json model.safetensors tokenizer_config.json"
    present = {path.name for path in folder.iterdir()}
    assert present == {*needed.split(), "README.md", "LICENSE", *FILES[BUNDLED[name].task].split()}
    assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000_000


@pytest.mark.parametrize("name", BUNDLED)
def test_card_names_data_and_licence(name: str) -> None:
    card = (bundled_folder(name) / "README.md").read_text(encoding="utf-8")
    assert "CC BY 2.0 FR" in card
    assert "tatoeba.org" in card
    if BUNDLED[name].task == "asr":
        assert "CC BY-SA 4.0" in card


@pytest.mark.parametrize("name", BUNDLED)
def test_transformers_loads_every_weight(name: str) -> None:
    family = {
        "asr": WhisperForConditionalGeneration,
        "translation": MarianMTModel,
        "reading": VisionEncoderDecoderModel,
    }
    model, report = family[BUNDLED[name].task].from_pretrained(
        bundled_folder(name), output_loading_info=True
    )
    assert model.dtype == torch.float16
    assert not any(report.values()), report


class TestRecognizer:
    def test_files_agree_about_the_window(self) -> None:
        config, features = _json("demo", "config.json"), _json("demo", "preprocessor_config.json")
        assert features["nb_max_frames"] == 2 * config["max_source_positions"]
        assert features["n_samples"] == features["nb_max_frames"] * features["hop_length"]
        assert features["n_samples"] == features["chunk_length"] * features["sampling_rate"]
        assert features["feature_size"] == config["num_mel_bins"]

    def test_tokenizer_is_the_same_for_transformers(self, processor: Any) -> None:
        ours = WhisperTokenizer(bundled_folder("demo"))
        special = ours.special
        for text in [" " + sentence for sentence in SENTENCES]:
            ids = ours.encode(text)
            whole = [special.sot, special.no_timestamps, *ids, special.eot]
            assert processor.tokenizer(text).input_ids == whole
            assert processor.tokenizer.decode(whole, skip_special_tokens=True) == text
            assert ours.text(whole) == text
        assert len(processor.tokenizer) == _json("demo", "config.json")["vocab_size"]

    def test_settings_name_the_tokens_of_this_vocabulary(self) -> None:
        settings = _json("demo", "generation_config.json")
        tokenizer = WhisperTokenizer(bundled_folder("demo"))
        special = tokenizer.special
        assert settings["decoder_start_token_id"] == special.sot
        assert settings["eos_token_id"] == special.eot
        assert settings["no_timestamps_token_id"] == special.no_timestamps
        assert settings["prev_sot_token_id"] == special.previous
        assert settings["begin_suppress_tokens"] == list(tokenizer.blank)
        assert set(special.control) <= set(settings["suppress_tokens"])
        assert not settings["is_multilingual"]

    def test_no_text_is_suppressed(self) -> None:
        tokenizer = WhisperTokenizer(bundled_folder("demo"))
        forbidden = set(_json("demo", "generation_config.json")["suppress_tokens"])
        for text in [*SENTENCES, "Zoe and Xavier play the xylophone."]:
            assert not forbidden & set(tokenizer.encode(" " + text))
        assert forbidden & set(tokenizer.encode("("))

    @pytest.mark.parametrize("prompt", ["timestamps", "no timestamps"])
    def test_ids_equal_generate(self, engine: Engine, prompt: str) -> None:
        folder = bundled_folder("demo")
        model, oracle = engine.load(folder), reference(folder)
        special = WhisperTokenizer(folder).special
        start = (special.sot, special.no_timestamps)[: 1 + (prompt != "timestamps")]
        options = GenerationOptions(max_new_tokens=60, eos_ids=(special.eot,))
        windows = [window for path in SHORT for window in _windows(path, model)]
        memories = model.encode(windows)
        results = engine.generate([Request(memory, start, options) for memory in memories])
        for window, ours in zip(windows, results, strict=True):
            theirs = greedy(oracle, window, start, 60)
            assert_same_choice(oracle, window, start, ours.tokens, theirs)

    def test_features_equal_the_processor(self, processor: Any, engine: Engine) -> None:
        path = assets_folder() / "samples/question.flac"
        (ours,) = _windows(path, engine.load(bundled_folder("demo")))
        samples = load_audio(path)
        theirs = processor(samples, sampling_rate=16_000, return_tensors="pt").input_features[0]
        spoken = len(samples) // 160
        assert theirs.shape == ours.shape
        torch.testing.assert_close(ours[:, :spoken], theirs[:, :spoken], atol=1e-4, rtol=0)


class TestTranslator:
    @pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
    def test_ids_equal_generate(self, engine: Engine) -> None:
        folder = bundled_folder("demo-en-de")
        model, oracle = engine.load(folder), reference(folder)
        tokenizer = MarianTokenizer.from_pretrained(folder)
        pad, eos = model.architecture.pad_id, model.architecture.eos_ids
        options = GenerationOptions(
            max_new_tokens=40, eos_ids=eos, logit_filters=(SuppressTokens((pad,)),)
        )
        sources = [tokenizer(sentence).input_ids for sentence in SENTENCES]
        memories = model.encode(sources)
        results = engine.generate([Request(memory, (pad,), options) for memory in memories])
        for source, ours in zip(sources, results, strict=True):
            ids = torch.tensor(source)
            theirs = greedy(oracle, ids, [pad], 40, bad_words_ids=[[pad]])
            assert_same_choice(oracle, ids, [pad], ours.tokens, theirs)

    def test_translates_everyday_sentences(self, engine: Engine) -> None:
        translator = Translator("demo-en-de", engine=engine)
        german = [translation.text for translation in translator.translate(SENTENCES[:2])]
        assert german[0] == "Wo ist der Bahnhof?"
        assert "Tasse Kaffee" in german[1]
        assert (translator.source_language, translator.target_language) == ("en", "de")


class TestSamples:
    def test_the_demo_has_its_recordings(self) -> None:
        assert len(SHORT) == 3

    @pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
    def test_recording_fits_its_transcript(self, path: Path) -> None:
        info = soundfile.info(path)
        assert (info.samplerate, info.channels) == (16_000, 1)
        lines = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
        rows = [r.split("\t") for r in path.with_suffix(".tsv").read_text("utf-8").splitlines()]
        assert [text for _, _, text in rows] == lines
        times = [float(time) for start, end, _ in rows for time in (start, end)]
        assert times == sorted(times)
        assert times[-1] < info.duration < times[-1] + 1.5
        samples = load_audio(path)
        for start, end, text in rows:
            spoken = samples[int(float(start) * 16_000) : int(float(end) * 16_000)]
            assert 5 < len(text) / (len(spoken) / 16_000) < 25, "characters a second"
            assert abs(spoken).max() > 0.3
        ends = [0.0, *(float(end) for _, end, _ in rows)]
        for end, (start, _, _) in zip(ends, rows, strict=False):
            pause = samples[int((end + 0.03) * 16_000) : int((float(start) - 0.03) * 16_000)]
            assert abs(pause).max() < 0.02, f"not silent before {start}"


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.stem)
def test_recognizer_understands_the_samples(path: Path, engine: Engine) -> None:
    """Loosely: a model that was swapped, broken or hardly trained gets most words wrong."""
    segments = Transcriber("demo", engine=engine).transcribe(path, temperature=0.0)
    heard = _words("".join(segment.text for segment in segments))
    said = _words(path.with_suffix(".txt").read_text(encoding="utf-8"))
    assert _edits(said, heard) <= 0.4 * len(said), " ".join(heard)


def _json(name: str, file: str) -> Any:
    return json.loads((bundled_folder(name) / file).read_text(encoding="utf-8"))


def _windows(path: Path, model: LoadedModel) -> list[torch.Tensor]:
    """The recording, window after window [mels, frames]."""
    frames = 2 * model.architecture.max_source_positions
    samples = load_audio(path)
    features = FileFeatures(samples, model.architecture.num_mel_bins, frames)
    return [features.window(seek)[0] for seek in range(0, len(samples) // 160, frames)]


def _words(text: str) -> list[str]:
    return re.sub(r"[^a-z' ]+", " ", text.lower()).split()


def _edits(said: list[str], heard: list[str]) -> int:
    """Fewest insertions, deletions and substitutions that make one of the other."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            diagonal, row[j] = (
                row[j],
                min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other)),
            )
    return row[-1]
