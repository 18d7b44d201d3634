"""The sizes of a Whisper model, and the files of transformers that follow from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import CheckpointError
from pipelines.languages import LANGUAGES

__all__ = ["WhisperDims", "vocabulary_files"]

_LARGEST = 1 << 20  # of every size
_ENGLISH_VOCAB, _FIRST_VOCAB, _LAST_VOCAB = 51_864, 51_865, 51_866
_TIMESTAMPS = 1501


@dataclass(frozen=True)
class WhisperDims:
    """The sizes of a Whisper model.

    Attributes:
        vocab_size: 51,864 for English only, 51,865 for 99 languages, 51,866 for 100.
        mels: Mel bands.
        source_positions: Positions of the encoder, half as many as mel frames.
        target_positions: Positions of the decoder.
        d_model: Width of both sides.
    """

    vocab_size: int
    mels: int
    source_positions: int
    target_positions: int
    d_model: int
    encoder_heads: int
    decoder_heads: int
    encoder_layers: int
    decoder_layers: int

    @classmethod
    def checked(cls, where: str, **sizes: int) -> WhisperDims:
        """The dims of a file's header. where: its name in messages.

        Raises:
            CheckpointError: A size is impossible.
        """
        for field in fields(cls):
            if not 0 < sizes[field.name] <= _LARGEST:
                size = sizes[field.name]
                raise CheckpointError(f"{where} is damaged: {field.name} is {size}")
        return cls(**sizes)

    @property
    def eos(self) -> int:
        """Id of <|endoftext|>, after all text tokens."""
        return 50_256 if self.vocab_size == _ENGLISH_VOCAB else 50_257

    @property
    def special(self) -> dict[str, int]:
        """The special tokens and timestamps → their ids."""
        names = ["<|endoftext|>", "<|startoftranscript|>"]
        names += [f"<|{code}|>" for code in list(LANGUAGES)[: self._languages]]
        names += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]
        names += ["<|nospeech|>", "<|notimestamps|>"]
        names += [f"<|{index * 0.02:.2f}|>" for index in range(_TIMESTAMPS)]
        return {name: self.eos + index for index, name in enumerate(names)}

    @property
    def _languages(self) -> int:
        """The number of language tokens, which English models have as well."""
        return 100 if self.vocab_size == _LAST_VOCAB else 99

    def config(self) -> dict[str, Any]:
        """config.json of the same model."""
        sizes = asdict(self)
        return {
            "model_type": "whisper",
            "vocab_size": sizes["vocab_size"],
            "num_mel_bins": sizes["mels"],
            "max_source_positions": sizes["source_positions"],
            "max_target_positions": sizes["target_positions"],
            "d_model": sizes["d_model"],
            **{
                key: value
                for side in ("encoder", "decoder")
                for key, value in (
                    (f"{side}_layers", sizes[f"{side}_layers"]),
                    (f"{side}_attention_heads", sizes[f"{side}_heads"]),
                    (f"{side}_ffn_dim", 4 * self.d_model),
                )
            },
            "activation_function": "gelu",
            "eos_token_id": self.eos,
            "pad_token_id": self.eos,
            "bos_token_id": self.eos,
            "decoder_start_token_id": self.eos + 1,
            "is_encoder_decoder": True,
        }

    def generation_config(self, heads: list[list[int]] | None) -> dict[str, Any]:
        """generation_config.json. heads: the alignment heads, if they are known."""
        english = self.vocab_size == _ENGLISH_VOCAB
        return {"is_multilingual": not english} | ({"alignment_heads": heads} if heads else {})


def vocabulary_files(dims: WhisperDims, where: str) -> dict[str, Any]:
    """openai-whisper's vocabulary as the files of a tokenizer.

    Returns:
        vocab.json and added_tokens.json as objects, merges.txt as text.

    Raises:
        CheckpointError: The model has another vocabulary.
    """
    if dims.vocab_size not in (_ENGLISH_VOCAB, _FIRST_VOCAB, _LAST_VOCAB):
        raise CheckpointError(
            f"{where} has {dims.vocab_size} tokens, so none of openai-whisper's vocabularies; "
            "put its tokenizer.json beside it"
        )
    words, merges = _vocabulary("english" if dims.eos == 50_256 else "multilingual")
    ids = {word: index for index, word in enumerate(words)}
    return {
        "vocab.json": ids | {"<|endoftext|>": dims.eos},
        "merges.txt": "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges),
        "added_tokens.json": dims.special,
    }


@lru_cache(maxsize=2)
def _vocabulary(name: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Words in the order of their ids, and merges in theirs, as GPT-2 prints bytes.

    whisper_merges.npz holds what openai-whisper's tiktoken files say (MIT license): the byte of
    each of the first 256 ids, and for each later id the two ids that it was merged from.
    """
    with np.load(Path(__file__).with_name("whisper_merges.npz"), allow_pickle=False) as table:
        words = [_printed(int(byte)) for byte in table["bytes"]]
        merges = []
        for left, right in table[name].tolist():
            merges.append((words[left], words[right]))
            words.append(words[left] + words[right])
    return words, merges


@lru_cache(maxsize=256)
def _printed(byte: int) -> str:
    """GPT-2's character for a byte: itself where printable, else one from 256 on."""
    spare = [b for b in range(256) if not (0x21 <= b < 0x7F or 0xA1 <= b < 0xAD or b >= 0xAE)]
    return chr(256 + spare.index(byte)) if byte in spare else chr(byte)
