"""The tokenizer against openai-whisper's, on folders laid out as the real repositories are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from whisper.tokenizer import LANGUAGES, Tokenizer, get_tokenizer

from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.errors import CheckpointError
from pipelines.text import StreamingDetokenizer
from tests.fixtures.checkpoints import write_whisper

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def ours(multilingual: Path) -> WhisperTokenizer:
    return WhisperTokenizer(multilingual)


@pytest.fixture(scope="module")
def theirs() -> Tokenizer:
    return get_tokenizer(True, language="en", task="transcribe")


def assert_same_specials(ours: WhisperTokenizer, theirs: Tokenizer) -> None:
    special = ours.special
    assert special.eot == theirs.eot
    assert special.sot == theirs.sot
    assert special.transcribe == theirs.transcribe
    assert special.translate == theirs.translate
    assert special.previous == theirs.sot_prev
    assert special.language_model == theirs.sot_lm
    assert special.no_speech == theirs.no_speech
    assert special.no_timestamps == theirs.no_timestamps
    assert special.timestamp_begin == theirs.timestamp_begin
    # openai-whisper keeps its special tokens in a set: theirs come in any order.
    codes = zip(theirs.all_language_codes, theirs.all_language_tokens, strict=True)
    assert special.languages == dict(codes)
    assert list(special.languages) == list(LANGUAGES)[: len(special.languages)]


@pytest.mark.parametrize(
    ("shape", "is_multilingual", "languages"),
    [("tiny", True, 99), ("tiny.en", False, 99), ("large-v3", True, 100), ("turbo", True, 100)],
)
def test_special_ids_and_symbols_are_those_of_openai(
    tmp_path: Path, shape: str, is_multilingual: bool, languages: int
) -> None:
    folder = write_whisper(tmp_path / shape, shape)
    ours = WhisperTokenizer(folder)
    theirs = get_tokenizer(is_multilingual, num_languages=languages)
    assert_same_specials(ours, theirs)
    assert ours.non_speech == theirs.non_speech_tokens
    assert ours.blank == (*theirs.encode(" "), theirs.eot)
    listed = json.loads((folder / "generation_config.json").read_text())["suppress_tokens"]
    assert {*ours.non_speech, *ours.special.control} == set(listed)


@given(text=st.text())
def test_encoding_and_decoding_agree_with_openai(
    ours: WhisperTokenizer, theirs: Tokenizer, text: str
) -> None:
    ids = theirs.encode(text, disallowed_special=())
    assert ours.encode(text) == ids
    assert ours.decode(ids) == text


@given(ids=st.lists(st.integers(0, 51_864), max_size=30))
def test_any_ids_decode_as_openai_decodes_them(
    ours: WhisperTokenizer, theirs: Tokenizer, ids: list[int]
) -> None:
    assert ours.decode(ids) == theirs.decode(ids)
    assert ours.text(ids) == theirs.decode([i for i in ids if i < theirs.eot])


@given(text=st.text(), split=st.integers(1, 3), piecewise=st.booleans())
def test_text_arrives_in_whole_characters(
    ours: WhisperTokenizer, text: str, split: int, piecewise: bool
) -> None:
    decoder, ids = StreamingDetokenizer(ours.text, piecewise), ours.encode(text)
    pieces = [decoder.push(ids[i : i + split]) for i in range(0, len(ids), split)]
    rest = decoder.finish()
    assert "".join(pieces) + rest == text
    assert rest.strip("\ufffd").isspace() or not rest.strip("\ufffd")
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_an_incomplete_character_is_replaced_at_the_end(ours: WhisperTokenizer) -> None:
    half = ours.encode("春")[:1]
    decoder = StreamingDetokenizer(ours.text)
    if ours.text(half) == "春":
        half = ours.encode("🌧")[:1]
    assert decoder.push(half) == ""
    assert decoder.finish() == "\ufffd"


def test_text_cannot_contain_control_tokens(ours: WhisperTokenizer) -> None:
    ids = ours.encode("<|endoftext|><|startoftranscript|><|0.00|>")
    assert max(ids) < ours.special.eot
    assert ours.text(ids) == "<|endoftext|><|startoftranscript|><|0.00|>"


def test_vocab_and_merges_replace_a_missing_tokenizer_json(
    multilingual: Path, ours: WhisperTokenizer, tmp_path: Path
) -> None:
    for name in ("vocab.json", "merges.txt", "added_tokens.json"):
        shutil.copy(multilingual / name, tmp_path)
    other = WhisperTokenizer(tmp_path)
    assert other.special == ours.special
    text = " Grüße aus Köln, 春の雨 🌧 isn't it?  1234"
    assert other.encode(text) == ours.encode(text)
    assert other.text(other.encode(text)) == text


def test_timestamps_follow_the_specials_where_no_file_lists_them(
    multilingual: Path, ours: WhisperTokenizer, tmp_path: Path
) -> None:
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(multilingual / name, tmp_path)
    added = json.loads((multilingual / "added_tokens.json").read_text())
    first = added["<|0.00|>"]
    kept = {token: i for token, i in added.items() if i < first}
    (tmp_path / "added_tokens.json").write_text(json.dumps(kept))
    assert WhisperTokenizer(tmp_path).special == ours.special


def test_folders_without_a_vocabulary_are_named(multilingual: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no tokenizer"):
        WhisperTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{ no json")
    with pytest.raises(CheckpointError, match="cannot be read"):
        WhisperTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(multilingual / name, tmp_path)
    with pytest.raises(CheckpointError, match="lacks <.startoftranscript"):
        WhisperTokenizer(tmp_path)
