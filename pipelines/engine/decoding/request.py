"""What goes into the engine and what comes out of it: frozen data, token ids only."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from pipelines.engine.decoding.sampling.options import GenerationOptions
    from pipelines.engine.state.encoded_source import EncodedSource


class FinishReason(StrEnum):
    """Why a generation ended."""

    EOS = "eos"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"


@dataclass(frozen=True, eq=False)
class Proposal:
    """Drafted tokens.

    Attributes:
        tokens: Token ids.
        probs: [tokens, vocab], the distribution that each token was sampled from; None for tokens
            that were not sampled.
    """

    tokens: list[int]
    probs: Tensor | None = None


@runtime_checkable
class DraftSession(Protocol):
    """A drafter's state for one request. Derive from it: only `propose` has no default.

    Attributes:
        pauses: Whether it is not asked while drafting takes longer than it saves.
        group: Sessions of the same group are asked together, through one DraftBatch; None: alone.
    """

    pauses: bool = False
    group: object | None = None

    def new_batch(self) -> DraftBatch:
        """Make the batch of this session's group."""
        raise AssertionError("a session without a group has no batch")

    @abstractmethod
    def propose(self, sequence: Sequence[int], most: int) -> Proposal:
        """Propose at most `most` tokens that follow `sequence`, the prompt and output so far."""
        ...

    def on_verified(self, proposed: int, accepted: int) -> None:
        """Take in how many tokens of the last proposal were accepted."""


class DraftBatch(Protocol):
    """Sessions of one group, such as those of one draft model, which share its passes."""

    @property
    def bytes(self) -> int:
        """Memory that it holds."""
        ...

    def bytes_for(self, sessions: Sequence[Any], tokens: int) -> int:
        """Upper bound of the memory for these sessions of at most `tokens` tokens each."""
        ...

    def keep(self, staying: Iterable[DraftSession | None]) -> bool:
        """Forget all other sessions; return whether any is left."""
        ...

    def propose(
        self, inputs: Sequence[tuple[Any, Sequence[int], int]]
    ) -> Sequence[Proposal | Exception]:
        """Propose tokens for several sessions.

        Args:
            inputs: (session, sequence, most), as for DraftSession.propose.

        Returns:
            For each session a proposal, or the exception that fails its request.
        """
        ...


@runtime_checkable
class Drafter(Protocol):
    """Proposes tokens for requests; the value of `Request.drafter`."""

    def check(self, vocab_size: int) -> None:
        """Raise RequestError if it cannot draft for a model with this vocabulary size."""
        ...

    def start(self, prompt: Sequence[int], options: GenerationOptions) -> DraftSession:
        """Start to draft for one request."""
        ...


@dataclass(frozen=True)
class Request:
    """One generation: an encoded source, the decoder's prompt and the options.

    The engine checks a request when it is submitted and raises RequestError.

    Attributes:
        encoded: The source, encoded by the model that runs the request.
        prompt: Token ids that the decoder starts from, at least one; the first is the model's
            start token.
        options: How tokens are chosen.
        token_probs: (prompt position, token id) pairs whose probabilities under the raw logits
            are reported in the result, such as the no-speech probability of speech recognition.
        priority: Requests with a lower number are stepped first.
        draft: The expected output. It is verified together with the prompt in one pass and kept
            up to the first token that the model would choose otherwise: the output does not
            change, it only comes sooner. Ignored with several sequences.
        attention: (decoder layer, head) pairs whose cross-attention is reported.
        drafter: Proposes tokens before every step (such as speculative/drafters.py), with the same
            guarantee as a draft; when sampling, the distribution stays the same, not each draw.
        timeout_s: Seconds after submission at which the request ends with what it has generated.
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
    """Progress of one request: the tokens added since the last event, and whether it has ended.

    Attributes:
        tokens: New token ids, usually one, including the eos that ended the generation. A search
            over several sequences reports tokens once all its hypotheses agree on them.
        logprobs: One for each token when requested, else empty.
        reason: Set on the last event, which may carry no tokens.
    """

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    reason: FinishReason | None = None

    @property
    def final(self) -> bool:
        """Whether this is the last event of its request."""
        return self.reason is not None


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search over several sequences.

    Attributes:
        tokens: As in Result.
        logprobs: As in Result.
        score: What the hypotheses are ranked by, higher is better.
        reason: As in Result.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    score: float
    reason: FinishReason


@dataclass(frozen=True)
class Result:
    """The whole output of a request.

    Attributes:
        tokens: Token ids after the prompt, including the eos that ended the generation, if any.
        logprobs: One for each token when requested, else empty.
        reason: Why the generation ended.
        token_probs: The probabilities named in the request, in its order; fewer when the
            generation ended before the prompt was read.
        accepted: How many drafted tokens were accepted, of the request's draft and its drafter.
        drafted: How many tokens were drafted.
        attention: float32 [heads, tokens, source length], the cross-attention weights with which
            each token was chosen; None when the request names no heads.
        hypotheses: The `n_best` best of a search over several sequences, the result first; else
            empty.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    reason: FinishReason
    token_probs: tuple[float, ...] = field(default=())
    accepted: int = 0
    drafted: int = 0
    attention: Tensor | None = field(default=None, compare=False)
    hypotheses: tuple[Hypothesis, ...] = ()
