"""A live session's events as JSON objects that stand alone: numbered, dated, with the language."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from edgeapp.live.events import SessionEvent, as_content, settles, speaker_and_event
from pipelines import CommittedText, PartialText
from pipelines.asr import CorrectedText, SpeechEnded, SpeechStarted

__all__ = ["EventEncoder"]

_MOST_CORRECTED = 500  # final texts at once: those of minutes


@dataclass(frozen=True)
class _Final:
    """Final text, the id of its event and the number of its utterance."""

    text: CommittedText
    id: int
    utterance: int


class EventEncoder:
    """Encodes the events of one session, in order.

    To the fields of an event it adds `id`, from 1; `clock`, the time of day (UTC) of what was
    said; and to those of speech `utterance`, from 1, and `language`. Final text has `confidence`,
    the mean probability of its words. Corrected text has in `replaces` the ids of the final texts
    that it replaces.

    Args:
        language: The code of the spoken language, None while it is unknown.
        now: The time of day; replaceable for tests.
        began: The time of day of the first sample; None: now.
    """

    def __init__(
        self,
        language: Callable[[], str | None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        began: datetime | None = None,
    ) -> None:
        self._language, self._now = language, now
        self._began = began or now()
        self._utterances = self._count = 0
        self._utterance: dict[str, int] = {}  # the latest one of each speaker
        # Of each speaker the latest final texts, of which some may be corrected.
        self._committed: defaultdict[str, deque[_Final]] = defaultdict(
            lambda: deque(maxlen=_MOST_CORRECTED)
        )

    def content(self, event: SessionEvent) -> dict[str, Any]:
        """An event as a JSON object."""
        self._count += 1
        values = as_content(event)
        content = {"id": self._count, "type": values.pop("type"), "clock": self._clock(values)}
        speaker, event = speaker_and_event(event)
        if isinstance(event, SpeechStarted):
            self._utterances += 1
            self._utterance[speaker] = self._utterances
        if isinstance(event, SpeechStarted | PartialText | CommittedText | SpeechEnded):
            number = self._utterance.get(speaker, 0)
            content |= {"utterance": number, "language": self._language()}
        if isinstance(event, CommittedText | CorrectedText) and event.words:
            mean = sum(word.probability for word in event.words) / len(event.words)
            content["confidence"] = round(mean, 3)
        if isinstance(event, CommittedText):
            self._committed[speaker].append(_Final(event, self._count, content["utterance"]))
        elif isinstance(event, CorrectedText):
            replaced = [final for final in self._committed[speaker] if settles(event, final.text)]
            content["utterance"] = replaced[0].utterance
            del values["replaced_text"]  # a program finds it by the ids
            values["replaces"] = [final.id for final in replaced]
        return content | values

    def _clock(self, values: dict[str, Any]) -> str:
        """When what an event tells began to be said; now, if it has no time."""
        seconds = values.get("start", values.get("time"))
        at = self._now() if seconds is None else self._began + timedelta(seconds=seconds)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
