"""Whatever drafts for the rows of a batch: models for all their rows at once, others row by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pipelines.engine.backends.base import Backend
from pipelines.engine.decoding.request_state import Row
from pipelines.engine.decoding.speculative.drafters import Drafting, Proposal
from pipelines.engine.decoding.speculative.model_drafter import ModelDrafting, SharedDrafts
from pipelines.errors import EngineError

__all__ = ["DraftPool"]

_Asked = tuple[Row, Drafting, int]


class DraftPool:
    """The drafters of one batch. What they have read is forgotten with the rows it was for."""

    def __init__(self) -> None:
        self._shared: dict[Backend, SharedDrafts] = {}

    @property
    def bytes(self) -> int:
        """Memory held by the drafters' caches."""
        return sum(shared.bytes for shared in self._shared.values())

    def bytes_for(self, rows: Iterable[Row], tokens: int) -> int:
        """What the caches of these rows' drafters need; no row comes to more than `tokens`."""
        groups: defaultdict[Backend, list[ModelDrafting]] = defaultdict(list)
        for row in rows:
            if isinstance(row.drafting, ModelDrafting):
                groups[row.drafting.backend].append(row.drafting)
        return sum(
            (self._shared.get(backend) or SharedDrafts(backend)).bytes_for(group, tokens)
            for backend, group in groups.items()
        )

    def keep(self, rows: Iterable[Row]) -> None:
        """Forget what was read for other rows than these."""
        staying = [row.drafting for row in rows]
        for shared in self._shared.values():
            shared.keep(staying)
        self._shared = {backend: s for backend, s in self._shared.items() if len(s)}

    def forget(self) -> None:
        """Forget all that was read."""
        self._shared = {}

    def propose(self, rows: Sequence[Row], longest: int) -> list[Proposal] | None:
        """What the rows' drafters guess, none beyond position `longest`; None where nobody does.

        A row whose drafter fails has failed.
        """
        found = {id(row): Proposal([]) for row in rows}
        together: defaultdict[Backend, list[_Asked]] = defaultdict(list)
        for row in rows:
            if row.drafting is None or row.width > 1:
                continue
            # The last token is never guessed: it is chosen in the same pass anyway.
            known = len(row.request.prompt) + len(row.generated)
            most = min(longest - known, row.left - 1)
            if most < 1:
                continue
            if isinstance(row.drafting, ModelDrafting):
                together[row.drafting.backend].append((row, row.drafting, most))
            else:
                found[id(row)] = _guess(row, row.drafting, most)
        for backend, asked in together.items():
            for (row, _, most), guess in zip(asked, self._ask(backend, asked), strict=True):
                found[id(row)] = _judged(row, guess, most)
        return list(found.values()) if any(guess.tokens for guess in found.values()) else None

    def _ask(self, backend: Backend, asked: Sequence[_Asked]) -> list[Proposal | Exception]:
        shared = self._shared.setdefault(backend, SharedDrafts(backend))
        questions = [
            (drafting, row.sequence(row.lanes[0]), most)
            for row, drafting, most in asked
            if isinstance(drafting, ModelDrafting)
        ]
        try:
            return shared.propose(questions)
        except Exception as error:  # of the model itself: none of its rows can be drafted for
            del self._shared[backend]
            return [error] * len(questions)


def _guess(row: Row, drafting: Drafting, most: int) -> Proposal:
    try:
        guess: Proposal | Exception = drafting.propose(row.sequence(row.lanes[0]), most)
    except Exception as error:  # a caller's own drafter may do anything; its neighbours go on
        guess = error
    return _judged(row, guess, most)


def _judged(row: Row, guess: Proposal | Exception, most: int) -> Proposal:
    """As much of a guess as can be verified."""
    if isinstance(guess, Exception):
        row.fail(EngineError(f"a drafter failed: {guess!r}"))
        return Proposal([])
    # Of a store that others feed, too: nothing that this model has no embedding for.
    fit = next((i for i, t in enumerate(guess.tokens) if not 0 <= t < row.vocab_size), most)
    return Proposal(guess.tokens[: min(fit, most)], guess.chances)
