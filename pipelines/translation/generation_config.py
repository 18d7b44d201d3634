"""generation_config.json of a model folder, in the engine's terms."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.engine import (
    Architecture,
    BadWords,
    LogitFilter,
    MinNewTokens,
    NoRepeatNgram,
    SuppressTokens,
)
from pipelines.errors import CheckpointError
from pipelines.json_files import read_json_object
from pipelines.loading import alignment_heads


@dataclass(frozen=True)
class GenerationDefaults:
    """How every sentence is decoded.

    Attributes:
        decoder_start_id: The decoder's start token.
        eos_ids: The tokens that end a translation.
        max_new_tokens: Target tokens at most, eos included.
        length_penalty: Beam search ranks by log-probability / length ** length_penalty.
        logit_filters: Bad words of the folder, and Marian's pad token, are never generated.
        forced_prefix: Ids that every translation begins with; mostly empty.
        whole_lines: Whether a line is one request, as Family.whole_lines says.
        may_end_by_length: Whether an output of `max_new_tokens` is complete without eos: a summary
            whose length the files limit.
        forced_eos_ids: One of these is the last token of an output of `max_new_tokens`; empty: an
            output may end without eos there.
        alignment_heads: (decoder layer, head) pairs whose cross-attention gives word alignments.
    """

    decoder_start_id: int
    eos_ids: tuple[int, ...]
    max_new_tokens: int
    length_penalty: float
    logit_filters: tuple[LogitFilter, ...]
    forced_prefix: tuple[int, ...] = ()
    whole_lines: bool = False
    may_end_by_length: bool = False
    forced_eos_ids: tuple[int, ...] = ()
    alignment_heads: tuple[tuple[int, int], ...] = ()


def read_generation_defaults(
    folder: Path, architecture: Architecture, whole_lines: bool = False
) -> GenerationDefaults:
    """Read generation_config.json, or in older folders the same keys of config.json.

    Raises:
        CheckpointError: A value is invalid.
    """
    path = folder / "generation_config.json"
    if not path.is_file():
        path = folder / "config.json"
    try:
        config = read_json_object(path)
        eos = _ids(config.get("eos_token_id"))
        bad = [tuple(int(i) for i in word) for word in config.get("bad_words_ids") or ()]
        positions, marian = architecture.max_target_positions, architecture.family == "marian"
        # transformers' lengths count the start token. The max_length of other models, mostly 200,
        # is not obeyed: it is no limit of the model, and a sentence must not be cut there.
        limited = marian or whole_lines
        max_length = int((limited and config.get("max_length")) or 0)
        max_new_tokens = max_length - 1 if max_length else positions
        min_new_tokens = int((whole_lines and config.get("min_length")) or 1) - 1
        ngram = int((whole_lines and config.get("no_repeat_ngram_size")) or 0)
        forced_eos = _ids(config.get("forced_eos_token_id")) if whole_lines else ()
        penalty = config.get("length_penalty")
        length_penalty = 1.0 if penalty is None else float(penalty)
        start = config.get("decoder_start_token_id")
        start_id = architecture.start_id if start is None else int(start)
        forced = _ids(config.get("forced_bos_token_id"))
        decoder = architecture.decoder
        # The last layer but one aligns best in models of six layers (Garg et al. 2019). In the
        # bundled model of two, 22 of 100 links of the last layer are wrong, and 39 of the first.
        best = decoder.layers - (2 if decoder.layers > 3 else 1)
        heads = alignment_heads(
            config.get("alignment_heads"), decoder.layers, decoder.heads, range(best, best + 1)
        )
    except (OSError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{path} is invalid: {error}") from error
    pad = architecture.pad_id
    # Only Marian forbids its pad token: other families were trained not to generate it, and
    # `generate` does not forbid it either.
    never = tuple(dict.fromkeys([*[pad] * marian, *(word[0] for word in bad if len(word) == 1)]))
    sequences = tuple(word for word in bad if len(word) > 1)
    for index in (start_id, *forced, *eos, *forced_eos, *never, *itertools.chain(*sequences)):
        if not 0 <= index < architecture.vocab_size:
            raise CheckpointError(
                f"{path} names the id {index}, outside the vocabulary of {architecture.vocab_size}"
            )
    logit_filters: list[LogitFilter] = [SuppressTokens(never)] if never else []
    if sequences:
        logit_filters.append(BadWords(sequences))
    eos = eos or architecture.eos_ids
    max_new_tokens = max(1, min(max_new_tokens, positions))
    if min_new_tokens > 0:
        logit_filters.append(MinNewTokens(min(min_new_tokens, max_new_tokens - 1), eos))
    if ngram > 0:
        logit_filters.append(NoRepeatNgram(ngram))
    return GenerationDefaults(
        decoder_start_id=start_id,
        eos_ids=eos,
        max_new_tokens=max_new_tokens,
        length_penalty=length_penalty,
        logit_filters=tuple(logit_filters),
        forced_prefix=forced,
        whole_lines=whole_lines,
        may_end_by_length=whole_lines and max_length > 0,
        forced_eos_ids=forced_eos,
        alignment_heads=heads,
    )


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(i) for i in value) if isinstance(value, list) else (int(value),)
