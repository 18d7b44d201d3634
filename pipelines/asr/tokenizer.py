"""Whisper's tokenizer: byte-level BPE, special tokens, and the non-speech symbols."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from pipelines.errors import CheckpointError
from pipelines.json_files import TOKENIZER_BYTES, check_regular, read_json_object
from pipelines.languages import LANGUAGES
from pipelines.text import BYTE_LETTERS
from pipelines.tokenizer_json import read_tokenizer_json

_BYTES = {letter: byte for byte, letter in enumerate(BYTE_LETTERS)}


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens, looked up by name because they differ between versions.

    Optional tokens are None if the vocabulary lacks them.

    Attributes:
        eot: End of text; all lower ids are text.
        sot: Start of transcript.
        no_timestamps: Switches timestamps off.
        timestamp_begin: Id of <|0.00|>; the ids after it are timestamps 0.02 s apart.
        languages: Code → id, in Whisper's order.
        translate: Task token for translation into English.
        transcribe: Task token for transcription.
        previous: Precedes the text before the window.
        language_model: Start of language-model text; unused.
        no_speech: Its probability is that of a window without speech.
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
        """Look up the special tokens in a vocabulary.

        Raises:
            CheckpointError: A required token is missing.
        """
        needed = ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>")
        if missing := [name for name in needed if name not in ids]:
            raise CheckpointError(f"{where} holds no Whisper vocabulary: it lacks {missing[0]}")
        return cls(
            eot=ids["<|endoftext|>"],
            sot=ids["<|startoftranscript|>"],
            no_timestamps=ids["<|notimestamps|>"],
            # Older folders do not list the timestamps, which follow <|notimestamps|>.
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
        """Prompt-only tokens, which are never generated. (openai-whisper does not suppress them
        if `suppress_tokens` is empty.)"""
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
        """Read tokenizer.json, else vocab.json, merges.txt and added_tokens.json.

        Raises:
            CheckpointError: The files are missing, damaged, or hold no Whisper vocabulary.
        """
        try:
            self._bpe, ids = _read(folder)
        except CheckpointError:
            raise
        except Exception as error:  # the tokenizers package raises bare Exception
            raise CheckpointError(f"{folder}: the tokenizer cannot be read: {error}") from error
        self.special = SpecialTokens.named(ids, str(folder))
        self._tokens = {i: token for token, i in ids.items()}

    @property
    def timestamp_begin(self) -> int:
        """The id of the first timestamp."""
        return self.special.timestamp_begin

    def is_text(self, token: int) -> bool:
        """Whether an id stands for text."""
        return token < self.special.eot

    def has_same_vocabulary(self, other: WhisperTokenizer) -> bool:
        """Whether both vocabularies have the same text and the same special tokens at each id."""
        return self.special == other.special and self._text_tokens == other._text_tokens

    @property
    def _text_tokens(self) -> dict[int, str]:
        return {i: token for i, token in self._tokens.items() if i < self.special.eot}

    def encode(self, text: str) -> list[int]:
        """Ids of plain text. The spelling of a special token is encoded as text, too."""
        ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of all ids below the timestamps, invalid UTF-8 replaced, as in openai-whisper."""
        return self.bytes_of(ids).decode("utf-8", errors="replace")

    def text(self, ids: Iterable[int]) -> str:
        """Text of the ids below end of text; special tokens are skipped."""
        return self.decode(i for i in ids if i < self.special.eot)

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """UTF-8 bytes of all ids below the timestamps; may begin or end inside a character."""
        tokens = (self._tokens.get(i, "") for i in ids if i < self.special.timestamp_begin)
        return b"".join(
            bytes([_BYTES[c]]) if c in _BYTES else c.encode() for token in tokens for c in token
        )

    @cached_property
    def blank(self) -> tuple[int, ...]:
        """Ids that `suppress_blank` forbids as first token: a space alone, and end of text."""
        return (*self.encode(" "), self.special.eot)

    @cached_property
    def non_speech(self) -> tuple[int, ...]:
        """Ids of symbols that are written but not spoken (openai-whisper's `non_speech_tokens`).

        Speaker tags and annotations begin with them: ♪♪♪, ( SPEAKING FRENCH ), [DAVID].
        """
        symbols = list('"#()*+/:;<=>@[\\]^_`{|}~「」『』')
        symbols += "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪".split()
        # Hyphen and apostrophe may occur inside a word, but not at its beginning.
        ids = {*self.encode(" -")[:1], *self.encode(" '")[:1]}
        for symbol in symbols:
            ids.update(i[0] for i in self._spellings(symbol) if len(i) == 1)
        for note in "♩♪♫♬♭♮♯":
            # Of a note with several tokens the first occurs in such symbols only, except in
            # small vocabularies, where it is one byte that many characters share.
            ids.update(i[0] for i in self._spellings(note) if len(self.bytes_of(i[:1])) > 1)
        return tuple(sorted(ids))

    def _spellings(self, symbol: str) -> tuple[list[int], list[int]]:
        return self.encode(symbol), self.encode(" " + symbol)


def _read(folder: Path) -> tuple[Tokenizer, dict[str, int]]:
    """The BPE model without special tokens, and the ids of all tokens by name."""
    tokenizer_file = folder / "tokenizer.json"
    if tokenizer_file.is_file():
        full = Tokenizer.from_str(json.dumps(read_tokenizer_json(tokenizer_file)))
        # A new Tokenizer around the same model has no added tokens, so text cannot contain
        # control tokens.
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
    check_regular(merges, TOKENIZER_BYTES)
    bare = Tokenizer(BPE.from_file(str(vocab), str(merges)))
    bare.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return bare, ids


def _read_ids(path: Path) -> dict[str, int]:
    content = read_json_object(path, TOKENIZER_BYTES)
    return {str(token): int(i) for token, i in content.items()}
