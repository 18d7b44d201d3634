"""Translation models of CTranslate2 and Argos equal CTranslate2's own results in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines import Translator
from pipelines.engine import Engine, GenerationOptions, Request
from pipelines.hub import resolve
from pipelines.hub.cache import size_of
from pipelines.translation.generation_config import read_generation_defaults
from pipelines.translation.tokenizers.auto import open_tokenizer
from tests.fixtures.checkpoints import write_many, write_marian
from tests.formats.writers import pack_argos, write_argos, write_ctranslate2

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

_TEXTS = ["Where is the station?", "mole", "A longer sentence, with 42 numbers in it."]
_SPM = ("source.spm", "target.spm")


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marian") / "opus-mt-en-de"
    return write_marian(folder, weights="safetensors", dtype="float32")


@pytest.fixture(scope="module")
def package(marian: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_argos(marian, tmp_path_factory.mktemp("argos") / "translate-en_de-1_0")


def ours(folder: Path, beam_size: int = 1, length: int = 30) -> list[str]:
    """The target tokens of _TEXTS, by the engine and the tokenizer of a folder."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(folder)
        defaults = read_generation_defaults(folder, model.architecture)
        tokenizer: Any = open_tokenizer(folder, defaults, "x")
        options = GenerationOptions(
            max_new_tokens=length,
            eos_ids=defaults.eos_ids,
            logit_filters=defaults.logit_filters,
            beam_size=beam_size,
        )
        encoded = model.encode([tokenizer.encode(text) for text in _TEXTS])
        start = (defaults.decoder_start_id,)
        results = engine.generate([Request(source, start, options) for source in encoded])
        return [" ".join(tokenizer._pieces[i] for i in result.tokens) for result in results]


def theirs(folder: Path, spm: Path, eos: bool, beam_size: int = 1, length: int = 30) -> list[str]:
    """The same by CTranslate2."""
    import ctranslate2
    from sentencepiece import SentencePieceProcessor

    splitter = SentencePieceProcessor(model_file=str(spm))
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    sources = [splitter.encode(text, out_type=str) + ["</s>"] * eos for text in _TEXTS]
    found = translator.translate_batch(
        sources, beam_size=beam_size, max_decoding_length=length, return_end_token=True
    )
    return [" ".join(result.hypotheses[0]) for result in found]


@pytest.mark.parametrize("quantization", ["float32", "float16", "int8"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_marian(marian: Path, tmp_path: Path, quantization: str, beam_size: int) -> None:
    made = write_ctranslate2(marian, tmp_path / "opus-mt-en-de", quantization, *_SPM)
    found = resolve(made)
    assert found.task == "translation"
    expected = theirs(made, made / "source.spm", True, beam_size)
    assert ours(found.folder, beam_size) == expected


@pytest.mark.parametrize("beam_size", [1, 4])
def test_argos_folder_and_package(package: Path, tmp_path: Path, beam_size: int) -> None:
    expected = theirs(package / "model", package / "sentencepiece.model", False, beam_size)
    packed = pack_argos(package, tmp_path / "translate-en_de-1_0.argosmodel")
    for path in (package, packed):
        folder = resolve(path).folder
        assert ours(folder, beam_size) == expected
        # The sentencepiece model is linked twice, and in a package the weights once more.
        assert size_of(folder) < 1.5 * size_of(package)


def test_argos_states_its_languages(package: Path) -> None:
    with Translator(package, device="cpu", compute_type="float32") as translator:
        assert (translator.source_language, translator.target_language) == ("en", "de")
        assert isinstance(translator.translate(_TEXTS[0]).text, str)


def test_nllb(tmp_path: Path) -> None:
    import torch

    from pipelines.engine.weights.checkpoint import open_weights

    folder = write_many(tmp_path / "nllb-200-distilled-600m", weights="safetensors")
    names = ("tokenizer.json", "sentencepiece.bpe.model", "tokenizer_config.json")
    copied = [name for name in names if (folder / name).is_file()]
    made = write_ctranslate2(folder, tmp_path / "made" / folder.name, "float32", *copied)
    found = resolve(made).folder
    mine, own = open_weights(found), open_weights(folder)
    name = "model.decoder.layers.1.encoder_attn.v_proj.weight"
    assert torch.allclose(mine.take(name, 64, 64).float(), own.take(name, 64, 64).float())
    with (
        Translator(folder, device="cpu", compute_type="float32", source="en") as original,
        Translator(found, device="cpu", compute_type="float32", source="en") as converted,
    ):
        texts = [original.translate(_TEXTS[0], target="de").text]
        assert [converted.translate(_TEXTS[0], target="de").text] == texts


@pytest.mark.parametrize(
    "name", ["encoder/layernorm_embedding/gamma", "encoder/embeddings_1/weight"]
)
def test_what_is_not_read_is_refused(package: Path, tmp_path: Path, name: str) -> None:
    from pipelines.errors import CheckpointError
    from pipelines.formats.ctranslate2 import read_ctranslate2
    from pipelines.formats.translation_model import ctranslate2_translation

    file = read_ctranslate2(package / "model" / "model.bin")
    file.variables[name] = next(iter(file.variables.values()))
    with pytest.raises(CheckpointError, match="use the original model"):
        ctranslate2_translation(file, package / "model", None, "CTranslate2")
