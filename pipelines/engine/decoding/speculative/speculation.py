"""Collects the drafted tokens for a batch: draft models in batches, other drafters one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pipelines.engine.backends.base import Backend
from pipelines.engine.decoding.request import DraftSession, Proposal
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.speculative.model_drafter import BatchedDraftModel, ModelDraftSession
from pipelines.errors import EngineError

_DraftRequest = tuple[RequestState, DraftSession, int]
"""(request, its draft session, at most so many tokens)"""


class DraftProposers:
    """The drafters of one batch, with one cache for each draft model."""

    def __init__(self) -> None:
        self._shared: dict[Backend, BatchedDraftModel] = {}

    @property
    def bytes(self) -> int:
        """Memory held by the draft models' caches."""
        # A copy: `statistics` reads this while a step may add a draft model.
        return sum(shared.bytes for shared in list(self._shared.values()))

    def bytes_for(self, states: Iterable[RequestState], tokens: int) -> int:
        """Upper bound of what the draft models' caches need.

        Args:
            states: The requests that they draft for.
            tokens: Upper bound of the tokens of each, prompt included.
        """
        groups: defaultdict[Backend, list[ModelDraftSession]] = defaultdict(list)
        for state in states:
            if isinstance(state.draft_session, ModelDraftSession):
                groups[state.draft_session.backend].append(state.draft_session)
        return sum(
            (self._shared.get(backend) or BatchedDraftModel(backend)).bytes_for(group, tokens)
            for backend, group in groups.items()
        )

    def keep(self, states: Iterable[RequestState]) -> None:
        """Free the cache slots of all other requests."""
        staying = [state.draft_session for state in states]
        for shared in self._shared.values():
            shared.keep(staying)
        self._shared = {backend: s for backend, s in self._shared.items() if len(s)}

    def reset(self) -> None:
        """Free all caches."""
        self._shared = {}

    def propose(
        self,
        states: Sequence[RequestState],
        max_length: int,
        paused: bool = False,
        best_length: int | None = None,
    ) -> list[Proposal] | None:
        """Draft the next tokens of all requests. A request whose drafter raises fails.

        Args:
            states: Requests.
            max_length: No draft reaches beyond this many tokens, prompt included.
            paused: Skip the drafters that pause while drafting loses time.
            best_length: Most tokens of the drafts of those of them that are models.

        Returns:
            A proposal for each request, perhaps empty; None when all are empty.
        """
        proposals = {id(state): Proposal([]) for state in states}
        batched: defaultdict[Backend, list[_DraftRequest]] = defaultdict(list)
        for state in states:
            if state.draft_session is None or state.max_sequences > 1:
                continue
            timed = getattr(state.request.drafter, "pauses", False)
            if paused and timed:
                continue
            # The last token is never drafted: the verifying pass chooses it anyway.
            length = len(state.request.prompt) + len(state.generated)
            most = min(max_length - length, state.num_tokens_left - 1)
            if most < 1:
                continue
            if isinstance(state.draft_session, ModelDraftSession):
                if timed and best_length is not None:
                    most = min(most, best_length)
                batched[state.draft_session.backend].append((state, state.draft_session, most))
            else:
                proposals[id(state)] = _propose_one(state, state.draft_session, most)
        for backend, group in batched.items():
            results = self._propose_batch(backend, group)
            for (state, _, most), result in zip(group, results, strict=True):
                proposals[id(state)] = _checked_proposal(state, result, most)
        found = list(proposals.values())
        return found if any(proposal.tokens for proposal in found) else None

    def _propose_batch(
        self, backend: Backend, group: Sequence[_DraftRequest]
    ) -> list[Proposal | Exception]:
        shared = self._shared.setdefault(backend, BatchedDraftModel(backend))
        inputs = [
            (session, state.all_token_ids(state.sequences[0]), most)
            for state, session, most in group
            if isinstance(session, ModelDraftSession)
        ]
        try:
            return shared.propose(inputs)
        except Exception as error:  # of the draft model itself: it fails all requests that use it
            del self._shared[backend]
            return [error] * len(inputs)


def _propose_one(state: RequestState, session: DraftSession, most: int) -> Proposal:
    try:
        result: Proposal | Exception = session.propose(
            state.all_token_ids(state.sequences[0]), most
        )
    except Exception as error:  # a caller's own drafter may raise; the other requests continue
        result = error
    return _checked_proposal(state, result, most)


def _checked_proposal(state: RequestState, result: Proposal | Exception, most: int) -> Proposal:
    """The longest valid beginning of a proposal; an exception fails the request."""
    if isinstance(result, Exception):
        state.fail(EngineError(f"a drafter failed: {result!r}"))
        return Proposal([])
    # An n-gram store shared with other models may hold ids that this model has no embedding for.
    valid = next((i for i, t in enumerate(result.tokens) if not 0 <= t < state.vocab_size), most)
    return Proposal(result.tokens[: min(valid, most)], result.probs)
