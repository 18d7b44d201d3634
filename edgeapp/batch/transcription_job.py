"""A recording → segments → translated passages, told to a view as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from edgeapp.subtitles.formats import Cue, Transcript
from edgeapp.subtitles.sentences import SentenceJoiner

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

BATCH_SIZE = 8  # pieces of a recording at once, where nothing else is asked for


class ProgressView(Protocol):
    """What is told while a recording is worked on."""

    def started(self, info: TranscriptionInfo) -> None: ...
    def heard(self, text: str) -> None: ...
    def retracted(self) -> None: ...
    def segment(self, segment: Segment) -> None: ...
    def translating(self, text: str) -> None: ...
    def translated(self, cue: Cue) -> None: ...
    def warned(self, message: str) -> None: ...


@dataclass
class TranscriptionJob:
    """One recording on its way; what is done so far can be had at any time, after Ctrl-C too.

    translator_for: from the spoken language to whoever translates it, or None for none wanted.
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
        target = self.target if self.translator_for is not None else None
        return Transcript(self.language, tuple(self._segments), tuple(self._cues), target)

    def run(self, audio: AudioSource, view: ProgressView) -> Transcript:
        """Work through a recording. Raises whatever the transcriber and the translator raise."""
        from pipelines import (
            Retract,
            SegmentDone,
            TextDelta,
            TranscriptionInfo,
            collect_notices,
        )

        passages, follow = SentenceJoiner(), None  # what is done with each passage
        with collect_notices():  # Info has them, too
            events = self.transcriber.stream(audio, self.options)
        for event in events:
            if isinstance(event, TranscriptionInfo):
                self.language, self.duration = event.language, event.duration
                view.started(event)
                for warning in event.warnings:
                    view.warned(warning)
                if self.translator_for is not None:
                    # Loaded before the first word: a missing model must not cost the work.
                    spoken = "en" if self.options.task == "translate" else event.language
                    if spoken == self.target:  # one of many may be in that language already
                        follow = self._cues.append
                    else:
                        follow = partial(self._translate, self.translator_for(spoken), view)
            elif isinstance(event, TextDelta):
                view.heard(event.text)
            elif isinstance(event, Retract):
                view.retracted()
            elif isinstance(event, SegmentDone):
                self._segments.append(event.segment)
                self.tokens += len(event.segment.tokens)
                view.segment(event.segment)
                if follow is not None:
                    for passage in passages.add(event.segment):
                        follow(passage)
        if follow is not None:
            for passage in passages.flush():
                follow(passage)
        return self.transcript

    def _translate(self, translator: Translator, view: ProgressView, passage: Cue) -> None:
        from pipelines import TranslateOptions, TranslationDelta, TranslationDone
        from pipelines.engine import Priority

        several = bool(translator.target_codes)
        options = TranslateOptions(
            target=self.target if several else None, priority=Priority.INTERACTIVE
        )
        for event in translator.stream(passage.text, options):
            if isinstance(event, TranslationDelta):
                view.translating(event.text)
            elif isinstance(event, TranslationDone):
                done = event.translation
                self.tokens += sum(len(sentence.tokens) for sentence in done.sentences)
                for warning in done.warnings:
                    view.warned(warning)
                cue = Cue(passage.start, passage.end, done.text.strip())
                self._cues.append(cue)
                view.translated(cue)
