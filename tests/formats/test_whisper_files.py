"""One Whisper model in the files of four programs: the same weights, tokens and text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.engine import Engine, GenerationOptions, Request, convert_model
from pipelines.engine.weights.checkpoint import open_weights
from pipelines.errors import CheckpointError
from pipelines.hub import resolve
from tests.fixtures.checkpoints import write_whisper
from tests.formats.writers import (
    QUANTIZED,
    quantized,
    write_ctranslate2,
    write_ggml,
    write_gguf,
    write_pt,
)

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

_PROMPT = (50258, 50363)  # start of transcript, no timestamps: CTranslate2 has rules for those
_COPIED = ("tokenizer.json", "preprocessor_config.json")
# One tensor of each kind: embedding, convolution, fused projection, norm, position, linear.
_NAMES = {
    "model.decoder.embed_tokens.weight": (51_865, 64),
    "model.encoder.conv1.weight": (64, 80, 3),
    "model.encoder.conv2.bias": (64,),
    "model.decoder.layers.1.encoder_attn.v_proj.weight": (64, 64),
    "model.decoder.layers.0.self_attn.q_proj.bias": (64,),
    "model.encoder.layers.1.self_attn_layer_norm.weight": (64,),
    "model.decoder.embed_positions.weight": (448, 64),
    "model.encoder.layers.0.fc2.weight": (64, 256),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whisper(tmp_path_factory.mktemp("whisper") / "base", "base", dtype="float32")


def tokens(folder: Path, length: int = 24) -> list[int]:
    """Greedy ids on noise, in float32."""
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        model = engine.load(folder)
        options = GenerationOptions(max_new_tokens=length, eos_ids=())
        encoded = model.encode([noise()])[0]
        return [*engine.generate([Request(encoded, _PROMPT, options)])[0].tokens]


def noise() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((80, 3000)).astype(np.float32)


def differences(folder: Path, original: Path) -> list[float]:
    """The largest difference of each tensor, relative to its largest number."""
    theirs, ours = open_weights(folder), open_weights(original)
    found = []
    for name, shape in _NAMES.items():
        own = ours.take(name, *shape).float()
        other = theirs.take(name, *shape).float()
        found.append(float((own - other).abs().max() / own.abs().max()))
    return found


@pytest.mark.parametrize(
    ("quantization", "bound"),
    [("float32", 0.0), ("float16", 6e-4), ("bfloat16", 5e-3), ("int16", 1.1e-3), ("int8", 5e-3)],
)
def test_ctranslate2(original: Path, tmp_path: Path, quantization: str, bound: float) -> None:
    made = write_ctranslate2(original, tmp_path / "base", quantization, *_COPIED)
    folder = resolve(made).folder
    assert max(differences(folder, original)) <= bound
    if quantization == "float32":
        import ctranslate2

        model = ctranslate2.models.Whisper(str(made), compute_type="float32", intra_threads=1)
        features = ctranslate2.StorageView.from_array(noise()[None])
        said = model.generate(
            features, [[*_PROMPT]], beam_size=1, suppress_blank=False, suppress_tokens=[],
            max_length=26, return_scores=False,
        )  # fmt: skip
        expected = [i for i in said[0].sequences_ids[0] if i != 50257]
        assert tokens(folder)[: len(expected)] == expected


@pytest.mark.parametrize("program", ["ctranslate2", "ggml", "pt"])
def test_the_vocabulary_is_that_of_the_program(
    original: Path, tmp_path: Path, program: str
) -> None:
    """Without a tokenizer.json beside the weights."""
    from pipelines.asr.tokenizer import WhisperTokenizer

    if program == "ctranslate2":
        made = write_ctranslate2(original, tmp_path / "base", "int8")
    elif program == "ggml":
        made = write_ggml(original, tmp_path / "ggml-base.bin")
    else:
        made = write_pt(original, tmp_path / "base.pt")
    ours, theirs = WhisperTokenizer(resolve(made).folder), WhisperTokenizer(original)
    text = "Straßenbahn, naïve 日本語 & 42 % – “so”!"
    assert ours.encode(text) == theirs.encode(text)
    assert ours.decode(ours.encode(text)) == text
    assert ours.special.languages == theirs.special.languages
    assert ours.special.timestamp_begin == theirs.special.timestamp_begin
    assert ours.non_speech == theirs.non_speech


def test_a_pt_file_without_openai_whisper(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no vocabulary of its own."""
    file = write_pt(original, tmp_path / "base.pt")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"put the tokenizer\.json .* beside it"):
        resolve(file)
    (tmp_path / "tokenizer.json").write_bytes((original / "tokenizer.json").read_bytes())
    assert resolve(file).task == "asr"


