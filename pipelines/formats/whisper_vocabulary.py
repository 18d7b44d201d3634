"""Whisper's vocabulary as the files of a tokenizer, from where a model's program keeps it.

CTranslate2 and whisper.cpp keep the tokens with the model, in the order of their ids; the merges
of byte-level BPE follow from that order. openai-whisper keeps them in its package.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.formats.whisper_dims import WhisperDims
from pipelines.json_files import check_regular
from pipelines.text import BYTE_LETTERS

_MOST_BYTES = 16 << 20  # openai-whisper's files have 0.8 MB


def vocabulary_files(tokens: Sequence[bytes], dims: WhisperDims, where: str) -> dict[str, Any]:
    """The files of a tokenizer.

    Returns:
        vocab.json and added_tokens.json as objects, merges.txt as text.

    Raises:
        CheckpointError: The tokens are not a vocabulary of byte-level BPE of this size.
    """
    ranks = {token: rank for rank, token in enumerate(tokens[: dims.eos])}
    single = all(bytes([byte]) in ranks for byte in range(256))
    if len(ranks) < dims.eos - 1 or not single:  # one id of the multilingual vocabulary is unused
        raise CheckpointError(
            f"{where} is damaged: it has no vocabulary of {dims.eos} tokens; "
            "put the model's tokenizer.json beside it"
        )

    def spell(token: bytes) -> str:
        return "".join(BYTE_LETTERS[byte] for byte in token)

    merges = ["#version: 0.2"]
    for token, rank in ranks.items():
        if len(token) > 1:
            left, right = _halves(ranks, token, rank, where)
            merges.append(f"{spell(left)} {spell(right)}")
    return {
        "vocab.json": {spell(t): r for t, r in ranks.items()} | {"<|endoftext|>": dims.eos},
        "merges.txt": "\n".join([*merges, ""]),
        "added_tokens.json": dims.special,
    }


def installed_tokens(dims: WhisperDims, where: str) -> list[bytes]:
    """The tokens that an installed openai-whisper has in its package.

    Raises:
        CheckpointError: It is not installed here, or its file is damaged.
    """
    spec = importlib.util.find_spec("whisper")  # found, not imported
    name = "gpt2" if dims.is_english else "multilingual"
    package = Path(spec.origin).parent if spec is not None and spec.origin else None
    file = package / "assets" / f"{name}.tiktoken" if package is not None else None
    if file is None or not file.is_file():
        raise CheckpointError(
            f"{where} comes without its vocabulary: put the tokenizer.json of a published Whisper "
            "model beside it, or install openai-whisper into the same environment"
        )
    check_regular(file, _MOST_BYTES)
    try:
        pairs = [line.split() for line in file.read_bytes().splitlines() if line]
        ranks = {int(rank): base64.b64decode(token) for token, rank in pairs}
    except (ValueError, binascii.Error) as error:
        raise CheckpointError(f"{file} is damaged") from error
    return [ranks[rank] for rank in sorted(ranks)]


def tokens_of_words(words: Sequence[str]) -> list[bytes]:
    """The bytes of tokens that are spelled as GPT-2 prints them; b"" for special tokens."""
    table = {letter: byte for byte, letter in enumerate(BYTE_LETTERS)}
    return [
        bytes(table[letter] for letter in word) if all(letter in table for letter in word) else b""
        for word in words
    ]


def _halves(ranks: dict[bytes, int], token: bytes, limit: int, where: str) -> tuple[bytes, bytes]:
    """The two tokens that a token was merged from: BPE over it with the merges before its own."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, limit) for a, b in zip(parts, parts[1:], strict=False)]
        best = min(pairs)
        if best >= limit:
            raise CheckpointError(f"{where} is damaged: its vocabulary is not one of BPE")
        at = pairs.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]
