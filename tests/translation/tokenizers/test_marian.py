"""The tokenizer against transformers' MarianTokenizer, in every layout that Marian folders have."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from pipelines.errors import CheckpointError
from pipelines.text import StreamingDetokenizer
from pipelines.translation.tokenizers.marian import MarianTokenizer
from tests.translation.corpus import ODD, SENTENCES, random_texts

pytestmark = pytest.mark.oracle

TEXTS = [*SENTENCES, *ODD, *random_texts(300, seed=1)]
LAYOUTS = {
    "demo": None,
    "multilingual": ("opus-mt-en-mul", {}),
    "separate-vocabs": ("separate-vocabs", {"codes": ("deu", "fra", "por_Latn")}),
    "early": ("opus-mt-en-de", {}),
}


@pytest.fixture(scope="module", params=LAYOUTS)
def folder(
    request: pytest.FixtureRequest, demo_folder: Path, marian_folder: Callable[..., Path]
) -> Path:
    layout = LAYOUTS[request.param]
    return demo_folder if layout is None else marian_folder(layout[0], **layout[1])


@pytest.fixture(scope="module")
def both(folder: Path, oracle_tokenizer: Callable[[Path], Any]) -> tuple[MarianTokenizer, Any]:
    return MarianTokenizer(folder), oracle_tokenizer(folder)


def test_encodes_as_transformers_does(both: tuple[MarianTokenizer, Any]) -> None:
    ours, oracle = both
    for text in TEXTS:
        if not text.startswith(">>"):
            assert ours.encode(text) == oracle(text)["input_ids"], repr(text)


def test_encodes_language_codes_as_transformers_does(both: tuple[MarianTokenizer, Any]) -> None:
    ours, oracle = both
    for code in ours.target_codes:
        for text in ("Hello.", " Hello.", "", ">>deu<< again", "a << b"):
            expected = oracle(f">>{code}<<{text}")["input_ids"]
            assert ours.encode(f">>{code}<<{text}") == expected
            assert ours.encode(text, code) == expected


def test_decodes_as_transformers_does(both: tuple[MarianTokenizer, Any]) -> None:
    ours, oracle = both
    draw = random.Random(2)
    known = sorted(oracle.decoder)
    sequences = [draw.choices(known, k=draw.randrange(30)) for _ in range(200)]
    sequences += [oracle(text_target=text)["input_ids"] for text in TEXTS]
    for ids in sequences:
        expected = oracle.decode(
            ids,
            skip_special_tokens=True,
            use_source_tokenizer=False,
            clean_up_tokenization_spaces=False,
        )
        assert ours.decode(ids) == expected, ids


def test_streamed_text_equals_decoded_text(both: tuple[MarianTokenizer, Any]) -> None:
    ours, oracle = both
    for text in TEXTS:
        ids = oracle(text_target=text)["input_ids"][:200]
        decoder = StreamingDetokenizer(ours.decode)
        said = "".join(decoder.push([token]) for token in ids) + decoder.finish()
        assert said == ours.decode(ids)


def test_special_tokens_in_a_text_are_text(demo_folder: Path) -> None:
    """No text can end the source early, and none loses words to a code that is none."""
    tokenizer = MarianTokenizer(demo_folder)
    assert tokenizer.encode("a </s> b").count(tokenizer.eos_id) == 1
    quoted = tokenizer.encode(">>> Hello, Tom. <<< Good morning.")
    plain = tokenizer.encode("Hello, Tom. Good morning.")
    assert len(quoted) > len(plain)
    assert tokenizer.split_code(">>fra<< Hello.") == (None, ">>fra<< Hello.")


def test_languages_and_codes(marian_folder: Callable[..., Path]) -> None:
    tokenizer = MarianTokenizer(marian_folder("opus-mt-en-mul"))
    assert (tokenizer.source_language, tokenizer.target_language) == ("eng", "mul")
    assert set(tokenizer.target_codes) == {"deu", "fra", "spa", "ita", "nld", "por_Latn"}
    assert tokenizer.split_code(">>por_Latn<<Hello.") == ("por_Latn", "Hello.")


def test_lone_surrogates_do_not_stop_it(demo_folder: Path) -> None:
    tokenizer = MarianTokenizer(demo_folder)
    assert tokenizer.encode("caf\udce9") == tokenizer.encode("caf\ufffd")


def test_a_very_long_text(demo_folder: Path) -> None:
    ids = MarianTokenizer(demo_folder).encode("Where is the station? " * 20_000)
    assert len(ids) == 100_001


def test_unknown_pieces(demo_folder: Path) -> None:
    tokenizer = MarianTokenizer(demo_folder)
    assert tokenizer.unknown("I like 🍕 and 漢.") == ("🍕", "漢")
    assert not tokenizer.unknown("I like pizza.")


def _with_bytes(folder: Path) -> Path:
    """A tokenizer that spells unknown characters in bytes, as newer sentencepiece models do."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=400,
        byte_fallback=True,
        num_threads=1,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = ["</s>", "<unk>", *(processor.id_to_piece(i) for i in range(3, 400)), "<pad>"]
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model.getvalue())
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return folder


def test_streamed_text_has_whole_characters(tmp_path: Path) -> None:
    tokenizer = MarianTokenizer(_with_bytes(tmp_path))
    for text in ("I like 🍕.", "你好 世界", "👩‍👩‍👧", "Größe", "é" * 5, "a 🍕 "):
        decoder = StreamingDetokenizer(tokenizer.decode)
        deltas = [decoder.push([token]) for token in tokenizer.encode(text)]
        deltas.append(decoder.finish())
        assert "".join(deltas) == text.strip()
        assert not any("\ufffd" in delta for delta in deltas)
    # A sequence that breaks off inside a character is shown as such, at the end only.
    decoder = StreamingDetokenizer(tokenizer.decode)
    cut = tokenizer.encode("a🍕")[:-2]
    assert not any("\ufffd" in decoder.push([token]) for token in cut)
    assert "\ufffd" in decoder.finish()


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json"])
def test_incomplete_and_damaged_folders(demo_folder: Path, tmp_path: Path, name: str) -> None:
    for file in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        shutil.copy(demo_folder / file, tmp_path)
    (tmp_path / name).chmod(0o644)
    (tmp_path / name).write_bytes(b"not what it should be")
    with pytest.raises(CheckpointError, match=name):
        MarianTokenizer(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=f"no {name}"):
        MarianTokenizer(tmp_path)


def test_a_vocabulary_without_an_end_is_refused(demo_folder: Path, tmp_path: Path) -> None:
    for file in ("source.spm", "target.spm"):
        shutil.copy(demo_folder / file, tmp_path)
    (tmp_path / "vocab.json").write_text('{"<unk>": 0, "a": 1}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="</s>"):
        MarianTokenizer(tmp_path)
