"""Decoding of a live buffer with a model without timestamps, languages and prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipelines.asr.capabilities import heads_for_words
from pipelines.asr.fallback import WindowResult, compression_ratio
from pipelines.asr.plain_tokenizer import PlainTokenizer
from pipelines.asr.window import LiveWindowResult
from pipelines.engine import (
    Drafting,
    EncodedSource,
    ForcedPrefix,
    GenerationOptions,
    LoadedModel,
    LogitFilter,
    Request,
)


class PlainDecoder:
    """Decodes the open buffer of live captions; the part of `WindowDecoder` that they use."""

    def __init__(
        self,
        model: LoadedModel,
        drafting: Drafting,
        tokenizer: PlainTokenizer,
        *,
        logit_filters: Sequence[LogitFilter],
        compression_ratio_threshold: float | None,
        tokens_per_s: float,
    ) -> None:
        self._model, self._drafting, self._tokenizer = model, drafting, tokenizer
        self._logit_filters = tuple(logit_filters)
        self._ratio_threshold, self._tokens_per_s = compression_ratio_threshold, tokens_per_s
        self._heads = heads_for_words(model.architecture)

    def redecode(
        self,
        encoded: EncodedSource,
        previous: Sequence[int],
        prefix: Sequence[int],
        draft: Sequence[int],
        max_tokens: int,
        audio_s: float,
        *,
        priority: int = 0,
    ) -> LiveWindowResult:
        """Decode a live buffer again, as WindowDecoder.redecode. `previous` is not read."""
        architecture = self._model.architecture
        limit = min(max_tokens, math.ceil(audio_s * self._tokens_per_s) + 1)
        options = GenerationOptions(
            max_new_tokens=min(limit + len(prefix), architecture.max_target_positions - 1),
            eos_ids=architecture.eos_ids,
            logit_filters=(*self._logit_filters, ForcedPrefix(tuple(prefix))),
            logprobs=True,
        )
        request = Request(
            encoded,
            (architecture.start_id,),
            options,
            priority=priority,
            draft=tuple(draft),
            attention=self._heads,
            drafter=self._drafting.drafter_for(encoded, options),
        )
        with self._model.stream(request) as stream:
            result = stream.result()
        ended = bool(result.tokens) and result.tokens[-1] in architecture.eos_ids
        tokens = result.tokens[:-1] if ended else result.tokens
        assert result.attention is not None, "the request names heads"
        window = WindowResult(
            tokens=tokens,
            temperature=0.0,
            avg_logprob=sum(result.logprobs) / (len(tokens) + 1),
            compression_ratio=compression_ratio(self._tokenizer.text(tokens).strip()),
            no_speech_prob=0.0,
        )
        step_s = audio_s / max(1, encoded.length)  # all positions hold sound
        return LiveWindowResult.of(window, result, result.attention, step_s)

    def is_silent(self, result: WindowResult) -> bool:
        """False: the model has no token for silence. Voice activity detection keeps it out."""
        return False

    def is_repetitive(self, result: WindowResult) -> bool:
        """Whether the text's compression ratio is above the threshold."""
        return result.is_repetitive(self._ratio_threshold)
