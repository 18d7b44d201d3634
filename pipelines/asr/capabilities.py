"""What a recogniser was trained to do, told from its files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.asr.options import TranscribeOptions
from pipelines.asr.tokenizer import SpecialTokens
from pipelines.engine import Architecture
from pipelines.errors import CheckpointError, UnsupportedTask
from pipelines.languages import LANGUAGES

__all__ = ["Capabilities", "alignment_heads", "read_generation_config"]

# large-v3-turbo: large-v3 (128 mels, 51,866 tokens) with 4 of its 32 decoder layers.
_TURBO = (4, 128, 51_866)
_ENGLISH_ONLY_VOCAB = 51_864  # one token less than the multilingual models


@dataclass(frozen=True)
class Capabilities:
    """name: the model's, for messages. languages: codes it can be told to listen for; English-only
    models have just "en". multilingual: whether prompts carry language and task at all."""

    name: str
    multilingual: bool
    translates: bool
    languages: tuple[str, ...]

    @classmethod
    def of(
        cls,
        name: str,
        architecture: Architecture,
        special: SpecialTokens,
        generation_config: dict[str, Any],
    ) -> Capabilities:
        """From the model's shape, vocabulary and generation_config.json.

        No file says whether a multilingual model translates. Every released Whisper has as many
        decoder as encoder layers, and translates; those that were cut down to fewer decoder
        layers (large-v3-turbo, distil-whisper) were not trained to, and transcribe when asked.
        """
        multilingual = generation_config.get("is_multilingual")
        if multilingual is None:
            multilingual = architecture.vocab_size != _ENGLISH_ONLY_VOCAB
        if not special.languages or special.transcribe is None:
            multilingual = False
        cut_down = architecture.decoder_layers < architecture.encoder_layers
        shape = (architecture.decoder_layers, architecture.num_mel_bins, architecture.vocab_size)
        return cls(
            name=name,
            multilingual=bool(multilingual),
            translates=bool(multilingual)
            and special.translate is not None
            and not cut_down
            and shape != _TURBO,
            languages=tuple(special.languages) if multilingual else ("en",),
        )

    def check(self, options: TranscribeOptions) -> None:
        """Raises UnsupportedTask, one line, when the model cannot do what is asked."""
        if options.language is not None and options.language not in self.languages:
            language = LANGUAGES[options.language].title()
            what = "only English" if not self.multilingual else "other languages"
            raise UnsupportedTask(
                f"{self.name} recognises {what}, not {language}; "
                "choose a multilingual model such as 'small' or 'large-v3'"
            )
        if options.task == "translate" and not self.translates:
            why = "is a cut-down model that only transcribes"
            if not self.multilingual:
                why = "recognises only English"
            raise UnsupportedTask(
                f"{self.name} {why}: it cannot translate into English; "
                "choose 'small', 'medium' or 'large-v3', or transcribe and translate the text"
            )


def read_generation_config(folder: Path) -> dict[str, Any]:
    """generation_config.json, {} where there is none. Raises CheckpointError when it is broken."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return {}
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return config


def alignment_heads(config: dict[str, Any], architecture: Architecture) -> list[tuple[int, int]]:
    """Those that the model's files name, else all of the upper half of the decoder, as
    openai-whisper does."""
    layers, heads = architecture.decoder_layers, architecture.decoder_heads
    named = config.get("alignment_heads") or ()
    found = [(int(layer), int(head)) for layer, head in named]
    if found and all(layer < layers and head < heads for layer, head in found):
        return found
    return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]
