"""How a Marian folder wants to be decoded: its generation_config.json in the engine's terms."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.engine import Architecture, BadWords, Rule, Suppress
from pipelines.errors import CheckpointError

__all__ = ["GenerationDefaults", "read_generation_defaults"]


@dataclass(frozen=True)
class GenerationDefaults:
    """What holds for every sentence.

    longest: at most so many target tokens, eos included.
    length_penalty: of a beam search: log-probability over length to this power.
    rules: the pad token and the folder's bad words are never generated.
    """

    start_id: int
    eos_ids: tuple[int, ...]
    longest: int
    length_penalty: float
    rules: tuple[Rule, ...]


def read_generation_defaults(folder: Path, architecture: Architecture) -> GenerationDefaults:
    """Read generation_config.json, else (in older folders) the same keys of config.json.

    Raises CheckpointError when the values make no sense.
    """
    path = folder / "generation_config.json"
    if not path.is_file():
        path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        eos = _ids(config.get("eos_token_id"))
        bad = [tuple(int(i) for i in word) for word in config.get("bad_words_ids") or ()]
        # transformers' max_length counts the start token.
        longest = int(config.get("max_length") or architecture.max_target_positions + 1) - 1
        penalty = config.get("length_penalty")
        length_penalty = 1.0 if penalty is None else float(penalty)
        start = config.get("decoder_start_token_id")
        start_id = architecture.start_id if start is None else int(start)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} makes no sense: {error}") from error
    pad = architecture.pad_id
    never = tuple(dict.fromkeys([pad, *(word[0] for word in bad if len(word) == 1)]))
    longer = tuple(word for word in bad if len(word) > 1)
    for index in (start_id, *eos, *never, *(i for word in longer for i in word)):
        if not 0 <= index < architecture.vocab_size:
            raise CheckpointError(
                f"{path} names the id {index}, outside the vocabulary of {architecture.vocab_size}"
            )
    return GenerationDefaults(
        start_id=start_id,
        eos_ids=eos or architecture.eos_ids,
        longest=max(1, min(longest, architecture.max_target_positions)),
        length_penalty=length_penalty,
        rules=(Suppress(never), BadWords(longer)) if longer else (Suppress(never),),
    )


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(i) for i in value) if isinstance(value, list) else (int(value),)
