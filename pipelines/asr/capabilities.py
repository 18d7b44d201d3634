"""Languages and tasks of a model, of Whisper derived from its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.asr.options import TranscribeOptions
from pipelines.asr.tokenizer import SpecialTokens
from pipelines.engine import Architecture
from pipelines.errors import UnsupportedTask
from pipelines.json_files import read_model_json
from pipelines.languages import check_spoken
from pipelines.loading import alignment_heads

# large-v3-turbo: large-v3 (128 mels, 51,866 tokens) with 4 of its 32 decoder layers.
_TURBO = (4, 128, 51_866)
_ENGLISH_ONLY_VOCAB = 51_864  # one token less than the multilingual models


@dataclass(frozen=True)
class Capabilities:
    """What a model was trained for.

    Attributes:
        name: The model's name in messages.
        multilingual: Whether prompts hold language and task tokens.
        translates: Whether it translates into English.
        languages: Codes of the languages it recognizes; ("en",) for English-only models.
        word_timestamps: Whether it gives the times of words.
    """

    name: str
    multilingual: bool
    translates: bool
    languages: tuple[str, ...]
    word_timestamps: bool = True

    @classmethod
    def of(
        cls,
        name: str,
        architecture: Architecture,
        special: SpecialTokens,
        generation_config: dict[str, Any],
    ) -> Capabilities:
        """Derive the capabilities from shape, vocabulary and generation_config.json.

        No file states whether a multilingual model translates. Every released Whisper model with
        as many decoder as encoder layers translates. Models with fewer decoder layers
        (large-v3-turbo, distil-whisper) were not trained to translate; they transcribe instead.
        """
        multilingual = generation_config.get("is_multilingual")
        if multilingual is None:
            multilingual = architecture.vocab_size != _ENGLISH_ONLY_VOCAB
        if not special.languages or special.transcribe is None:
            multilingual = False
        reduced = architecture.decoder_layers < architecture.encoder_layers
        shape = (architecture.decoder_layers, architecture.num_mel_bins, architecture.vocab_size)
        return cls(
            name=name,
            multilingual=bool(multilingual),
            translates=bool(multilingual)
            and special.translate is not None
            and not reduced
            and shape != _TURBO,
            languages=tuple(special.languages) if multilingual else ("en",),
        )

    def check(self, options: TranscribeOptions) -> None:
        """Check that the model has the languages and the task of the options.

        Raises:
            UnsupportedTask: It lacks one of them. The message is one line.
        """
        for language in (options.language, *options.languages):
            check_spoken(self.name, language, self.languages)
        if options.task == "translate" and not self.translates:
            reason = "has a reduced decoder that only transcribes"
            if not self.multilingual:
                reason = "recognizes only English"
            raise UnsupportedTask(
                f"{self.name} {reason}: it cannot translate into English; "
                "choose 'small', 'medium' or 'large-v3', or transcribe and translate the text"
            )


def read_generation_config(folder: Path) -> dict[str, Any]:
    """Return what generation_config.json of a model folder holds, {} without one.

    Raises:
        CheckpointError: The file is damaged.
    """
    return read_model_json(folder / "generation_config.json", optional=True)


def heads_for_words(
    architecture: Architecture, config: Mapping[str, Any] | None = None
) -> tuple[tuple[int, int], ...]:
    """Return the cross-attention heads that the times of words are read from.

    Those that generation_config.json names, if the decoder has them: reduced models may name those
    of the full one. Otherwise all heads of its upper half, as in openai-whisper.
    """
    layers, heads = architecture.decoder_layers, architecture.decoder_heads
    upper = range(layers // 2, layers)
    named = None if config is None else config.get("alignment_heads")
    try:
        return alignment_heads(named, layers, heads, upper)
    except ValueError:
        return alignment_heads(None, layers, heads, upper)
