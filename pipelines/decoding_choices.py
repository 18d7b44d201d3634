"""What both pipelines let a caller choose about decoding: n-best results, penalties, phrases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar

from pipelines.errors import OptionError

__all__ = ["Alternative", "OwnLogitFilter", "check_choices", "with_fields"]

Options = TypeVar("Options")  # a frozen dataclass


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


def check_choices(
    n_best: int,
    repetition_penalty: float,
    no_repeat_ngram_size: int,
    phrases: Sequence[str],
) -> None:
    """Check options that both pipelines have.

    Args:
        n_best: Results of a search.
        repetition_penalty: 1 is none.
        no_repeat_ngram_size: 0 is off.
        phrases: Suppressed and forced ones.

    Raises:
        OptionError: A value is out of its range.
    """
    if n_best < 1:
        raise OptionError(f"n_best must be 1 or more, not {n_best}")
    if not 0 < repetition_penalty < math.inf:
        raise OptionError(f"repetition_penalty must be above 0, not {repetition_penalty}")
    if no_repeat_ngram_size < 0:
        raise OptionError(f"no_repeat_ngram_size must be 0 or more, not {no_repeat_ngram_size}")
    if not all(isinstance(phrase, str) and phrase.strip() for phrase in phrases):
        raise OptionError("a suppressed or forced phrase needs at least one character")


def with_fields(options: Options, overrides: Mapping[str, Any]) -> Options:
    """Return options with some fields changed.

    Raises:
        OptionError: There is no such field, or a value is out of its range.
    """
    names = [field.name for field in fields(options)]  # type: ignore[arg-type]
    for name in overrides:
        if name not in names:
            raise OptionError(f"no such option: {name}{_hint(name, names)}")
    return replace(options, **overrides)  # type: ignore[type-var]


def _hint(name: str, names: Sequence[str]) -> str:
    """Return the end of a message about an unknown option: the one that was probably meant."""
    parts = [each for each in names if each.startswith(name) or name.startswith(f"{each}_")]
    similar = parts or get_close_matches(name, names, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""
