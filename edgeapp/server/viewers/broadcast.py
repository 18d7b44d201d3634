"""Shared live sessions: each has a secret address, an end, and viewers."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgeapp.server.page.picker_options import TranslatorOption, language_name, picker_options
from edgeapp.server.tasks.caption_lines import CaptionLines
from edgeapp.server.viewers.channel import Channel, TranslatedChannel
from pipelines import OptionError

if TYPE_CHECKING:
    from edgeapp.live.events import SessionEvent
    from edgeapp.model_pool import ModelPool
    from edgeapp.server.sessions import Message, Send
    from pipelines import LiveTranslator

__all__ = ["LASTS_S", "Broadcast", "Broadcasts"]

LASTS_S = 12 * 3600.0
_MAX_PER_PERSON, _MAX_IN_ALL = 4, 32
_MAX_VIEWERS = 100  # of one broadcast
_MAX_LANGUAGES = 8  # of one broadcast that are translated for viewers only


class Broadcast:
    """The captions of one speaker for an audience. It outlasts the speaker's sessions.

    Args:
        pool: The shared models.
        user: The speaker.
        ends_at: When it ends, by time.time().

    Attributes:
        token: The secret in the viewers' address.
    """

    def __init__(self, pool: ModelPool, user: str, ends_at: float) -> None:
        self.token = secrets.token_urlsafe(16)
        self.user, self.ends_at = user, ends_at
        self._pool = pool
        self._lock = threading.Lock()  # held while a session begins, an event comes, a viewer joins
        self._lines = CaptionLines()  # what the speaker's page shows
        self._language: str | None = None
        self._target: str | None = None  # of the speaker's page
        self._live = self._closed = False
        self._pairs: tuple[TranslatorOption, ...] = ()  # of the installed models
        self._channels: dict[str, Channel] = {}  # by target language; "": what was said
        self._viewers: dict[Send, str] = {}  # with the language that each has chosen

    @property
    def ended(self) -> bool:
        """Whether it was closed or its time is over."""
        return self._closed or time.time() >= self.ends_at

    @property
    def viewers(self) -> int:
        """The number of viewers."""
        return len(self._viewers)

    def refresh(self) -> None:
        """Look up the languages of the installed models, which reads the disk.

        To be called before a lock is taken for which captions wait.
        """
        self._pairs = picker_options().pairs

    def begin(self, language: str | None, target: str | None, lines: CaptionLines) -> None:
        """A session of the speaker begins, or is shared from here on.

        Args:
            language: What is spoken; None: unknown, so that there are no translations.
            target: The translation that the speaker's page shows.
            lines: The captions so far.
        """
        with self._lock:
            self._language, self._target, self._live = language, target, True
            self._lines = lines.copy()
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
            languages = self._languages()
            for viewer in list(self._viewers):
                self._enter(viewer, languages)

    def put(self, event: SessionEvent) -> None:
        """Pass an event of the session on."""
        with self._lock:
            for _ in self._lines.update(event):
                pass
            for channel in self._channels.values():
                channel.put(event)

    def end_session(self) -> None:
        """The speaker has stopped. The captions stay."""
        with self._lock:
            self._live = False
            for viewer in self._viewers:
                viewer({"type": "view_live", "live": False})

    def join(self, viewer: Send, target: str) -> None:
        """Send the captions to a viewer, or send them in another language.

        Args:
            viewer: Sends a message to the viewer.
            target: The code of a language; "": as spoken, which is sent too while the speaker's
                language or the models do not allow the chosen one.

        Raises:
            OptionError: There are too many viewers.
        """
        self.refresh()
        with self._lock:
            if viewer not in self._viewers and len(self._viewers) >= _MAX_VIEWERS:
                raise OptionError(f"{_MAX_VIEWERS} people are watching already: try again later")
            self._drop(viewer)
            self._viewers[viewer] = target
            self._enter(viewer, self._languages())

    def leave(self, viewer: Send) -> None:
        """Send no more to a viewer."""
        with self._lock:
            self._drop(viewer)

    def close(self) -> None:
        """End it for all viewers."""
        with self._lock:
            self._closed = True
            for viewer in list(self._viewers):
                viewer({"type": "view_ended"})
                self._drop(viewer)

    def _enter(self, viewer: Send, languages: Sequence[str]) -> None:
        """Put a viewer into the channel of their language. The lock is held.

        Args:
            viewer: Sends a message to the viewer.
            languages: Those that can be chosen beside the spoken one.
        """
        target = self._viewers[viewer]
        full = target not in self._channels and len(self._channels) > _MAX_LANGUAGES
        if full or target not in languages:
            target = ""
        if target not in self._channels:
            self._channels[target] = self._make_channel(target)
        hello: Message = {
            "type": "view",
            "language": self._language,
            "languages": [[code, language_name(code)] for code in languages],
            "target": target,
            "live": self._live,
        }
        self._channels[target].add(viewer, hello)
        if full:
            text = (
                f"translated into {_MAX_LANGUAGES} languages already: choose one of another viewer"
            )
            viewer({"type": "view_problem", "message": f"These captions are {text}."})

    def _drop(self, viewer: Send) -> None:
        """The lock is held."""
        if self._viewers.pop(viewer, None) is None:
            return
        for target, channel in list(self._channels.items()):
            channel.remove(viewer)
            if target and not channel.viewers:
                channel.close()
                del self._channels[target]

    def _make_channel(self, target: str) -> Channel:
        lines = self._lines.copy()
        if target and target == self._target:
            return Channel(lines, translated=True)
        if not target:
            lines.retranslate(0)
            return Channel(lines, translated=False)
        return TranslatedChannel(lines, lambda: self._translator(target))

    @contextmanager
    def _translator(self, target: str) -> Iterator[Callable[[], LiveTranslator]]:
        from edgeapp.priorities import Priority
        from pipelines import LiveTranslator, TranslateOptions

        translator = self._pool.translator(None, self._language, target)
        code = target if translator.target_codes else None
        options = TranslateOptions(target=code, priority=Priority.LIVE_TRANSLATION)
        with self._pool.using(translator):
            yield lambda: LiveTranslator(translator, options)

    def _languages(self) -> list[str]:
        """The languages that can be chosen beside the spoken one."""
        if self._language is None:
            return []
        codes = {pair.target for pair in self._pairs if pair.source in (None, self._language)}
        return sorted(codes - {self._language}, key=language_name)


class Broadcasts:
    """All shared sessions of a server. From any thread.

    Args:
        pool: The shared models.
    """

    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._open: dict[str, Broadcast] = {}  # by token

    def find(self, token: str) -> Broadcast | None:
        """The broadcast with a token; None: there is none, or it has ended."""
        with self._lock:
            self._forget_ended()
            return self._open.get(token)

    def of(self, user: str, token: str) -> Broadcast | None:
        """The broadcast with a token, if it is this user's."""
        found = self.find(token)
        return found if found is not None and found.user == user else None

    def open(self, user: str) -> Broadcast:
        """A new broadcast.

        Raises:
            OptionError: There are too many.
        """
        with self._lock:
            self._forget_ended()
            own = [each for each in self._open.values() if each.user == user]
            if len(own) >= _MAX_PER_PERSON:
                # A page that was closed cannot end its own.
                oldest = min(own, key=lambda each: (each.viewers, each.ends_at))
                del self._open[oldest.token]
                oldest.close()
            elif len(self._open) >= _MAX_IN_ALL:
                raise OptionError(
                    f"{_MAX_IN_ALL} sessions are shared here already: try again later"
                )
            made = Broadcast(self._pool, user, time.time() + LASTS_S)
            self._open[made.token] = made
        made.refresh()
        return made

    def end(self, broadcast: Broadcast) -> None:
        """End a broadcast now."""
        with self._lock:
            self._open.pop(broadcast.token, None)
        broadcast.close()

    def close(self) -> None:
        """End all."""
        with self._lock:
            for broadcast in self._open.values():
                broadcast.close()
            self._open.clear()

    def _forget_ended(self) -> None:
        """The lock is held."""
        for token, broadcast in list(self._open.items()):
            if broadcast.ended:
                del self._open[token]
                broadcast.close()
