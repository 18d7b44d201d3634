"""The recognition of one session, in a thread: audio and commands in, server events out."""

from __future__ import annotations

import queue
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeapp.english_only import HeardLanguage
from edgeapp.memory_limit import MemoryLimitReached
from edgeapp.model_pool import ModelPool
from edgeapp.priorities import Priority
from edgeapp.server.api.errors import ApiError, api_error_of
from edgeapp.server.api.openai_audio import installed_model
from edgeapp.server.api.realtime.audio_formats import AudioDecoder
from edgeapp.server.api.realtime.config import SessionConfig
from edgeapp.server.api.transcription_replies import segment_logprobs, word_logprobs
from edgeapp.server.replies import error_content
from pipelines import SAMPLE_RATE, EdgeError

if TYPE_CHECKING:
    from pipelines import LiveTranscriber, Transcriber
    from pipelines.asr import LiveEvent, Samples

__all__ = ["Append", "Clear", "Command", "Commit", "RealtimeWorker", "Update", "event_id"]

Event = dict[str, Any]
Logprob = dict[str, Any]  # of a token: token, bytes, logprob
_TRANSCRIPTION = "conversation.item.input_audio_transcription"
_MAX_BUFFER_S = 600.0  # of audio that the client has not committed
_SMALLEST_COMMIT_S = 0.1


@dataclass(frozen=True)
class Append:
    """Audio, in the format of the session."""

    audio: bytes


@dataclass(frozen=True)
class Update:
    """A new configuration."""

    config: SessionConfig


@dataclass(frozen=True)
class Commit:
    """The client ends an utterance."""


@dataclass(frozen=True)
class Clear:
    """The client discards audio that is not committed."""


Command = Append | Update | Commit | Clear


def event_id() -> str:
    """A new id of an event."""
    return f"event_{secrets.token_hex(10)}"


