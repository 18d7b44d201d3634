"""What a model can be held to write: the pieces of its target language.

The vocabulary of a Marian model joins those of two sentencepiece models. What its translations were
trained on was split by the target's alone, so the pieces of the source's are never right; but half
of the last layer's work, the largest of a step, goes into them. (Marian's and CTranslate2's
shortlists go further, with a lexicon that says what each word of the source may become; published
models come without one.)
"""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import OptionError
from pipelines.translation.tokenizers.files import read_json, read_spm, read_vocabulary

__all__ = ["target_pieces"]


def target_pieces(folder: Path) -> tuple[int, ...]:
    """The ids of what a Marian folder's target.spm splits text into, the end of text included.

    Raises OptionError for a folder without one, CheckpointError for damaged files.
    """
    if not (folder / "target.spm").is_file():
        raise OptionError(
            f"{folder.name} has no vocabulary of its target language alone, so no shortlist"
        )
    config = read_json(folder / "tokenizer_config.json", optional=True)
    separate = bool(config.get("separate_vocabs"))
    vocabulary = read_vocabulary(folder / ("target_vocab.json" if separate else "vocab.json"))
    target = read_spm(folder / "target.spm")
    pieces = {target.id_to_piece(index) for index in range(target.get_piece_size())}
    return tuple(sorted(index for piece, index in vocabulary.items() if piece in pieces))
