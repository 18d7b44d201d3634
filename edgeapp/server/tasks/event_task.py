"""Live recognition for a program: numbered events, which a new connection can ask for again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from edgeapp.live.speakers import checked_speakers
from edgeapp.server.sessions import TaskCancelled
from edgeapp.server.tasks.browser_source import BrowserSource
from edgeapp.server.tasks.live_task import make_live_setup

if TYPE_CHECKING:
    from edgeapp.model_pool import ModelPool
    from edgeapp.server.page.picker_options import ModelChoice
    from edgeapp.server.sessions import Message, Send

__all__ = ["EventTask"]

# By the next one of the same type and speaker.
_REPLACED = ("partial", "translation_partial", "status")
_MAX_KEPT = 20_000  # other events


class EventTask:
    """A live session whose events go to a program. Nothing is stored.

    Args:
        pool: The shared models.
        choice: Models and languages.
        rate: The sample rate of the program's audio, in Hz.
        speakers: The names of those who are heard on a channel each; none: one channel.

    Raises:
        InputError: The sample rate is out of range.
        MemoryLimitReached: The memory limit of the server has no room for it now.
        OptionError: The names are not two different short ones.
    """

    kind = "live"
    resumable = True

    def __init__(
        self, pool: ModelPool, choice: ModelChoice, rate: int, speakers: Sequence[str] = ()
    ) -> None:
        self._pool, self._choice = pool, choice
        self._speakers = checked_speakers(speakers)
        self.source = BrowserSource(rate, max(1, len(self._speakers)))
        pool.memory_limit.check_live_session(
            self.source.queue_bytes, self.source.channels, correct=choice.correct
        )
        self._cancelled = threading.Event()
        self._events: deque[Message] = deque(maxlen=_MAX_KEPT)
        self._latest: dict[tuple[str, str | None], Message] = {}  # of _REPLACED
        # Held while an event is kept and sent: a new connection gets all of them once.
        self._lock = threading.Lock()

    def run(self, send: Send) -> None:
        with self._pool.memory_limit.live_session(
            self.source.queue_bytes, self.source.channels, correct=self._choice.correct
        ):
            self._run(send)

    def _run(self, send: Send) -> None:
        from edgeapp.live.event_encoder import EventEncoder
        from edgeapp.live.events import TextSettled, speaker_and_event
        from pipelines.asr import UpdateDecoded

        live = make_live_setup(self._pool, self._choice, self._speakers)
        encoder = EventEncoder(lambda: live.session.language)
        with live.using(self._pool):
            events = live.session.run(self.source)
            assert isinstance(events, Generator)  # so that it can be closed
            with closing(events):
                for event in events:
                    if self._cancelled.is_set():
                        raise TaskCancelled
                    if isinstance(event, UpdateDecoded):
                        continue
                    if isinstance(speaker_and_event(event)[1], TextSettled):
                        continue
                    content = encoder.content(event)
                    if content["type"] == "status":
                        content["received"] = self.source.received
                    with self._lock:
                        self._keep(content)
                        send(content)

    def resume(self, send: Send) -> None:
        """Send all events so far, without those that were replaced."""
        with self._lock:
            send({"type": "resumed", "received": self.source.received})
            kept = [*self._events, *self._latest.values()]
            for content in sorted(kept, key=lambda content: int(content["id"])):
                send(content)

    def put_audio(self, audio: bytes) -> None:
        self.source.put(audio)

    def stop(self) -> None:
        self.source.stop()

    def cancel(self) -> None:
        self._cancelled.set()
        self.source.cancel()

    def _keep(self, content: Message) -> None:
        if content["type"] in _REPLACED:
            self._latest[content["type"], content.get("speaker")] = content
        else:
            self._events.append(content)
