"""Live captions of what a browser's microphone hears."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from edgeapp.server.sessions import SessionAbandoned
from edgeapp.server.tasks.browser_source import BrowserSource
from edgeapp.server.tasks.caption_lines import CaptionLines
from edgeapp.subtitles.formats import Cue

if TYPE_CHECKING:
    from edgeapp.history import History, Journal
    from edgeapp.server.sessions import Message, Send
    from edgeapp.server.shared_models import ModelChoice, SharedModelPool

__all__ = ["LiveTask"]


class LiveTask:
    """Runs from start to stop. rate: of the browser's audio, in Hz. history: where the captions
    are kept. Raises InputError for an impossible rate."""

    kind = "live"

    def __init__(
        self, pool: SharedModelPool, history: History, wanted: ModelChoice, rate: int
    ) -> None:
        self._pool, self._history, self._wanted = pool, history, wanted
        self._feed = BrowserSource(rate)
        self._abandoned = threading.Event()

    def run(self, send: Send) -> None:
        from pipelines import SpeechEnded, UpdateDecoded

        wanted, board = self._wanted, CaptionLines()
        live = self._pool.live(wanted)
        with (
            self._pool.using(*live.models),
            self._history.recording(
                "live", language=live.language, target=wanted.target, model=live.name
            ) as journal,
        ):
            send({"type": "live_listening", "language": live.language, "model": live.name})
            with closing(live.session.run(self._feed)) as events:
                for event in events:
                    if self._abandoned.is_set():
                        # Words that are sure, though their cue is not complete, are kept too.
                        _keep(board.take(SpeechEnded(0.0)), journal)
                        raise SessionAbandoned
                    if isinstance(event, UpdateDecoded):
                        continue
                    messages = list(board.take(event))
                    _keep(messages, journal)  # what is seen on the page is kept already
                    for message in messages:
                        send(message)

    def take(self, audio: bytes) -> None:
        self._feed.put(audio)

    def stop(self) -> None:
        self._feed.stop()

    def abandon(self) -> None:
        self._abandoned.set()
        self._feed.abandon()


def _keep(messages: Iterable[Message], journal: Journal) -> None:
    for message in messages:
        if message["type"] == "live_cue":
            cue = Cue(message["start"], message["end"], message["text"])
            (journal.translate if message["translated"] else journal.add)(cue)
        elif message["type"] == "live_ended":
            journal.describe(duration_s=message["time"])
