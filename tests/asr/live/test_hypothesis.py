"""Words of a hypothesis, in scripts with and without spaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.asr.live.hypothesis import hypothesis_words
from pipelines.asr.tokenizer import WhisperTokenizer


@pytest.fixture(scope="module")
def tokenizer(multilingual: Path) -> WhisperTokenizer:
    """Of 51,865 tokens, with every script; the bundled model's holds English only."""
    return WhisperTokenizer(multilingual)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" He said so.", [" He", " said", " so."]),
        (" “Go,” he said…”", [" “Go,”", " he", " said…”"]),
        (" Tôi biết tiếng Việt.", [" Tôi", " biết", " tiếng", " Việt."]),
        (" 안녕하세요 여러분", [" 안녕하세요", " 여러분"]),
    ],
)
def test_spaces_separate_words(text: str, words: list[str], tokenizer: WhisperTokenizer) -> None:
    tokens = tokenizer.encode(text)
    found = hypothesis_words(tokens, tokenizer)
    assert [tokenizer.text(word.tokens) for word in found] == words
    assert found[-1].stop == len(tokens)


@pytest.mark.parametrize("text", ["今天天气很好。", "東京に行きます", "สวัสดีครับ", "Ende’"])
def test_a_timestamp_ends_the_last_word(text: str, tokenizer: WhisperTokenizer) -> None:
    """After a character of any script: live Chinese ended in an IndexError there."""
    tokens = tokenizer.encode(text)
    stamped = [tokenizer.special.timestamp_begin, *tokens, tokenizer.special.timestamp_begin + 50]
    found = hypothesis_words(stamped, tokenizer)
    assert b"".join(tokenizer.bytes_of(word.tokens) for word in found).decode() == text
    assert found[-1].stop == len(stamped) - 1


def test_text_without_spaces_is_divided(tokenizer: WhisperTokenizer) -> None:
    assert len(hypothesis_words(tokenizer.encode("今天天气很好。"), tokenizer)) > 3
