"""Collects the drafted tokens for a batch: sessions of one group together, others one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress

from pipelines.engine.decoding.request import DraftBatch, DraftSession, Proposal
from pipelines.engine.decoding.request_state import RequestState
from pipelines.engine.decoding.speculative.timing import DraftTiming


class Speculation:
    """The drafters of one batch, and whether they save time, by the steps so far."""

    def __init__(self) -> None:
        self.timing = DraftTiming()
        self._batches: dict[object, DraftBatch] = {}  # by group

    @property
    def bytes(self) -> int:
        """Memory held by the draft models' caches."""
        # A copy: `statistics` reads this while a step may add a draft model.
        return sum(batch.bytes for batch in list(self._batches.values()))

    def bytes_for(self, states: Iterable[RequestState], tokens: int) -> int:
        """Upper bound of what the draft models' caches need for requests of at most `tokens`
        tokens."""
        groups: defaultdict[object, list[DraftSession]] = defaultdict(list)
        total = 0
        for state in states:
            session = state.draft_session
            with suppress(Exception):  # which fails the request in `propose`
                if session is not None and session.group is not None:
                    groups[session.group].append(session)
        for group, sessions in groups.items():
            with suppress(Exception):
                batch = self._batches.get(group) or sessions[0].new_batch()
                total += batch.bytes_for(sessions, tokens)
        return total

    def keep(self, states: Iterable[RequestState]) -> None:
        """Free the cache slots of all other requests."""
        staying = [state.draft_session for state in states]
        self._batches = {group: b for group, b in self._batches.items() if b.keep(staying)}

    def reset(self) -> None:
        """Free all caches."""
        self._batches = {}

    def propose(
        self, states: Sequence[RequestState], sequences: int, max_length: int
    ) -> list[Proposal] | None:
        """Draft the next tokens of all requests. A request whose drafter raises fails.

        No draft reaches beyond `max_length` tokens, prompt included. Returns a proposal for each
        request, perhaps empty; None if all are empty.
        """
        paused = not self.timing.allows_drafts(sequences)
        proposals = {id(state): Proposal([]) for state in states}
        groups: defaultdict[object, list[tuple[RequestState, DraftSession, int]]]
        groups = defaultdict(list)
        for state in states:
            session = state.draft_session
            # The last token is never drafted: the verifying pass chooses it anyway.
            length = len(state.request.prompt) + len(state.generated)
            most = min(max_length - length, state.num_tokens_left - 1)
            try:
                if session is None or (paused and session.pauses):
                    continue
                if session.pauses and session.group is not None:  # each drafted token takes time
                    most = min(most, self.timing.best_length(sequences))
                if most > 0:
                    group = id(state) if session.group is None else session.group
                    groups[group].append((state, session, most))
            except Exception as error:  # of the drafter itself
                state.fail_drafting(error)
        for group, members in groups.items():
            inputs = [
                (session, state.all_token_ids(state.sequences[0]), most)
                for state, session, most in members
            ]
            try:
                results = list(zip(members, self._propose(group, inputs), strict=True))
            except Exception as error:  # of the drafter itself: it fails all that it drafts for
                self._batches.pop(group, None)
                results = [(member, error) for member in members]
            for (state, _, most), result in results:
                proposals[id(state)] = _checked_proposal(state, result, most)
        found = list(proposals.values())
        return found if any(proposal.tokens for proposal in found) else None

    def _propose(
        self, group: object, inputs: Sequence[tuple[DraftSession, Sequence[int], int]]
    ) -> Sequence[Proposal | Exception]:
        session, sequence, most = inputs[0]
        if session.group is None:
            return [session.propose(sequence, most)]
        if group not in self._batches:
            self._batches[group] = session.new_batch()
        return self._batches[group].propose(inputs)


def _checked_proposal(state: RequestState, result: Proposal | Exception, most: int) -> Proposal:
    """The longest valid beginning of a proposal; an exception fails the request."""
    try:
        if isinstance(result, Exception):
            raise result
        # An n-gram store shared with other models may hold ids that this one has no embedding for.
        valid = next(
            (i for i, t in enumerate(result.tokens) if not 0 <= t < state.vocab_size), most
        )
        return Proposal(list(result.tokens[: min(valid, most)]), result.probs)
    except Exception as error:
        state.fail_drafting(error)
        return Proposal([])
