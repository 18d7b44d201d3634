"""Whisper's vocabulary: text to ids and back, the special tokens, the symbols never spoken."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from pipelines.errors import CheckpointError
from pipelines.languages import LANGUAGES

__all__ = ["SpecialTokens", "StreamingDetokenizer", "WhisperTokenizer"]


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the tokens that are no text, looked up by name: they shift between versions.

    languages: code → id, in Whisper's order. timestamp_begin: id of <|0.00|>; those after it
    are 0.02 s apart. Optional ones are None where a vocabulary lacks them.
    """

    eot: int
    sot: int
    no_timestamps: int
    timestamp_begin: int
    languages: Mapping[str, int]
    translate: int | None
    transcribe: int | None
    previous: int | None
    language_model: int | None
    no_speech: int | None

    @classmethod
    def named(cls, ids: Mapping[str, int], where: str) -> SpecialTokens:
        """From token strings and ids. Raises CheckpointError when a vital one is missing."""
        needed = ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>")
        if missing := [name for name in needed if name not in ids]:
            raise CheckpointError(f"{where} holds no Whisper vocabulary: it lacks {missing[0]}")
        return cls(
            eot=ids["<|endoftext|>"],
            sot=ids["<|startoftranscript|>"],
            no_timestamps=ids["<|notimestamps|>"],
            # Older folders do not list the timestamps, which come right after.
            timestamp_begin=ids.get("<|0.00|>", ids["<|notimestamps|>"] + 1),
            languages={c: ids[f"<|{c}|>"] for c in LANGUAGES if f"<|{c}|>" in ids},
            translate=ids.get("<|translate|>"),
            transcribe=ids.get("<|transcribe|>"),
            previous=ids.get("<|startofprev|>"),
            language_model=ids.get("<|startoflm|>"),
            # Its name in the folders of the first versions is <|nocaptions|>.
            no_speech=ids.get("<|nospeech|>", ids.get("<|nocaptions|>")),
        )

    @property
    def control(self) -> tuple[int, ...]:
        """Tokens that only ever stand in the prompt, and are never chosen. (openai-whisper lets
        them be where nothing at all is suppressed.)"""
        ids = (
            self.transcribe,
            self.translate,
            self.sot,
            self.previous,
            self.language_model,
            self.no_speech,
        )
        return tuple(i for i in ids if i is not None)


class WhisperTokenizer:
    """Byte-level BPE with Whisper's special tokens, read from a model folder."""

    def __init__(self, folder: Path) -> None:
        """Reads tokenizer.json, else vocab.json + merges.txt + added_tokens.json.

        Raises CheckpointError when they are missing, damaged, or no Whisper vocabulary.
        """
        try:
            self._bpe, ids = _read(folder)
        except CheckpointError:
            raise
        except Exception as error:  # the tokenizers package raises bare Exception
            raise CheckpointError(f"{folder}: the tokenizer cannot be read: {error}") from error
        self.special = SpecialTokens.named(ids, str(folder))
        self._tokens = {i: token for token, i in ids.items()}

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; what looks like a special token is text as well."""
        ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of all ids below the timestamps, broken UTF-8 replaced, as openai-whisper does."""
        return self.bytes_of(ids).decode("utf-8", errors="replace")

    def text(self, ids: Iterable[int]) -> str:
        """Text of the ids that are text; special tokens are left out."""
        return self.decode(i for i in ids if i < self.special.eot)

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The UTF-8 bytes of ids, which may begin or end inside a character."""
        table = _byte_of_character()
        tokens = (self._tokens.get(i, "") for i in ids if i < self.special.timestamp_begin)
        return b"".join(
            bytes([table[c]]) if c in table else c.encode() for token in tokens for c in token
        )

    @cached_property
    def blank(self) -> tuple[int, ...]:
        """Not allowed as a window's first token: the space alone, and the end."""
        return (*self.encode(" "), self.special.eot)

    @cached_property
    def non_speech(self) -> tuple[int, ...]:
        """Ids of symbols that are written but not spoken (openai-whisper's `non_speech_tokens`).

        Speaker tags and annotations begin with them: ♪♪♪, ( SPEAKING FRENCH ), [DAVID].
        """
        symbols = list('"#()*+/:;<=>@[\\]^_`{|}~「」『』')
        symbols += "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split()
        # Hyphen and apostrophe may join words, but not begin one.
        found = {*self.encode(" -")[:1], *self.encode(" '")[:1]}
        for symbol in symbols:
            found.update(i[0] for i in self._spellings(symbol) if len(i) == 1)
        for note in "♩♪♫♬♭♮♯":
            # Where one takes several tokens, the first stands for nothing but such symbols,
            # unless the vocabulary is so small that it is a single byte of many characters.
            found.update(i[0] for i in self._spellings(note) if len(self.bytes_of(i[:1])) > 1)
        return tuple(sorted(found))

    def _spellings(self, symbol: str) -> tuple[list[int], list[int]]:
        return self.encode(symbol), self.encode(" " + symbol)


class StreamingDetokenizer:
    """Ids to text as they arrive, never half a character: bytes wait until theirs is complete."""

    def __init__(self, tokenizer: WhisperTokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, ids: Sequence[int]) -> str:
        """The text that these ids complete; special tokens give none.

        No character reaches across a timestamp: segments begin there, and each is text by itself.
        """
        special, text = self._tokenizer.special, ""
        for token in ids:
            if token < special.eot:
                text += self._utf8.decode(self._tokenizer.bytes_of((token,)))
            elif token >= special.timestamp_begin:
                text += self.finish()
        return text

    def finish(self) -> str:
        """What an unfinished character at the end comes to."""
        return self._utf8.decode(b"", final=True)


def _read(folder: Path) -> tuple[Tokenizer, dict[str, int]]:
    """The bare BPE, without special tokens, and the ids of all tokens by name."""
    whole = folder / "tokenizer.json"
    if whole.is_file():
        full = Tokenizer.from_file(str(whole))
        # Text must not smuggle in control tokens: a new one around the same model has none.
        bare = Tokenizer(full.model)
        bare.normalizer = full.normalizer
        bare.pre_tokenizer = full.pre_tokenizer
        return bare, full.get_vocab(with_added_tokens=True)
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    if not vocab.is_file() or not merges.is_file():
        raise CheckpointError(
            f"{folder} has no tokenizer: neither tokenizer.json nor vocab.json with merges.txt"
        )
    ids = _read_ids(vocab)
    added = folder / "added_tokens.json"
    if added.is_file():
        ids |= _read_ids(added)
    bare = Tokenizer(BPE.from_file(str(vocab), str(merges)))
    bare.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return bare, ids


def _read_ids(path: Path) -> dict[str, int]:
    content: Any = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return {str(token): int(i) for token, i in content.items()}


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes (bytes_to_unicode in its encoder.py), inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {chr(b): b for b in printable}
    return table | {chr(256 + n): b for n, b in enumerate(others)}
