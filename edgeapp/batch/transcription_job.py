"""A recording → segments and translated cues, reported to a view as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from edgeapp.subtitles.formats import Cue, Transcript
from edgeapp.subtitles.segmenter import SentenceJoiner

if TYPE_CHECKING:
    from pipelines import (
        AudioSource,
        Segment,
        TranscribeOptions,
        Transcriber,
        TranscriptionInfo,
        Translator,
    )

__all__ = ["BATCH_SIZE", "TranscriptionJob", "ProgressView"]

BATCH_SIZE = 8  # segments of a recording decoded in parallel, by default


class ProgressView(Protocol):
    """Receives the progress of a TranscriptionJob."""

    def started(self, info: TranscriptionInfo) -> None:
        """The language and the duration are known; called once, first."""

    def text_delta(self, text: str) -> None:
        """Provisional text to append; the next segment replaces it."""

    def text_retracted(self) -> None:
        """The provisional text is withdrawn: its window is decoded again, or is silent."""

    def segment(self, segment: Segment) -> None:
        """A final segment."""

    def translating(self, text: str) -> None:
        """Provisional text of a translation to append; the next cue replaces it."""

    def translated(self, cue: Cue) -> None:
        """A final translated cue."""

    def untranslated(self, cue: Cue) -> None:
        """A final cue that needs no translation: it is in the target language already."""

    def warned(self, message: str) -> None:
        """A warning about the recording or a translation."""


@dataclass
class TranscriptionJob:
    """One recording. Results so far are available at any time, after an error or Ctrl-C too.

    Attributes:
        transcriber: The speech recognition model.
        options: How to transcribe.
        translator_for: Loads the translator for a spoken language; None translates nothing.
        target: Language to translate into, or None.
        language: Spoken language; "" until it is known.
        duration: Seconds of audio; None until it is known.
        tokens: Number of decoded tokens, recognition and translation together.
    """

    transcriber: Transcriber
    options: TranscribeOptions
    translator_for: Callable[[str], Translator] | None = None
    target: str | None = None
    language: str = ""
    duration: float | None = None
    tokens: int = 0
    _segments: list[Segment] = field(default_factory=list)
    _cues: list[Cue] = field(default_factory=list)

    @property
    def transcript(self) -> Transcript:
        """The results so far."""
        target = self.target if self.translator_for is not None else None
        return Transcript(self.language, tuple(self._segments), tuple(self._cues), target)

    def run(self, audio: AudioSource, view: ProgressView) -> Transcript:
        """Transcribe a recording, and translate it sentence by sentence.

        Args:
            audio: A path, a binary file or samples.
            view: Receives the progress.

        Raises:
            EdgeError: As Transcriber.stream, `translator_for` and Translator.stream.
        """
        from pipelines import (
            Retract,
            SegmentDone,
            TextDelta,
            TranscriptionInfo,
            collect_notices,
        )

        joiner = SentenceJoiner()
        emit: Callable[[Cue], None] | None = None  # translates complete sentences
        with collect_notices():  # TranscriptionInfo holds these warnings too
            events = self.transcriber.stream(audio, self.options)
        for event in events:
            if isinstance(event, TranscriptionInfo):
                self.language, self.duration = event.language, event.duration
                view.started(event)
                for warning in event.warnings:
                    view.warned(warning)
                if self.translator_for is not None:
                    # Loaded before anything is decoded: a missing model must not waste the work.
                    spoken = "en" if self.options.task == "translate" else event.language
                    if spoken == self.target:  # one of several recordings may be in the target
                        emit = partial(self._keep, view)
                    else:
                        emit = partial(self._translate, self.translator_for(spoken), view)
            elif isinstance(event, TextDelta):
                view.text_delta(event.text)
            elif isinstance(event, Retract):
                view.text_retracted()
            elif isinstance(event, SegmentDone):
                self._segments.append(event.segment)
                self.tokens += len(event.segment.tokens)
                view.segment(event.segment)
                if emit is not None:
                    for source in joiner.add(event.segment):
                        emit(source)
        if emit is not None:
            for source in joiner.flush():
                emit(source)
        return self.transcript

    def _keep(self, view: ProgressView, cue: Cue) -> None:
        self._cues.append(cue)
        view.untranslated(cue)

    def _translate(self, translator: Translator, view: ProgressView, source: Cue) -> None:
        """Translate one cue; it keeps its times."""
        from edgeapp.priorities import Priority
        from pipelines import TranslateOptions, TranslationDelta, TranslationDone

        options = TranslateOptions(
            target=self.target if translator.target_codes else None, priority=Priority.INTERACTIVE
        )
        for event in translator.stream(source.text, options):
            if isinstance(event, TranslationDelta):
                view.translating(event.text)
            elif isinstance(event, TranslationDone):
                translation = event.translation
                self.tokens += sum(len(sentence.tokens) for sentence in translation.sentences)
                for warning in translation.warnings:
                    view.warned(warning)
                cue = Cue(source.start, source.end, translation.text.strip())
                self._cues.append(cue)
                view.translated(cue)
