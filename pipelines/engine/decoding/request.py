"""What goes into the engine and what comes out of it: plain frozen data, token ids only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from pipelines.engine.decoding.sampling.options import GenerationOptions
    from pipelines.engine.decoding.speculative.drafters import Drafter
    from pipelines.engine.state.encoded_source import EncodedSource

__all__ = [
    "Event",
    "FinishReason",
    "Hypothesis",
    "Request",
    "Result",
]


class FinishReason(StrEnum):
    """Why a generation ended."""

    EOS = "eos"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Request:
    """One generation: an encoded source, the tokens the decoder starts from, and the options.

    prompt: starts with the model's start token; at least one id.
    watch: (prompt position, token id) pairs whose probabilities under the raw logits are
        reported in the result: Whisper reads its no-speech probability this way.
    draft: what the output will probably be. It is read together with the prompt, in one pass,
        and kept up to where the model would have chosen otherwise: the output is the same as
        without it, only sooner. Searches with several lanes make no use of it.
    drafter: guesses at every step what comes next (see drafting.py), to the same effect; when
        sampling, the distribution stays the same, not each draw.
    timeout_s: seconds from its submission after which it ends with what there is.
    attention: (decoder layer, head) pairs whose attention to the source is reported.

    The engine checks a request when it is submitted and raises RequestError.
    """

    encoded: EncodedSource
    prompt: tuple[int, ...]
    options: GenerationOptions
    token_probs: tuple[tuple[int, int], ...] = ()
    priority: int = 2
    draft: tuple[int, ...] = ()
    attention: tuple[tuple[int, int], ...] = ()
    drafter: Drafter | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Event:
    """News of one request: the tokens added since the last event, and whether it has ended.

    tokens: usually one id; the eos that ended the generation is among them. Of a search with
        several lanes: what has become certain, since all lanes agree on it.
    logprobs: as many as tokens when asked for, else empty.
    reason: set on the last event (final), which may carry no tokens.
    """

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    reason: FinishReason | None = None

    @property
    def final(self) -> bool:
        return self.reason is not None


@dataclass(frozen=True)
class Hypothesis:
    """One way in which a search with several lanes ended.

    tokens, logprobs, reason: as in Result. score: what it was ranked by.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    score: float
    reason: FinishReason


@dataclass(frozen=True)
class Result:
    """A whole generation.

    tokens: without the prompt, with the eos that ended it, if any.
    logprobs: one a token when asked for, else empty.
    token_probs: as many as the request's.
    accepted: how many guessed tokens were kept, of the request's draft and of its drafter.
    drafted: how many were guessed.
    attention: float32 [heads, tokens, source length], where each token was looked for in the
        source when it was chosen; None when the request asked for no heads.
    hypotheses: of a search with several lanes the `n_best` best, the result first; else empty.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    reason: FinishReason
    token_probs: tuple[float, ...] = field(default=())
    accepted: int = 0
    drafted: int = 0
    attention: Tensor | None = field(default=None, compare=False)
    hypotheses: tuple[Hypothesis, ...] = ()
