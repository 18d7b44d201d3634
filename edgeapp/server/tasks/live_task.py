"""Live captions of a browser's microphone."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeapp.server.sessions import TaskCancelled
from edgeapp.server.tasks.browser_source import BrowserSource
from edgeapp.server.tasks.caption_lines import CaptionLines
from edgeapp.subtitles.formats import Cue
from pipelines import OptionError

if TYPE_CHECKING:
    from edgeapp.history import History, Journal
    from edgeapp.live.session import LiveSession
    from edgeapp.model_pool import ModelPool
    from edgeapp.server.picker_options import ModelChoice
    from edgeapp.server.sessions import Message, Send
    from pipelines import Transcriber, Translator

__all__ = ["LiveSetup", "LiveTask", "make_live_setup"]


@dataclass(frozen=True)
class LiveSetup:
    """A live session on shared models.

    Attributes:
        session: The session, with a state of its own.
        model_name: The name of its recognizer.
        language: The code of the spoken language, None while it is unknown.
        models: The models that it uses.
    """

    session: LiveSession
    model_name: str
    language: str | None
    models: Sequence[Transcriber | Translator]


def make_live_setup(pool: ModelPool, choice: ModelChoice) -> LiveSetup:
    """Load the models that were chosen and make a live session of them.

    Raises:
        ModelError: A model is not installed, or is for another task.
        OptionError: A target language without a source language.
    """
    from edgeapp.live.session import LiveSession
    from edgeapp.priorities import Priority
    from pipelines import (
        LiveOptions,
        LiveTranscriber,
        LiveTranslator,
        TranscribeOptions,
        TranslateOptions,
    )

    recognizer = pool.transcriber(choice.model, choice.language)
    language = choice.language if recognizer.capabilities.multilingual else "en"
    live_translator: LiveTranslator | None = None
    models: list[Transcriber | Translator] = [recognizer]
    if choice.target is not None:
        if language is None:
            raise OptionError("choose the spoken language: the translation model is selected by it")
        translator = pool.translator(choice.translation_model, language, choice.target)
        target = choice.target if translator.target_codes else None
        options = TranslateOptions(target=target, priority=Priority.LIVE_TRANSLATION)
        live_translator = LiveTranslator(translator, options)
        models.append(translator)
    live_options = LiveOptions(transcribe=TranscribeOptions(language=choice.language))
    session = LiveSession(LiveTranscriber(recognizer, live_options), live_translator)
    return LiveSetup(session, pool.name_of(recognizer), language, models)


class LiveTask:
    """Captions from start to stop.

    Args:
        pool: The shared models.
        history: Where the captions are stored.
        choice: Models and languages.
        rate: The sample rate of the browser's audio, in Hz.

    Raises:
        InputError: The sample rate is out of range.
    """

    kind = "live"

    def __init__(self, pool: ModelPool, history: History, choice: ModelChoice, rate: int) -> None:
        self._pool, self._history, self._choice = pool, history, choice
        self._source = BrowserSource(rate)
        self._cancelled = threading.Event()

    def run(self, send: Send) -> None:
        from pipelines import SpeechEnded, UpdateDecoded

        lines = CaptionLines()
        live = make_live_setup(self._pool, self._choice)
        with (
            self._pool.using(*live.models),
            self._history.recording(
                "live", language=live.language, target=self._choice.target, model=live.model_name
            ) as journal,
        ):
            send({"type": "live_listening", "language": live.language, "model": live.model_name})
            events = live.session.run(self._source)
            assert isinstance(events, Generator)  # so that it can be closed
            with closing(events):
                for event in events:
                    if self._cancelled.is_set():
                        # Committed words are stored, though their cue is not complete.
                        _store(lines.update(SpeechEnded(0.0)), journal)
                        raise TaskCancelled
                    if isinstance(event, UpdateDecoded):
                        continue
                    messages = list(lines.update(event))
                    _store(messages, journal)  # stored before it is shown
                    for message in messages:
                        send(message)

    def put_audio(self, audio: bytes) -> None:
        self._source.put(audio)

    def stop(self) -> None:
        self._source.stop()

    def cancel(self) -> None:
        self._cancelled.set()
        self._source.cancel()


def _store(messages: Iterable[Message], journal: Journal) -> None:
    for message in messages:
        if message["type"] == "live_cue":
            cue = Cue(message["start"], message["end"], message["text"])
            (journal.translate if message["translated"] else journal.add)(cue)
        elif message["type"] == "live_ended":
            journal.describe(duration_s=message["time"])
