"""Check of a tokenizer.json before the tokenizers package runs it.

A normalizer, a pre-tokenizer or a decoder may hold regular expressions, which can take exponential
time, and replacements, which can multiply a text. Published models have a few simple ones.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.json_files import TOKENIZER_BYTES, read_json_object

_STEPS = ("normalizer", "pre_tokenizer", "decoder")
_MOST_STEPS = 100
_LONGEST_PATTERN = 100  # characters
_MOST_GROWTH = 64  # a text may become as many times longer, by all replacements together
_LONGEST_REPLACEMENT = 256  # bytes that a character map has for one character; NFKC needs 33

_QUANTIFIER = re.compile(r"[*+]|\{\d*,\d*\}")
# Groups, which may nest quantifiers, back references, also as \k<name>, and counts above 99.
_COSTLY = re.compile(r"\(|\\[1-9kg]|\{[\d,]*\d{3}")


def read_tokenizer_json(path: Path) -> dict[str, Any]:
    """The content of a tokenizer.json whose steps take time in proportion to the text.

    Raises:
        FileNotFoundError: There is no such file.
        CheckpointError: As `read_json_object`, or a step of it is refused.
    """
    content = read_json_object(path, TOKENIZER_BYTES)
    try:
        _check_steps(content)
    except ValueError as error:
        raise CheckpointError(f"{path} is not used: {error}") from None
    return content


def _check_steps(content: dict[str, Any]) -> None:
    """Raises ValueError; the message is the end of a sentence."""
    growth = 1
    for number, step in enumerate(_steps([content.get(name) for name in _STEPS])):
        if number >= _MOST_STEPS:
            raise ValueError(f"its text passes more than {_MOST_STEPS} steps")
        _check_pattern(step.get("pattern"))
        _check_charsmap(step.get("precompiled_charsmap"))
        for key in ("content", "prepend", "replacement"):
            if isinstance(text := step.get(key), str):
                growth *= max(1, len(text))
        if growth > _MOST_GROWTH:
            raise ValueError(f"its replacements make a text more than {_MOST_GROWTH} times longer")


def _steps(values: list[Any]) -> Iterator[dict[str, Any]]:
    """All objects in nested lists and objects."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _check_pattern(pattern: Any) -> None:
    """Accept a regular expression without groups and with one repetition at most: {" {2,}"}."""
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    if not isinstance(expression, str):
        return
    simple = not _COSTLY.search(expression) and len(_QUANTIFIER.findall(expression)) <= 1
    if len(expression) > _LONGEST_PATTERN or not simple:
        raise ValueError(f"its regular expression {expression[:40]!r} could take too long")


def _check_charsmap(charsmap: Any) -> None:
    """Check the replacements of a character map: the size of a trie, the trie, and texts that end
    with a zero byte."""
    if not isinstance(charsmap, str):
        return
    try:
        blob = base64.b64decode(charsmap, validate=True)
    except binascii.Error as error:
        raise ValueError(f"its character map is damaged: {error}") from None
    texts = blob[4 + int.from_bytes(blob[:4], "little") :]
    if max(map(len, texts.split(b"\0"))) > _LONGEST_REPLACEMENT:
        raise ValueError("its character map makes a text many times longer")
