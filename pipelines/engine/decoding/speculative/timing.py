"""Whether drafting pays off, and how long drafts are best: steps with drafts are timed against
steps without."""

from __future__ import annotations

_MIN_PLAIN = 2  # plain steps of a batch size, before drafts are verified at this size
_PROBE_EVERY = 32  # drafted steps, after which one plain step is timed again
_MIN_DRAFTED = 8  # drafted steps before drafting may be paused
_FIRST_PAUSE, _LONGEST_PAUSE = 32, 4096  # plain steps of a pause; each is twice the one before
_WEIGHT = 1 / 8  # of the newest step in the running means
_LONGEST = 16  # tokens of a draft
_FORGETTING = 1 / 64  # of the counts of accepted and refused tokens, with each drafted step


class DraftTiming:
    """Times the steps of one batch, and pauses drafting while it takes longer than it saves.

    A plain step gives each sequence one token. A drafted one gives the accepted tokens besides,
    which would have taken `accepted / sequences` plain steps.

    Attributes:
        drafted: Drafted tokens.
        accepted: Those of them that the model accepted.
        saved_s: Seconds that plain steps would have taken longer; negative for a loss.
        pauses: How often drafting was paused.
    """

    def __init__(self) -> None:
        self.drafted = self.accepted = self.pauses = 0
        self.saved_s = 0.0
        self._plain: dict[int, tuple[int, float]] = {}  # sequences → (steps, mean seconds)
        self._token_s = 0.0  # mean seconds of a drafted step for each drafted token of a sequence
        self._right = self._wrong = 0.0  # drafted tokens: accepted, the first that were not
        self._gain = 0.0  # mean saving of a drafted step, in plain steps
        self._trial = 0  # drafted steps since the last pause
        self._pause = 0  # plain steps left of this pause
        self._next_pause = _FIRST_PAUSE
        self._since_probe = 0

    def allows_drafts(self, sequences: int) -> bool:
        """Whether to draft in the next step, of so many sequences."""
        steps, _ = self._plain.get(sequences, (0, 0.0))
        return not self._pause and steps >= _MIN_PLAIN and self._since_probe < _PROBE_EVERY

    def best_length(self, sequences: int) -> int:
        """The length of a model's drafts that gives the most tokens a second, by the steps so far.

        A draft of n tokens gives 1 + p + … + pⁿ tokens on average, p the share of accepted ones. It
        takes a plain step, and n times what each drafted token takes to draft and to verify.
        """
        _, plain = self._plain.get(sequences, (0, 0.0))
        if not (plain and self._token_s):
            return _LONGEST
        share = self._right / max(1e-9, self._right + self._wrong)
        best, most, tokens = 1, 0.0, 1.0
        for length in range(1, _LONGEST + 1):
            tokens += share**length
            speed = tokens / (plain + length * self._token_s)
            if speed > most:
                best, most = length, speed
        return best

    def record_plain(self, sequences: int, seconds: float) -> None:
        """Take in a step without drafts."""
        steps, mean = self._plain.get(sequences, (0, seconds))
        mean = min(mean, seconds) if steps < _MIN_PLAIN else mean + _WEIGHT * (seconds - mean)
        self._plain[sequences] = steps + 1, mean
        self._pause = max(0, self._pause - 1)
        self._since_probe = 0

    def record_drafted(
        self, sequences: int, seconds: float, drafted: int, accepted: int, refused: int = 0
    ) -> None:
        """Take in a step with drafts: its seconds, those of the drafters included, the drafted and
        accepted tokens of all sequences, and how many drafts were refused at some token."""
        self.drafted += drafted
        self.accepted += accepted
        _, plain = self._plain.get(sequences, (0, 0.0))
        if not plain:  # nothing to compare with, as where a drafter does not wait for it
            return
        extra = min(max(0.0, seconds - plain), 4 * plain) * sequences / max(1, drafted)
        self._token_s += (_WEIGHT if self._token_s else 1.0) * (extra - self._token_s)
        self._right += accepted - _FORGETTING * self._right
        self._wrong += refused - _FORGETTING * self._wrong
        saved = plain * (1 + accepted / sequences) - seconds
        self.saved_s += saved
        # Another program may have held up one step: it counts for a loss of 4 plain ones at most.
        self._gain += _WEIGHT * (max(-4.0, saved / plain) - self._gain)
        self._trial += 1
        self._since_probe += 1
        if self._gain < 0 and self._trial >= _MIN_DRAFTED:
            self.pauses += 1
            self._pause = self._next_pause
            self._next_pause = min(2 * self._next_pause, _LONGEST_PAUSE)
            self._gain, self._trial = 0.0, 0
        elif self._trial == _PROBE_EVERY:
            self._next_pause = _FIRST_PAUSE
