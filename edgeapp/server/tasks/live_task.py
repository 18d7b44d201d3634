"""Live captions of a browser's microphone."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from edgeapp.history import TranslatedCue
from edgeapp.live.speakers import checked_speakers
from edgeapp.server.sessions import TaskCancelled
from edgeapp.server.tasks.browser_source import BrowserSource
from edgeapp.server.tasks.caption_lines import CaptionLines, line_message
from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from edgeapp.history import History, Journal
    from edgeapp.live.events import SessionEvent
    from edgeapp.live.setup import SessionSetup
    from edgeapp.model_pool import ModelPool
    from edgeapp.server.page.picker_options import ModelChoice
    from edgeapp.server.sessions import Message, Send

__all__ = ["Audience", "LiveTask", "make_live_setup"]

_WRITE_S = 0.25  # that a caption may wait for the history: some ms, more where the file is begun


class Audience(Protocol):
    """Viewers of a session's captions.

    Attributes:
        viewers: Their number.
        ended: Whether they get no more.
    """

    @property
    def viewers(self) -> int: ...

    @property
    def ended(self) -> bool: ...

    def refresh(self) -> None:
        """Read from the disk what `begin` needs."""
        ...

    def begin(self, language: str | None, target: str | None, lines: CaptionLines) -> None:
        """A session in `language`, translated into `target`, is shown from here on."""
        ...

    def put(self, event: SessionEvent) -> None:
        """Show an event of the session."""
        ...

    def end_session(self) -> None:
        """The session has ended."""
        ...


def make_live_setup(
    pool: ModelPool, choice: ModelChoice, speakers: Sequence[str] = ()
) -> SessionSetup:
    """Load the models that were chosen and make a live session of them.

    Args:
        pool: The shared models.
        choice: Models and languages.
        speakers: The names of those who are heard on a channel each; none: one channel.

    Raises:
        ModelError: A model is not installed, or is for another task, or lacks a language.
        OptionError: A language is unknown.
    """
    from edgeapp.english_only import choosing_language
    from edgeapp.live.setup import make_session
    from pipelines import LiveOptions, TranscribeOptions

    options = LiveOptions(
        transcribe=TranscribeOptions(
            language=choice.language,
            languages=choice.languages,
            initial_prompt=choice.prompt,
            hotwords=choice.hotwords,
        ),
        correct=choice.correct,
    )
    recognizer = pool.transcriber(choice.model, choosing_language(options.transcribe))
    return make_session(
        pool, recognizer, options, choice.target, choice.translation_model, speakers
    )


class LiveTask:
    """Captions from start to stop.

    Args:
        pool: The shared models.
        history: Where the captions are stored.
        choice: Models and languages.
        rate: The sample rate of the browser's audio, in Hz.
        resumable: The captions wait for a page whose connection was lost.
        speakers: The names of those who are heard on a channel each; none: one channel.

    Raises:
        InputError: The sample rate is out of range.
        OptionError: The names are not two different short ones.
    """

    kind = "live"

    def __init__(
        self,
        pool: ModelPool,
        history: History,
        choice: ModelChoice,
        rate: int,
        *,
        resumable: bool = False,
        speakers: Sequence[str] = (),
    ) -> None:
        self._speakers = checked_speakers(speakers)
        self._pool, self._history, self._choice = pool, history, choice
        self.resumable = resumable
        self._source = BrowserSource(rate, max(1, len(self._speakers)))
        self._cancelled = threading.Event()
        self._lines = CaptionLines(corrects=choice.correct)
        self._began: Message | None = None
        self._language: str | None = None
        self._audience: Audience | None = None
        # Held while an event is applied and sent: a snapshot shows all of it or none.
        self._lock = threading.Lock()

    def run(self, send: Send) -> None:
        try:
            with self._pool.memory_limit.live_session(
                self._source.queue_bytes, self._source.channels, correct=self._choice.correct
            ):
                self._run(send)
        finally:
            with self._lock:
                if self._audience is not None:
                    self._audience.end_session()

    def _run(self, send: Send) -> None:
        from pipelines.asr import UpdateDecoded

        lines = self._lines
        live = make_live_setup(self._pool, self._choice, self._speakers)
        name = self._pool.name_of(live.recognizer)
        with (
            live.using(self._pool),
            self._history.recording(
                "live",
                language=live.language,
                target=self._choice.target,
                model=name,
                background=True,
            ) as journal,
        ):
            if (audience := self._audience) is not None:
                audience.refresh()
            began = {"type": "live_listening", "language": live.language, "model": name}
            with self._lock:
                self._began, self._language = began, live.language
                if self._audience is not None:
                    self._audience.begin(live.language, self._choice.target, self._lines)
                send(began)
            events = live.session.run(self._source)
            assert isinstance(events, Generator)  # so that it can be closed
            with self._ending(journal, send), closing(events):
                for event in events:
                    if self._cancelled.is_set():
                        raise TaskCancelled
                    if isinstance(event, UpdateDecoded):
                        continue
                    with self._lock:
                        messages = list(lines.update(event))
                        _store(messages, journal)
                        if any(message["type"] == "live_cue" for message in messages):
                            # What is shown as final survives a kill, unless others hold the file.
                            journal.wait_until_written(_WRITE_S)
                        if self._audience is not None:
                            self._audience.put(event)
                        for message in messages:
                            if message["type"] == "live_status":
                                message |= self._positions() | self._viewers()
                            send(message)

    @contextmanager
    def _ending(self, journal: Journal, send: Send) -> Iterator[None]:
        """A context after which the cues of all final text are complete, however it ends."""
        try:
            yield
        finally:
            with self._lock:
                messages = list(self._lines.end())
                _store(messages, journal)
                for message in messages:
                    send(message)

    def resume(self, send: Send) -> None:
        """Send all captions so far to a page that has connected again."""
        with self._lock:
            send({
                "type": "live_resumed",
                "began": self._began,
                "lines": [line_message(line) for line in self._lines.lines],
                "cues": [asdict(cue) for cue in self._lines.cues],
                "translated": [asdict(cue) for cue in self._lines.translated],
                "notes": self._lines.notes,
                **self._positions(),
            })  # fmt: skip

    def share(self, audience: Audience) -> None:
        """Show the captions to an audience, from now on. From any thread.

        It reads the disk if the session has begun.
        """
        if self._began is not None:
            audience.refresh()
        with self._lock:
            if self._audience is not audience:
                self._audience = audience
                if self._began is not None:
                    audience.begin(self._language, self._choice.target, self._lines)

    def put_audio(self, audio: bytes) -> None:
        self._source.put(audio)

    def stop(self) -> None:
        self._source.stop()

    def cancel(self) -> None:
        self._cancelled.set()
        self._source.cancel()

    def _viewers(self) -> Message:
        """The number of viewers; nothing while the captions are not shared."""
        audience = self._audience
        if audience is None or audience.ended:
            return {}
        return {"viewers": audience.viewers}

    def _positions(self) -> Message:
        """Where the page goes on sending, in samples of all channels at its rate, and how far
        recognition is."""
        return {"received": self._source.received, "taken": self._source.taken}


def _store(messages: Iterable[Message], journal: Journal) -> None:
    for message in messages:
        if message["type"] == "live_cue":
            said = message["start"], message["end"], message["text"]
            speaker = message["speaker"]
            if message["translated"]:
                journal.translate(TranslatedCue(*said, message["doubts"], speaker=speaker))
            else:
                journal.add(Cue(*said, speaker=speaker))
        elif message["type"] == "live_ended":
            journal.describe(duration_s=message["time"])
