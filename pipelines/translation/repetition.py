"""Guards against Marian's known failure: going round in circles instead of coming to an end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["RepetitionDetector", "max_target_tokens"]

_MAX_PERIOD = 24
_MIN_LOOP_TOKENS = 8
_NGRAM = 4


def max_target_tokens(source_tokens: int, longest: int) -> int:
    """At most so many target tokens, eos included: 3 × source + 16, and never above `longest`.

    Translations seldom have twice as many tokens as their source; the 16 are for short ones.
    """
    return min(3 * source_tokens + 16, longest)


class RepetitionDetector:
    """Notices repetition while tokens come in, at a constant cost for each.

    A loop is a phrase of up to 24 tokens said three times or more in a row, 8 tokens at least;
    or any 4 tokens in a row that occur a fourth time, even with something else in between. A
    source that repeats itself allows its translation to do so too: twice as long in a row, and
    three times as often.
    """

    def __init__(self, source: Sequence[int] = ()) -> None:
        self._tokens: list[int] = []
        self._matches = [0] * (_MAX_PERIOD + 1)
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._second: dict[tuple[int, ...], int] = {}
        self._longest_run = 0
        self._allowed_run, self._allowed_count = 0, 1
        self.settled = 0
        """How many of the tokens are not part of what may turn out to be a loop."""
        self.cut = 0
        """After a loop was noticed: how many tokens stand before its first repetition."""
        if source:
            own = RepetitionDetector()
            for token in source:
                own.push(token)
            self._allowed_run = own._longest_run
            self._allowed_count = max(own._counts.values(), default=1)

    def push(self, token: int) -> bool:
        """Take a token; True when it completes a loop."""
        self._tokens.append(token)
        # Both always run: each keeps an account of its own.
        in_a_row, scattered = self._runs(token), self._scattered()
        return in_a_row or scattered

    def _runs(self, token: int) -> bool:
        tokens, length = self._tokens, len(self._tokens)
        self.settled = length
        looped = False
        for period in range(1, min(_MAX_PERIOD, length - 1) + 1):
            if tokens[-1 - period] != token:
                self._matches[period] = 0
                continue
            self._matches[period] += 1
            matches, run = self._matches[period], self._matches[period] + period
            if matches >= period and run >= _NGRAM:
                self.settled = min(self.settled, length - matches)
            if matches >= 2 * period:
                self._longest_run = max(self._longest_run, run)
                enough = max(_MIN_LOOP_TOKENS, 3 * period) + 2 * self._allowed_run
                if run >= enough and not looped:
                    looped, self.cut = True, length - matches
        return looped

    def _scattered(self) -> bool:
        gram, start = tuple(self._tokens[-_NGRAM:]), len(self._tokens) - _NGRAM
        if start < 0:
            return False
        self._counts[gram] += 1
        if self._counts[gram] == 2:
            self._second[gram] = start
        if self._counts[gram] <= 3 * self._allowed_count:
            return False
        self.cut = min(self.cut or start, self._second[gram])
        return True
