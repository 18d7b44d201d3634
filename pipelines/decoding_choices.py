"""What both pipelines let a caller choose about decoding: n-best results, penalties, phrases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.errors import OptionError


@dataclass(frozen=True)
class Alternative:
    """One of the `n_best` results of a search.

    Attributes:
        text: What it says.
        score: What the results are ranked by, higher is better: a mean log-probability, unless a
            length penalty weighs the length otherwise.
        tokens: Its ids.
    """

    text: str
    score: float
    tokens: tuple[int, ...] = ()


class OwnLogitFilter(Protocol):
    """A caller's logit filter; `pipelines.engine.LogitFilter`, without importing torch."""

    def bind(
        self, prompt: Sequence[int], vocab_size: int, device: Any
    ) -> Callable[[Any, Sequence[int]], None]:
        """Return a function for one sequence that edits logits [vocab] in place."""
        ...


def check_phrases(phrases: Sequence[str]) -> None:
    """Check suppressed and forced phrases.

    Raises:
        OptionError: One is empty.
    """
    if not all(isinstance(phrase, str) and phrase.strip() for phrase in phrases):
        raise OptionError("a suppressed or forced phrase needs at least one character")
