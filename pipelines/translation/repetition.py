"""Detection of Marian's known failure: a translation that repeats itself and does not end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_MAX_PERIOD = 24  # tokens of a repeated phrase
_MIN_LOOP_TOKENS = 8
_NGRAM = 4


def max_target_tokens(source_tokens: int, max_new_tokens: int) -> int:
    """The target tokens of a sentence at most, eos included: 3 × source + 16.

    Translations rarely have twice as many tokens as their source; the 16 are for short ones.
    """
    return min(3 * source_tokens + 16, max_new_tokens)


class RepetitionDetector:
    """Detects loops token by token, at constant cost for each.

    A loop is a phrase of up to 24 tokens that occurs three times or more in a row, in 8 tokens at
    least; or any 4-gram that occurs a fourth time, also with other tokens in between. A source that
    repeats itself raises both limits: the run by twice its own longest run, the count of 4-grams to
    three times its own.

    Attributes:
        settled: How many tokens are certainly not part of a loop.
        cut: After a loop was detected: how many tokens precede its first repetition.
    """

    def __init__(self, source: Sequence[int] = ()) -> None:
        self.settled = 0
        self.cut = 0
        self._tokens: list[int] = []
        # For each period, how many of the last tokens equal the token that many positions before.
        self._matches = [0] * (_MAX_PERIOD + 1)
        self._counts: Counter[tuple[int, ...]] = Counter()
        self._second_start: dict[tuple[int, ...], int] = {}
        self._longest_run = 0
        self._source_run, self._source_count = 0, 1
        if source:
            of_source = RepetitionDetector()
            for token in source:
                of_source.push(token)
            self._source_run = of_source._longest_run
            self._source_count = max(of_source._counts.values(), default=1)

    def push(self, token: int) -> bool:
        """Add a token; True when it completes a loop."""
        self._tokens.append(token)
        # Both are always evaluated: each updates its own counts.
        in_a_row, scattered = self._repeats_in_a_row(token), self._repeats_scattered()
        return in_a_row or scattered

    def _repeats_in_a_row(self, token: int) -> bool:
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
                limit = max(_MIN_LOOP_TOKENS, 3 * period) + 2 * self._source_run
                if run >= limit and not looped:
                    looped, self.cut = True, length - matches
        return looped

    def _repeats_scattered(self) -> bool:
        ngram, start = tuple(self._tokens[-_NGRAM:]), len(self._tokens) - _NGRAM
        if start < 0:
            return False
        self._counts[ngram] += 1
        if self._counts[ngram] == 2:
            self._second_start[ngram] = start
        if self._counts[ngram] <= 3 * self._source_count:
            return False
        self.cut = min(self.cut or start, self._second_start[ngram])
        return True
