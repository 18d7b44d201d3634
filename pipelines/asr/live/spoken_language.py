"""The language of what is being said: when it is detected, and when it is believed.

Whisper detects the language of a window. Of a single word it detects almost any language, so that
the decision waits for speech, and what was spoken before is taken to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Detect: TypeAlias = Callable[[], Mapping[str, float]]
"""Returns the probability of each language in the window that is being decoded."""

_LEAST_S = 1.0  # of speech: shorter speech has no detectable language
_RELIABLE_S = 1.5  # of speech, from which an update may agree with the one before
_LATEST_S = 4.0  # of speech, at which the decision is made
_CERTAIN = 0.9  # probability of a language that is believed at once
_LIKELY = 0.5  # probability of a language that is believed when the next update agrees
_LIKELY_TO_THE_END = 0.7  # probability of a language that is believed when no more is said
_CHECK_S = 2.5  # of speech, from one check of a decision to the next
_IMPROBABLE = 0.1  # probability of all expected languages together
_DOUBT_S = 10.0  # of improbable speech, before it is said


class SpokenLanguage:
    """The decision in which language the utterances of a session are decoded.

    Args:
        given: The code of the language; None: it is detected.
        candidates: Codes of the languages that may be detected; none: all.
        usual: Codes of the languages of which short speech is the likelier one, as long as none
            was detected and there are no candidates.

    Attributes:
        expected: Codes of the languages that may be spoken; empty: any.
        is_sure: Whether the language of the utterance is decided.
    """

    def __init__(
        self, given: str | None, candidates: Sequence[str] = (), usual: Sequence[str] = ("en",)
    ) -> None:
        self._given, self._candidates = given, tuple(candidates)
        self.expected = (given,) if given else self._candidates
        self._usual = self._candidates or tuple(usual)
        self._session: str | None = given  # the latest one that was decided
        self._utterance: str | None = None
        self._doubt_s = 0.0  # of speech in another language
        self._doubt: str | None = None
        self.begin()

    @property
    def language(self) -> str | None:
        """The code of the utterance's language if it is known, else of the one before it."""
        return self._utterance or self._session

    def begin(self) -> None:
        """Begin an utterance."""
        self.is_sure = self._settled = self._given is not None
        self._utterance = None
        self._likely: str | None = None  # in the latest update
        self._checked_s = 0.0  # of its speech

    def waits(self, speech_s: float) -> bool:
        """Return whether the language of running speech cannot be known yet.

        Args:
            speech_s: Seconds of speech of the utterance.
        """
        return self.language is None and speech_s < _LEAST_S

    def hear(self, speech_s: float, detect: Detect, *, ended: bool = False) -> str | None:
        """Return the language in which to decode an update; None: it is not known yet.

        Args:
            speech_s: Seconds of speech of the utterance.
            detect: It is called only if there is a decision to make.
            ended: The utterance has ended, so that the language is never None.
        """
        if self._settled or (self.is_sure and speech_s >= _LATEST_S):
            due_s = _LEAST_S if ended else _CHECK_S
            if speech_s >= _RELIABLE_S and speech_s - self._checked_s >= due_s:
                self._check(speech_s, detect())
        elif speech_s >= _LEAST_S:
            self._decide(speech_s, detect(), ended=ended)
        elif ended and self._session is None:
            self._utterance = _likeliest(detect(), self._usual)
        return self.language

    def take_doubt(self) -> str | None:
        """Return the code of the language that was heard instead of the expected ones.

        It is returned once for each time that this language goes on for ten seconds of speech.
        """
        doubt, self._doubt = self._doubt, None
        return doubt

    def _decide(self, speech_s: float, heard: Mapping[str, float], *, ended: bool) -> None:
        """Decide on the language, if there is evidence enough."""
        self._count_doubt(speech_s, heard)
        top, share = self._top(heard)
        reliable, late = speech_s >= _RELIABLE_S, speech_s >= _LATEST_S
        # In little speech, one of two candidates may be far ahead of the other by chance.
        certain = (share if reliable else heard[top]) > _CERTAIN
        agreed = self._agrees(top, heard) and reliable
        # A name, or a loan word, may agree twice with the wrong language: it is heard on.
        self._settled = certain
        if certain or agreed or (late and self._session is None):
            self._believe(top)
        elif late:
            self.is_sure = True  # that what was spoken before goes on
        elif ended and self._session is None:
            usual = _likeliest(heard, self._usual)
            self._utterance = top if heard[top] >= _LIKELY_TO_THE_END else usual

    def _check(self, speech_s: float, heard: Mapping[str, float]) -> None:
        """Check a decision, and a language that was given."""
        self._count_doubt(speech_s, heard)
        top, share = self._top(heard)
        agreed = self._agrees(top, heard)
        if self._given is None and (share > _CERTAIN or agreed):
            self._believe(top)

    def _count_doubt(self, speech_s: float, heard: Mapping[str, float]) -> None:
        """Count the speech since the latest detection, if it is in no expected language."""
        passed_s, self._checked_s = speech_s - self._checked_s, speech_s
        if not self.expected or sum(map(heard.__getitem__, self.expected)) >= _IMPROBABLE:
            self._doubt_s = 0.0
            return
        other = max(heard, key=heard.__getitem__)
        if heard[other] < _LIKELY:
            return  # music, or a crowd
        before, self._doubt_s = self._doubt_s, self._doubt_s + passed_s
        if before < _DOUBT_S <= self._doubt_s:
            self._doubt = other

    def _agrees(self, top: str, heard: Mapping[str, float]) -> bool:
        """Return whether a language is likely in this update, and was in the one before."""
        before, self._likely = self._likely, top if heard[top] >= _LIKELY else None
        return self._likely is not None and self._likely == before

    def _believe(self, language: str) -> None:
        self._utterance = self._session = language
        self.is_sure = True

    def _top(self, heard: Mapping[str, float]) -> tuple[str, float]:
        """The most probable language that may be detected, and its probability among these."""
        allowed = {code: heard[code] for code in self._candidates} or heard
        top = max(allowed, key=allowed.__getitem__)
        return top, allowed[top] / (sum(allowed.values()) or 1.0)


def _likeliest(heard: Mapping[str, float], codes: Sequence[str]) -> str:
    """The most probable of some languages, or of all if the model knows none of them."""
    known = [code for code in codes if code in heard] or list(heard)
    return max(known, key=heard.__getitem__)
