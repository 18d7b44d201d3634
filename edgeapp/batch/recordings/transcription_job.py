"""A recording → segments and translated cues, reported to a view as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from edgeapp.batch.journal.pieces import TranscriptPiece
from edgeapp.batch.recordings.sentence_translation import SentenceTranslation
from edgeapp.english_only import other_language_note
from edgeapp.subtitles.segmenter import SentenceJoiner
from pipelines.subtitles import Cue, Transcript

if TYPE_CHECKING:
    from edgeapp.batch.recordings.sound_prefetch import SoundStream
    from pipelines import (
        Segment,
        TranscribeOptions,
        Transcriber,
        TranscriptionInfo,
        TranslateOptions,
        Translation,
        Translator,
    )
    from pipelines.asr import AudioSource, Checkpoint

__all__ = ["TranscriptionJob", "ProgressView"]


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

    def translated(self, cue: Cue, translation: Translation | None) -> None:
        """A final translated cue, and its translation; None if an earlier run made it."""

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
        pieces: What an earlier run has finished; the work goes on after it.
        keep: Called with what is finished, wherever a later run can go on.
        warnings: About the recording, where its sound was decoded before.
        sound: The recording, where its sound is decoded meanwhile: its length and the warnings
            about it are known at the end.
        overlap: Translate sentences while the next ones are recognized, not live.
        language: Spoken language; "" until it is known.
        duration: Seconds of audio; None until it is known.
        tokens: Number of decoded tokens, recognition and translation together.
    """

    transcriber: Transcriber
    options: TranscribeOptions
    translator_for: Callable[[str], Translator] | None = None
    target: str | None = None
    pieces: Sequence[TranscriptPiece] = ()
    keep: Callable[[TranscriptPiece], None] | None = None
    warnings: Sequence[str] = ()
    sound: SoundStream | None = None
    overlap: bool = False
    language: str = ""
    duration: float | None = None
    tokens: int = 0
    _segments: list[Segment] = field(default_factory=list)
    _cues: list[Cue] = field(default_factory=list)
    _joiner: SentenceJoiner = field(default_factory=SentenceJoiner)
    _earlier: deque[Cue] = field(default_factory=deque)  # translated by an earlier run
    _emit: Callable[[Cue], None] | None = None  # translates complete sentences
    _behind: SentenceTranslation | None = None  # translates them in a thread
    _kept: tuple[int, int] = (0, 0)  # segments and cues in pieces

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
        with ExitStack() as stack:
            return self._run(audio, view, stack)

    def _run(self, audio: AudioSource, view: ProgressView, stack: ExitStack) -> Transcript:
        from pipelines import SegmentDone, TextDelta, TranscriptionInfo
        from pipelines.asr import Checkpoint, LeftOut, Retract
        from pipelines.notices import collect_notices

        checkpoint = self.pieces[-1].checkpoint if self.pieces else None
        left_out: LeftOut | None = None
        with collect_notices():  # TranscriptionInfo holds these warnings too
            events = self.transcriber.stream(
                audio, self.options, resume_from=checkpoint, checkpoints=self.keep is not None
            )
        for event in events:
            if isinstance(event, TranscriptionInfo):
                if self.sound is not None:
                    event = replace(event, duration=self.sound.duration_s)
                self.language, self.duration = event.language, event.duration
                view.started(event)
                for warning in (*self.warnings, *event.warnings):
                    view.warned(warning)
                if self.translator_for is not None:
                    # Loaded before anything is decoded: a missing model must not waste the work.
                    spoken = "en" if self.options.task == "translate" else event.language
                    if spoken == self.target:  # one of several recordings may be in the target
                        self._emit = partial(self._keep, view)
                    else:
                        self._begin_translation(self.translator_for(spoken), view, stack)
                self._replay(view)
            elif isinstance(event, TextDelta):
                view.text_delta(event.text)
            elif isinstance(event, Retract):
                view.text_retracted()
            elif isinstance(event, SegmentDone):
                self.tokens += len(event.segment.tokens)
                self._add(event.segment, view)
            elif isinstance(event, Checkpoint):
                checkpoint = event
                self._take_translations(view)
                self._keep_piece(checkpoint)
            elif isinstance(event, LeftOut):
                left_out = event
        if self.sound is not None:
            self.duration = self.sound.duration_s
            for warning in self.sound.warnings:
                view.warned(warning)
        if self._emit is not None:
            for source in self._joiner.flush():
                self._put(source, view)
        self._take_translations(view, all=True)
        heard = any(segment.text.strip() for segment in self._segments)
        if left_out is not None or not heard:
            message = left_out.message if heard and left_out else "no speech was found"
            if self.options.in_chunks:
                message += "; with a batch size of 1 no part is left out as silence"
            view.warned(message)
        given = self.options.language
        if note := other_language_note(self.transcriber, given, self._segments):
            view.warned(note)
        if checkpoint is not None:
            self._keep_piece(checkpoint)  # the last cues
        return self.transcript

    def _replay(self, view: ProgressView) -> None:
        """What an earlier run has finished."""
        self._earlier.extend(cue for piece in self.pieces for cue in piece.cues)
        for piece in self.pieces:
            for segment in piece.segments:
                self._add(segment, view)
        self._kept = (len(self._segments), len(self._cues))

    def _add(self, segment: Segment, view: ProgressView) -> None:
        self._segments.append(segment)
        view.segment(segment)
        if self._emit is not None:
            for source in self._joiner.add(segment):
                self._put(source, view)

    def _put(self, source: Cue, view: ProgressView) -> None:
        """Translate a cue, unless an earlier run has."""
        assert self._emit is not None, "there is a target language"
        if self._earlier:
            self._cues.append(self._earlier.popleft())
            view.translated(self._cues[-1], None)
        else:
            self._emit(source)

    def _keep_piece(self, checkpoint: Checkpoint) -> None:
        segments, cues = self._kept
        if self.keep is not None and (segments, cues) != (len(self._segments), len(self._cues)):
            piece = TranscriptPiece(
                tuple(self._segments[segments:]), tuple(self._cues[cues:]), checkpoint
            )
            self.keep(piece)
            self._kept = (len(self._segments), len(self._cues))

    def _keep(self, view: ProgressView, cue: Cue) -> None:
        self._cues.append(cue)
        view.untranslated(cue)

    def _begin_translation(
        self, translator: Translator, view: ProgressView, stack: ExitStack
    ) -> None:
        from edgeapp.priorities import Priority
        from pipelines import TranslateOptions

        options = TranslateOptions(
            target=self.target if translator.target_codes else None, priority=Priority.INTERACTIVE
        )
        if self.overlap:
            self._behind = stack.enter_context(SentenceTranslation(translator, options))
            self._emit = self._behind.add
        else:
            self._emit = partial(self._translate, translator, options, view)

    def _translate(
        self, translator: Translator, options: TranslateOptions, view: ProgressView, source: Cue
    ) -> None:
        """Translate one cue, live."""
        from pipelines import TranslationDelta, TranslationDone

        for event in translator.stream(source.text, options):
            if isinstance(event, TranslationDelta):
                view.translating(event.text)
            elif isinstance(event, TranslationDone):
                self._add_cue(source, event.translation, view)

    def _take_translations(self, view: ProgressView, *, all: bool = False) -> None:
        """Take the translations that the thread has finished."""
        if self._behind is not None:
            for source, translation in self._behind.finished(all=all):
                self._add_cue(source, translation, view)

    def _add_cue(self, source: Cue, translation: Translation, view: ProgressView) -> None:
        """Add a translated cue; it keeps its times."""
        self.tokens += sum(len(sentence.tokens) for sentence in translation.sentences)
        for warning in translation.warnings:
            view.warned(warning)
        cue = Cue(source.start, source.end, translation.text.strip())
        self._cues.append(cue)
        view.translated(cue, translation)
