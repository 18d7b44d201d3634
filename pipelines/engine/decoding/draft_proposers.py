"""Whatever drafts for the rows of a batch: models for all their rows at once, others row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pipelines.engine.backends.base import Backend
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.speculative.drafters import DraftSession, Proposal
from pipelines.engine.decoding.speculative.model_drafter import BatchedDraftModel, ModelDraftSession
from pipelines.errors import EngineError

__all__ = ["DraftProposers"]

_DraftRequest = tuple[RequestState, DraftSession, int]


class DraftProposers:
    """The drafters of one batch. What they have read is forgotten with the rows it was for."""

    def __init__(self) -> None:
        self._shared: dict[Backend, BatchedDraftModel] = {}

    @property
    def bytes(self) -> int:
        """Memory held by the drafters' caches."""
        return sum(shared.bytes for shared in self._shared.values())

    def bytes_for(self, states: Iterable[RequestState], tokens: int) -> int:
        """What the caches of these rows' drafters need; no row comes to more than `tokens`."""
        groups: defaultdict[Backend, list[ModelDraftSession]] = defaultdict(list)
        for state in states:
            if isinstance(state.drafting, ModelDraftSession):
                groups[state.drafting.backend].append(state.drafting)
        return sum(
            (self._shared.get(backend) or BatchedDraftModel(backend)).bytes_for(group, tokens)
            for backend, group in groups.items()
        )

    def keep(self, states: Iterable[RequestState]) -> None:
        """Forget what was read for other rows than these."""
        staying = [state.drafting for state in states]
        for shared in self._shared.values():
            shared.keep(staying)
        self._shared = {backend: s for backend, s in self._shared.items() if len(s)}

    def forget(self) -> None:
        """Forget all that was read."""
        self._shared = {}

    def propose(self, states: Sequence[RequestState], longest: int) -> list[Proposal] | None:
        """What the rows' drafters guess, none beyond position `longest`; None where nobody does.

        A row whose drafter fails has failed.
        """
        found = {id(state): Proposal([]) for state in states}
        together: defaultdict[Backend, list[_DraftRequest]] = defaultdict(list)
        for state in states:
            if state.drafting is None or state.width > 1:
                continue
            # The last token is never guessed: it is chosen in the same pass anyway.
            known = len(state.request.prompt) + len(state.generated)
            most = min(longest - known, state.left - 1)
            if most < 1:
                continue
            if isinstance(state.drafting, ModelDraftSession):
                together[state.drafting.backend].append((state, state.drafting, most))
            else:
                found[id(state)] = _propose_one(state, state.drafting, most)
        for backend, asked in together.items():
            for (state, _, most), guess in zip(asked, self._ask(backend, asked), strict=True):
                found[id(state)] = _checked_proposal(state, guess, most)
        return list(found.values()) if any(guess.tokens for guess in found.values()) else None

    def _ask(self, backend: Backend, asked: Sequence[_DraftRequest]) -> list[Proposal | Exception]:
        shared = self._shared.setdefault(backend, BatchedDraftModel(backend))
        questions = [
            (drafting, state.tokens_of(state.sequences[0]), most)
            for state, drafting, most in asked
            if isinstance(drafting, ModelDraftSession)
        ]
        try:
            return shared.propose(questions)
        except Exception as error:  # of the model itself: none of its rows can be drafted for
            del self._shared[backend]
            return [error] * len(questions)


def _propose_one(state: RequestState, drafting: DraftSession, most: int) -> Proposal:
    try:
        guess: Proposal | Exception = drafting.propose(state.tokens_of(state.sequences[0]), most)
    except Exception as error:  # a caller's own drafter may do anything; its neighbours go on
        guess = error
    return _checked_proposal(state, guess, most)


def _checked_proposal(state: RequestState, guess: Proposal | Exception, most: int) -> Proposal:
    """As much of a guess as can be verified."""
    if isinstance(guess, Exception):
        state.fail(EngineError(f"a drafter failed: {guess!r}"))
        return Proposal([])
    # Of a store that others feed, too: nothing that this model has no embedding for.
    fit = next((i for i, t in enumerate(guess.tokens) if not 0 <= t < state.vocab_size), most)
    return Proposal(guess.tokens[: min(fit, most)], guess.probs)
