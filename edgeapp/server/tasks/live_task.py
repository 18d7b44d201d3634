"""Live captions of what a browser's microphone hears."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from edgeapp.server.sessions import Abandoned
from edgeapp.server.tasks.browser_source import BrowserFeed
from edgeapp.server.tasks.caption_lines import Board
from edgeapp.subtitles.formats import Cue

if TYPE_CHECKING:
    from edgeapp.history import History, Journal
    from edgeapp.server.sessions import Message, Send
    from edgeapp.server.shared_models import Shelf, Wanted

__all__ = ["LiveTask"]


class LiveTask:
    """Runs from start to stop. rate: of the browser's audio, in Hz. history: where the captions
    are kept. Raises InputError for an impossible rate."""

    kind = "live"

    def __init__(self, shelf: Shelf, history: History, wanted: Wanted, rate: int) -> None:
        self._shelf, self._history, self._wanted = shelf, history, wanted
        self._feed = BrowserFeed(rate)
        self._abandoned = threading.Event()

    def run(self, send: Send) -> None:
        from pipelines.asr.live.events import Decoded, SpeechEnded

        wanted, board = self._wanted, Board()
        live = self._shelf.live(wanted)
        with (
            self._shelf.using(*live.models),
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
                        raise Abandoned
                    if isinstance(event, Decoded):
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
