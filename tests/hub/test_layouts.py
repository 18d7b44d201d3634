"""The stand-in checkpoints are what the real repositories hold: transformers takes every file of
them, and so do we after a download."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.hub import pull, resolve
from tests.fixtures.hub import Hub

pytestmark = pytest.mark.oracle

WHISPER = "tiny tiny.en large-v3 turbo distil".split()
MARIAN = "opus-mt-en-de opus-mt-en-mul opus-mt-tc-big-en-fr separate-vocabs".split()
MANY = (
    "nllb-200-distilled-600M m2m100_418M mbart-large-50-many-to-many-mmt mbart-large-en-ro "
    "t5-small flan-t5-small"
).split()
Folders = Callable[..., Path]


def read(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return content


def test_the_files_of_openai_whisper(whisper_folder: Folders) -> None:
    assert {file.name for file in whisper_folder("tiny").iterdir()} == {
        "added_tokens.json",
        "config.json",
        "generation_config.json",
        "merges.txt",
        "model.safetensors",
        "normalizer.json",
        "preprocessor_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
    }


def test_the_files_of_helsinki_nlp(marian_folder: Folders) -> None:
    assert {file.name for file in marian_folder("opus-mt-en-de").iterdir()} == {
        "config.json",
        "generation_config.json",
        "pytorch_model.bin",
        "source.spm",
        "target.spm",
        "tokenizer_config.json",
        "vocab.json",
    }


def test_whispers_published_numbers(whisper_folder: Folders) -> None:
    expected = {
        #           vocabulary, mels, eos, sot, no-timestamps, decoder layers of the real one
        "tiny": (51_865, 80, 50_257, 50_258, 50_363),
        "tiny.en": (51_864, 80, 50_256, 50_257, 50_362),
        "large-v3": (51_866, 128, 50_257, 50_258, 50_364),
        "turbo": (51_866, 128, 50_257, 50_258, 50_364),
        "distil": (51_866, 128, 50_257, 50_258, 50_364),
    }
    for shape, numbers in expected.items():
        folder = whisper_folder(shape)
        config, generation = read(folder, "config.json"), read(folder, "generation_config.json")
        assert numbers == (
            config["vocab_size"],
            config["num_mel_bins"],
            config["eos_token_id"],
            config["decoder_start_token_id"],
            generation["no_timestamps_token_id"],
        )
        assert config["max_source_positions"] == 1500
        assert config["max_target_positions"] == 448
        assert read(folder, "preprocessor_config.json")["feature_size"] == numbers[1]
        assert generation["is_multilingual"] is (shape != "tiny.en")
    assert read(whisper_folder("turbo"), "config.json")["decoder_layers"] == 4
    assert read(whisper_folder("distil"), "config.json")["decoder_layers"] == 2


def test_opus_mt_en_des_published_numbers(marian_folder: Folders) -> None:
    config = read(marian_folder("opus-mt-en-de"), "config.json")
    assert config["vocab_size"] == config["decoder_vocab_size"] == 58_101
    assert config["pad_token_id"] == config["decoder_start_token_id"] == 58_100
    assert config["bad_words_ids"] == [[58_100]]
    assert config["eos_token_id"] == config["bos_token_id"] == config["forced_eos_token_id"] == 0
    assert config["activation_function"] == "swish"
    assert config["scale_embedding"] is config["static_position_embeddings"] is True
    assert config["normalize_before"] is config["normalize_embedding"] is False
    assert (config["num_beams"], config["max_length"]) == (4, 512)
    assert len(read(marian_folder("opus-mt-en-de"), "vocab.json")) == 58_101


@pytest.mark.parametrize("shape", WHISPER)
def test_transformers_takes_all_of_a_whisper_folder(whisper_folder: Folders, shape: str) -> None:
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    folder = whisper_folder(shape)
    model, info = WhisperForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    unknown = read(folder, "config.json").keys() - model.config.to_dict().keys()
    # Keys of the real files that transformers reads under other names, or leaves to generation.
    assert unknown <= {"torch_dtype", "max_length", "num_hidden_layers"}
    processor = WhisperProcessor.from_pretrained(folder)
    tokenizer = processor.tokenizer
    assert len(tokenizer) == model.config.vocab_size
    assert tokenizer.convert_tokens_to_ids("<|0.00|>") == model.config.vocab_size - 1501
    text = " Where is the station? Über 12 €."
    plain = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(plain) == text
    assert model.generation_config.no_timestamps_token_id in tokenizer("x").input_ids
    assert processor.feature_extractor.feature_size == model.config.num_mel_bins


@pytest.mark.parametrize("shape", MARIAN)
@pytest.mark.parametrize("weights", ["bin", "safetensors"])
def test_transformers_takes_all_of_a_marian_folder(
    marian_folder: Folders, shape: str, weights: str
) -> None:
    from transformers import MarianMTModel, MarianTokenizer

    folder = marian_folder(shape, weights=weights)
    model, info = MarianMTModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    with pytest.warns(UserWarning, match="sacremoses"):
        tokenizer = MarianTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token_id == model.config.eos_token_id
    ids = tokenizer("We want a cup of coffee today.").input_ids
    assert ids[-1] == model.config.eos_token_id
    assert tokenizer.unk_token_id not in ids
    assert max(ids) < model.config.vocab_size
    target = tokenizer(text_target="Wir trinken Kaffee.").input_ids
    assert tokenizer.decode(target, skip_special_tokens=True) == "Wir trinken Kaffee."
    if shape == "opus-mt-en-mul":
        code = tokenizer(">>deu<< Hello.").input_ids[0]
        assert tokenizer.convert_ids_to_tokens(code) == ">>deu<<"


def test_the_files_of_the_many_language_models(many_folder: Folders) -> None:
    common = {"config.json", "generation_config.json", "tokenizer_config.json", "pytorch_model.bin"}
    own = {
        "nllb-200-distilled-600M": "sentencepiece.bpe.model special_tokens_map.json tokenizer.json",
        "m2m100_418M": "sentencepiece.bpe.model special_tokens_map.json vocab.json",
        "mbart-large-50-many-to-many-mmt": "sentencepiece.bpe.model special_tokens_map.json",
        "mbart-large-en-ro": "sentencepiece.bpe.model",
        "t5-small": "special_tokens_map.json spiece.model tokenizer.json",
    }
    for shape, names in own.items():
        files = {file.name for file in many_folder(shape, seed=1).iterdir()}
        assert files == common | set(names.split())


@pytest.mark.parametrize("shape", MANY)
def test_transformers_takes_all_of_a_many_language_folder(many_folder: Folders, shape: str) -> None:
    from transformers import AutoModelForSeq2SeqLM

    folder = many_folder(shape, seed=1)
    model, info = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    assert model.config.model_type == read(folder, "config.json")["model_type"]


@pytest.mark.parametrize("shape", ["nllb-200-distilled-600M", "t5-small"])
def test_their_weights_as_safetensors(many_folder: Folders, shape: str) -> None:
    from pipelines.engine import Engine

    folders = [many_folder(shape, seed=1, weights=form) for form in ("bin", "safetensors")]
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        one, other = (engine.load(folder) for folder in folders)
        source = [[5, 9, 2]]
        logits = [model.score(model.encode(source)[0], [2, 7]) for model in (one, other)]
    assert (logits[0] == logits[1]).all()


def test_downloaded_they_load_and_run(
    hub: Hub, whisper_folder: Folders, marian_folder: Folders, many_folder: Folders
) -> None:
    from pipelines.asr import Transcriber
    from pipelines.engine import Engine
    from pipelines.translation import Translator

    hub.host("openai/whisper-tiny", whisper_folder("tiny"))
    hub.host("Helsinki-NLP/opus-mt-en-de", marian_folder("opus-mt-en-de"))
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        pull("tiny")
        assert Transcriber("tiny", engine=engine) is not None
        pull("opus-mt-en-de")
        translator = Translator("opus-mt-en-de", engine=engine)
        assert (translator.source_language, translator.target_language) == ("en", "de")
        for name, shape, repository in (
            ("nllb-200-distilled-600m", "nllb-200-distilled-600M", None),
            ("m2m100-418m", "m2m100_418M", None),
            ("mbart-50-many-to-one", "mbart-large-50-many-to-one-mmt", None),
            ("t5-small", "t5-small", "google-t5/t5-small"),
        ):
            hub.host(repository or f"facebook/{shape}", many_folder(shape, seed=1))
            assert pull(name).name == name
            assert Translator(name, engine=engine).source_codes
        names = (
            "tiny opus-mt-en-de nllb-200-distilled-600m m2m100-418m mbart-50-many-to-one t5-small"
        )
        assert {model.folder for model in engine.models} == {
            resolve(name).folder for name in names.split()
        }
