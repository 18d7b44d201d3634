"""The sizes of a Whisper model, and the files of transformers that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pipelines.errors import CheckpointError
from pipelines.languages import LANGUAGES

_LARGEST = 1 << 20  # of every size
_ENGLISH_VOCAB, _LAST_VOCAB = 51_864, 51_866
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
    def is_english(self) -> bool:
        """Whether it has the vocabulary of the models for English only."""
        return self.vocab_size == _ENGLISH_VOCAB

    @property
    def eos(self) -> int:
        """Id of <|endoftext|>, after all text tokens."""
        return 50_256 if self.is_english else 50_257

    @property
    def special(self) -> dict[str, int]:
        """The special tokens and timestamps → their ids."""
        names = ["<|endoftext|>", "<|startoftranscript|>"]
        names += self._languages
        names += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]
        names += ["<|nospeech|>", "<|notimestamps|>"]
        names += [f"<|{index * 0.02:.2f}|>" for index in range(_TIMESTAMPS)]
        return {name: self.eos + index for index, name in enumerate(names)}

    @property
    def _languages(self) -> list[str]:
        """The language tokens, which English models have as well."""
        count = 100 if self.vocab_size == _LAST_VOCAB else 99
        return [f"<|{code}|>" for code in list(LANGUAGES)[:count]]

    def config(self, special: Mapping[str, int]) -> dict[str, Any]:
        """config.json of the same model. special: the special tokens and their ids."""
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
            **_ids(special),
            "is_encoder_decoder": True,
        }

    def generation_config(
        self, special: Mapping[str, int], heads: list[list[int]] | None
    ) -> dict[str, Any]:
        """generation_config.json."""
        config: dict[str, Any] = {
            "is_multilingual": not self.is_english,
            **_ids(special),
            "no_timestamps_token_id": special["<|notimestamps|>"],
            "prev_sot_token_id": special["<|startofprev|>"],
            "max_initial_timestamp_index": 50,  # a second
            "max_length": self.target_positions,
            "return_timestamps": False,
        }
        if not self.is_english:
            config["lang_to_id"] = {token: special[token] for token in self._languages}
            tasks = ("transcribe", "translate")
            config["task_to_id"] = {task: special[f"<|{task}|>"] for task in tasks}
        return config | ({"alignment_heads": heads} if heads else {})

    def preprocessor_config(self) -> dict[str, Any]:
        """preprocessor_config.json: windows of 30 s in mel bands."""
        return {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "feature_size": self.mels,
            "sampling_rate": 16_000,
            "hop_length": 160,
            "n_fft": 400,
            "chunk_length": 30,
            "padding_value": 0.0,
            "return_attention_mask": False,
        }


def _ids(special: Mapping[str, int]) -> dict[str, int]:
    """The ids that both configs state."""
    eos = special["<|endoftext|>"]
    return {
        "eos_token_id": eos,
        "pad_token_id": eos,
        "bos_token_id": eos,
        "decoder_start_token_id": special["<|startoftranscript|>"],
    }