@pytest.mark.parametrize("shape", ["tiny.en", "base", "large-v3", "turbo", "distil"])
def test_openai_s_pt(tmp_path: Path, shape: str) -> None:
    folder = write_whisper(tmp_path / "folder", shape, dtype="float32")
    found = resolve(write_pt(folder, tmp_path / f"{shape}.pt"))
    assert found.task == "asr"
    ours, theirs = open_weights(found.folder), open_weights(folder)
    name = "model.decoder.layers.1.fc1.weight"
    assert torch.equal(ours.take(name, 256, 64), theirs.take(name, 256, 64))
    from pipelines.asr.tokenizer import WhisperTokenizer

    assert WhisperTokenizer(found.folder).special == WhisperTokenizer(folder).special


@pytest.mark.parametrize("kind", ["float32", "float16", *QUANTIZED])
def test_whisper_cpp(original: Path, tmp_path: Path, kind: str) -> None:
    folder = resolve(write_ggml(original, tmp_path / "ggml-base.bin", kind)).folder
    bits = {"float32": 99, "float16": 10, "q8_0": 7, "q5_0": 4, "q5_1": 4, "q4_0": 3, "q4_1": 3}
    assert max(differences(folder, original)) <= 1.2 * 2.0 ** -bits[kind]


def test_gguf(original: Path, tmp_path: Path) -> None:
    folder = resolve(write_gguf(original, tmp_path / "model.gguf")).folder
    assert max(differences(folder, original)) <= 1.2 / 127


def test_all_files_of_one_model_give_the_same_tokens(original: Path, tmp_path: Path) -> None:
    files = [
        write_ctranslate2(original, tmp_path / "base", "float32", *_COPIED),
        write_pt(original, tmp_path / "base.pt"),
        write_ggml(original, tmp_path / "ggml-base.bin", "float32"),
    ]
    expected = tokens(original)
    assert [tokens(resolve(file).folder) for file in files] == [expected] * 3


@pytest.mark.parametrize("program", ["ctranslate2", "ctranslate2 without a tokenizer", "pt"])
def test_what_is_converted_runs_in_transformers(
    original: Path, tmp_path: Path, program: str
) -> None:
    """As their pipeline for speech recognition loads it, with times."""
    if program == "pt":
        made = write_pt(original, tmp_path / "base.pt")
    else:
        copied = [] if "without" in program else ["tokenizer.json"]
        made = write_ctranslate2(original, tmp_path / "base", "float32", *copied)
    folder = convert_model(resolve(made).folder, tmp_path / "converted", "float32")
    assert in_transformers(folder) == in_transformers(original)


def in_transformers(folder: Path) -> Any:
    """Return what transformers' pipeline writes of noise."""
    from transformers import pipeline

    recognizer = pipeline("automatic-speech-recognition", model=str(folder), device="cpu")
    # Not every program keeps which tokens are suppressed.
    recognizer.model.generation_config.suppress_tokens = None
    recognizer.model.generation_config.begin_suppress_tokens = None
    samples = np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    asked = {"return_timestamps": True, "generate_kwargs": {"language": "en", "max_new_tokens": 8}}
    return recognizer({"raw": samples, "sampling_rate": 16_000}, **asked)


@pytest.mark.parametrize("kind", sorted(QUANTIZED))
def test_blocks_are_read_number_by_number_as_ggml_defines_them(kind: str) -> None:
    from pipelines.formats.ggml_types import decode

    values = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    content = np.frombuffer(quantized(kind, values), np.uint8)
    read = decode(kind, content, (3, 64)).reshape(-1, 32)
    for block, row in zip(content.reshape(6, -1), read, strict=True):
        assert row.tolist() == pytest.approx(_by_hand(kind, bytes(block)), abs=1e-6)


def _by_hand(kind: str, block: bytes) -> list[float]:
    """dequantize_row_* of ggml-quants.c, one number at a time."""
    scale = float(np.frombuffer(block[:2], np.float16)[0])
    if kind == "q8_0":
        return [scale * number for number in np.frombuffer(block[2:], np.int8).tolist()]
    low = float(np.frombuffer(block[2:4], np.float16)[0]) if kind.endswith("_1") else None
    packed = block[-16:]
    high = int.from_bytes(block[-20:-16], "little") if kind.startswith("q5") else 0
    found = []
    for index in range(32):
        number = packed[index] & 15 if index < 16 else packed[index - 16] >> 4
        number |= ((high >> index) & 1) << 4
        shift = 16 if kind == "q5_0" else 8
        found.append(scale * number + low if low is not None else scale * (number - shift))
    return found