class RealtimeWorker:
    """Processes the commands of a session in order.

    Args:
        pool: The shared models.
        config: The first configuration.
        send: Takes an event without its id. Called in the thread of `run`.
        done: Called with each command after it was processed.
    """

    def __init__(
        self,
        pool: ModelPool,
        config: SessionConfig,
        send: Callable[[Event], None],
        done: Callable[[Command], None],
    ) -> None:
        self._pool, self._config, self._send_event, self._done = pool, config, send, done
        self._commands: queue.Queue[Command | None] = queue.Queue()
        self._decoder = AudioDecoder(config.format)
        self._live: LiveTranscriber | None = None
        self._models = ExitStack()  # the models that cannot be unloaded meanwhile
        self._buffer: list[Samples] = []  # that the client has not committed
        self._buffered = 0  # samples in it
        self._item = ""  # the id of the item that is being made
        self._previous: str | None = None
        self._texts: list[str] = []  # of the item
        self._logprobs: list[Logprob] = []  # of the item
        self._began_s = 0.0  # of the utterance
        self._heard: HeardLanguage | None = None  # by the recognizer of the configuration
        self._notes: list[str] = []  # of other languages than the given one
        self._said: set[str] = set()  # warnings, each of which is sent once
        self._cancelled = False

    def put(self, command: Command | None) -> None:
        """Append a command; None ends the session. From any thread."""
        self._commands.put(command)

    def cancel(self) -> None:
        """End the session without the work that waits. From any thread."""
        self._cancelled = True
        self._commands.put(None)

    def run(self) -> None:
        """Process commands until the end."""
        with self._models:
            while (command := self._commands.get()) is not None and not self._cancelled:
                try:
                    self._process(command)
                except Exception as error:
                    self._fail(error)
                finally:
                    self._done(command)

    def _process(self, command: Command) -> None:
        if isinstance(command, Append):
            samples = self._decoder.decode(command.audio)
            if self._config.server_vad:
                self._follow(self._live_transcriber().feed(samples))
            else:
                self._keep(samples)
        elif isinstance(command, Commit):
            self._commit()
        elif isinstance(command, Clear):
            self._forget()
            self._send({"type": "input_audio_buffer.cleared"})
        else:
            self._update(command.config)

    def _update(self, config: SessionConfig) -> None:
        if self._config.server_vad and self._live is not None:
            self._follow(self._live.finish())  # what was said before belongs to the old one
        if config.format != self._config.format:
            self._decoder = AudioDecoder(config.format)
        if config.server_vad != self._config.server_vad:
            self._forget()
        self._config, self._live, self._heard = config, None, None

    def _keep(self, samples: Samples) -> None:
        seconds = (self._buffered + len(samples)) / SAMPLE_RATE
        if seconds > (fits_s := self._pool.memory_limit.longest_sound_s):
            raise MemoryLimitReached(
                f"the buffer would hold {seconds:.0f} s, and the memory limit of this server has "
                f"room for the recognition of {fits_s:.0f} s now: commit or clear it, or try again "
                "later"
            )
        if seconds > _MAX_BUFFER_S:
            raise ApiError(
                400,
                f"the buffer holds {_MAX_BUFFER_S:g} s, which is the limit: commit or clear it",
                code="input_audio_buffer_full",
            )
        self._buffer.append(samples)
        self._buffered += len(samples)

    def _commit(self) -> None:
        from pipelines.asr import SpeechEnded

        if self._config.server_vad:
            live = self._live_transcriber()
            events = [*live.feed(self._decoder.finish()), *live.finish()]
            self._follow(events)
            if not any(isinstance(event, SpeechEnded) for event in events):
                raise ApiError(
                    400, "there is no speech to commit", code="input_audio_buffer_commit_empty"
                )
            return
        self._keep(self._decoder.finish())
        samples = np.concatenate([np.zeros(0, np.float32), *self._buffer])
        self._forget()
        if len(samples) < _SMALLEST_COMMIT_S * SAMPLE_RATE:
            raise ApiError(
                400,
                f"the buffer holds {1000 * len(samples) / SAMPLE_RATE:.0f} ms; at least "
                f"{1000 * _SMALLEST_COMMIT_S:.0f} ms are needed",
                code="input_audio_buffer_commit_empty",
            )
        self._begin_item()
        self._committed()
        self._recognize(samples)

    def _recognize(self, samples: Samples) -> None:
        """Transcribe an utterance that the client has committed."""
        from pipelines import SegmentDone, TranscribeOptions, TranscriptionInfo

        language = None
        transcriber = self._transcriber()
        options = TranscribeOptions(
            language=self._config.language,
            initial_prompt=self._config.prompt,
            # Models that cannot tell the times of words cannot tell these either.
            token_logprobs=self._config.logprobs and transcriber.capabilities.word_timestamps,
            priority=Priority.LIVE_RECOGNITION,
        )
        stream = transcriber.stream(samples, options)
        try:
            for event in stream:
                if self._cancelled:
                    return
                if isinstance(event, TranscriptionInfo):
                    language = event.language
                elif isinstance(event, SegmentDone):
                    segment = event.segment
                    if self._heard is not None:
                        self._heard.add_segments([segment])
                    begins = not self._texts
                    logprobs = segment_logprobs([segment], begins_text=begins)
                    self._delta(segment.text, logprobs)
        finally:
            stream.close()
        self._completed(len(samples) / SAMPLE_RATE, language)

    def _follow(self, events: list[LiveEvent]) -> None:
        """Send what live recognition says."""
        from edgeapp.live.speech_channel import other_language_message
        from pipelines import CommittedText
        from pipelines.asr import OtherLanguage, SpeechEnded, SpeechStarted

        for event in events:
            if isinstance(event, SpeechStarted):
                self._begin_item()
                self._began_s = event.time
                self._send({
                    "type": "input_audio_buffer.speech_started",
                    "audio_start_ms": round(1000 * event.time),
                    "item_id": self._item,
                })  # fmt: skip
            elif isinstance(event, CommittedText):
                if self._heard is not None:
                    self._heard.add_words(event.words)
                begins = not self._texts
                self._delta(event.text, word_logprobs(event.words, begins_text=begins))
            elif isinstance(event, OtherLanguage):
                self._notes.append(other_language_message(event))
            elif isinstance(event, SpeechEnded):
                self._send({
                    "type": "input_audio_buffer.speech_stopped",
                    "audio_end_ms": round(1000 * event.time),
                    "item_id": self._item,
                })  # fmt: skip
                self._committed()
                language = None if self._live is None else self._live.language
                self._completed(event.time - self._began_s, language)

    def _begin_item(self) -> None:
        self._item, self._texts, self._logprobs = f"item_{secrets.token_hex(10)}", [], []

    def _committed(self) -> None:
        self._send({
            "type": "input_audio_buffer.committed",
            "previous_item_id": self._previous,
            "item_id": self._item,
        })  # fmt: skip
        content = {"type": "input_audio", "transcript": None}
        self._send({
            "type": f"conversation.item.{'created' if self._config.beta else 'added'}",
            "previous_item_id": self._previous,
            "item": {
                "id": self._item, "object": "realtime.item", "type": "message", "role": "user",
                "status": "completed", "content": [content],
            },
        })  # fmt: skip
        self._previous = self._item

    def _delta(self, text: str, logprobs: list[Logprob]) -> None:
        delta = text if self._texts else text.lstrip()
        if delta:
            self._texts.append(delta)
            self._logprobs += logprobs
            self._send(self._of_item("delta", delta=delta, **self._included(logprobs)))

    def _included(self, logprobs: list[Logprob]) -> Event:
        """The field for the client that has asked for log-probabilities; null: there are none."""
        return {"logprobs": logprobs or None} if self._config.logprobs else {}

    def _warnings(self) -> Event:
        """Our own field, which clients ignore that do not know it: what has to be said now."""
        of_model = [self._heard.first_note, self._heard.note] if self._heard is not None else []
        notes = dict.fromkeys([*of_model, *self._notes])
        self._notes = []
        new = [note for note in notes if note is not None and note not in self._said]
        self._said.update(new)
        return {"warnings": new} if new else {}

    def _completed(self, seconds: float, language: str | None) -> None:
        transcript = "".join(self._texts).strip()
        usage = {"type": "duration", "seconds": ceil(max(0.0, seconds))}
        included = self._included(self._logprobs) | self._warnings()
        self._send(self._of_item("completed", transcript=transcript, usage=usage, **included))
        item, self._item = self._item, ""
        target = self._config.translate_to
        if target is not None and transcript:
            self._translate(item, transcript, self._config.language or language or "en", target)

    def _translate(self, item: str, text: str, source: str, target: str) -> None:
        """Our own event: the translation of an utterance."""
        from pipelines import TranslateOptions

        translated = text
        if source != target:
            translator = self._pool.translator(None, source, target)
            options = TranslateOptions(
                target=target if translator.target_codes else None,
                source_language=source,
                priority=Priority.LIVE_TRANSLATION,
            )
            with self._pool.using(translator):
                translated = translator.translate(text, options).text
        self._send({
            "type": "edgeapp.translation.completed",
            "item_id": item,
            "language": target,
            "text": translated.strip(),
        })  # fmt: skip

    def _fail(self, error: BaseException) -> None:
        """Send an error: of the item that is being transcribed, else of the session."""
        refusal = api_error_of(error)
        fields = error_content(
            "/v1/realtime", refusal.status, refusal.message, code=refusal.code, param=refusal.param
        )
        if self._item and isinstance(error, EdgeError):
            self._send(self._of_item("failed", **fields))
            self._item = ""
        else:
            self._send({"type": "error", **fields})

    def _of_item(self, kind: str, **fields: Any) -> Event:
        return {
            "type": f"{_TRANSCRIPTION}.{kind}", "item_id": self._item, "content_index": 0, **fields
        }  # fmt: skip

    def _send(self, event: Event) -> None:
        self._send_event({"event_id": event_id(), **event})

    def _forget(self) -> None:
        self._buffer, self._buffered, self._live, self._item = [], 0, None, ""

    def _transcriber(self) -> Transcriber:
        model = installed_model(self._config.model, "asr")
        name = None if model is None else model.name
        transcriber = self._pool.transcriber(name, self._config.language)
        self._models.close()
        self._models.enter_context(self._pool.using(transcriber))
        self._heard = self._heard or HeardLanguage(transcriber, self._config.language)
        return transcriber

    def _live_transcriber(self) -> LiveTranscriber:
        if self._live is None:
            from pipelines import LiveOptions, LiveTranscriber, TranscribeOptions, VadOptions

            config = self._config
            options = LiveOptions(
                transcribe=TranscribeOptions(
                    language=config.language, initial_prompt=config.prompt
                ),
                vad=VadOptions(
                    threshold=config.threshold,
                    speech_pad_ms=config.prefix_padding_ms,
                    min_silence_duration_ms=config.silence_duration_ms,
                    long_pause_ms=0,  # each silence ends an item
                ),
                priority=Priority.LIVE_RECOGNITION,
            )
            self._live = LiveTranscriber(self._transcriber(), options)
        return self._live
