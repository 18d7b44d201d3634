"""A recording → its language, duration and segments, as a generator for a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgeapp.english_only import english_only_note, other_language_note
from edgeapp.model_pool import ModelPool
from edgeapp.priorities import Priority
from edgeapp.server.api.metrics import Metrics
from edgeapp.server.api.transcription_request import TranscriptionRequest
from edgeapp.server.recordings import load_recording

if TYPE_CHECKING:
    from pipelines import Segment, Transcriber

__all__ = ["Recognition", "RecognitionStarted"]


@dataclass(frozen=True)
class RecognitionStarted:
    """The first item of a recognition.

    Attributes:
        language: Code of the spoken language.
        duration: Of the recording, in seconds.
        model: Name of the model that recognizes it.
        warnings: Messages about the recording, complete after the last segment.
    """

    language: str
    duration: float
    model: str
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Recognition:
    """One recording to be recognized.

    Attributes:
        pool: The shared models.
        metrics: Where it is counted.
        request: What the client asks for.
        model: Name of an installed model; None: the best.
        task: "transcribe", or "translate" into English.
        path: The recording.
        name: Its name, for messages.
        max_duration_s: The longest recording that is accepted.
    """

    pool: ModelPool
    metrics: Metrics
    request: TranscriptionRequest
    model: str | None
    task: Literal["transcribe", "translate"]
    path: Path
    name: str
    max_duration_s: float

    def run(
        self, cancelled: Callable[[], bool]
    ) -> Generator[RecognitionStarted | Segment, None, None]:
        """Recognize it.

        A model that does not translate transcribes; a translation model makes it English.

        Args:
            cancelled: Whether the work is to end.

        Yields:
            RecognitionStarted, then the segments that have text.

        Raises:
            EdgeError: The recording cannot be decoded or recognized.
        """
        from pipelines import SegmentDone, TranscriptionInfo
        from pipelines.asr import DecodingCancelled, LeftOut

        warnings: list[str] = []

        def warned(message: str, category: type[Warning]) -> None:
            warnings.append(message)

        try:
            samples = load_recording(
                self.path,
                self.name,
                limit=self.pool.memory_limit,
                max_duration_s=self.max_duration_s,
                cancelled=cancelled,
                warned=warned,
                keep_unlike=True,
            )
        except DecodingCancelled:
            return
        began, tokens, heard = time.monotonic(), 0, False
        duration = len(samples) / 16_000
        transcriber, task = self._transcriber()
        if note := english_only_note(transcriber, self.request.language):
            warnings.append(note)
        segments: list[Segment] = []
        translate: Callable[[Segment], Segment] | None = None
        with ExitStack() as stack:
            stack.enter_context(self.pool.using(transcriber))
            times_words = transcriber.capabilities.word_timestamps
            options = self.request.options(task, Priority.BATCH, times_words=times_words)
            events = transcriber.stream(samples, options)
            stack.callback(events.close)
            for event in events:
                if cancelled():
                    return
                if isinstance(event, TranscriptionInfo):
                    if self.task == "translate" and task == "transcribe" and event.language != "en":
                        translate = self._into_english(event.language, stack)
                    yield RecognitionStarted(
                        event.language, duration, self.pool.name_of(transcriber), warnings
                    )
                elif isinstance(event, SegmentDone):
                    tokens += len(event.segment.tokens)
                    segments.append(event.segment)
                    if event.segment.text.strip():
                        heard = True
                        yield translate(event.segment) if translate else event.segment
                elif isinstance(event, LeftOut) and heard:
                    warnings.append(event.message)
        if not heard:
            warnings.append("no speech was found")
        if note := other_language_note(transcriber, self.request.language, segments):
            warnings.append(note)
        self.metrics.count_recognition(duration, time.monotonic() - began, tokens)

    def _transcriber(self) -> tuple[Transcriber, Literal["transcribe", "translate"]]:
        """The recognizer, and what it does."""
        from pipelines import ModelNotFound

        language = self.request.language
        if self.task == "translate":
            try:
                transcriber = self.pool.transcriber(self.model, language, "translate")
            except ModelNotFound:
                if self.model is not None:
                    raise
            else:
                if transcriber.capabilities.translates:
                    return transcriber, "translate"
        return self.pool.transcriber(self.model, language), "transcribe"

    def _into_english(self, language: str, stack: ExitStack) -> Callable[[Segment], Segment]:
        """A function that translates a segment. Times and probabilities stay the recognition's."""
        from pipelines import TranslateOptions

        translator = self.pool.translator(None, language, "en")
        stack.enter_context(self.pool.using(translator))
        options = TranslateOptions(
            target="en" if translator.target_codes else None,
            source_language=language if translator.source_codes else None,
            priority=Priority.BATCH,
        )

        def translate(segment: Segment) -> Segment:
            translation = translator.translate(segment.text.strip(), options)
            self.metrics.count_translation(sum(len(s.tokens) for s in translation.sentences))
            return replace(segment, text=f" {translation.text.strip()}", tokens=(), words=())

        return translate
