"""One channel of a live session: what is heard on it, as recognition and translation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from edgeapp.live.doubts import doubtful_words
from edgeapp.live.events import (
    SpeechEvent,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
)
from edgeapp.subtitles.formats import Cue
from pipelines import (
    SAMPLE_RATE,
    CommittedText,
    LiveEvent,
    LiveTranscriber,
    LiveTranslator,
    PartialText,
    Samples,
    SpeechEnded,
)

__all__ = ["SpeechChannel"]


class SpeechChannel:
    """Recognizes and translates one channel.

    Args:
        recognizer: of this channel only.
        translator: of this channel only; None: no translation.
        speaker: the name of who is heard on it; "" if the session has one channel.

    Attributes:
        recognizer: see above.
        speaker: see above.
    """

    def __init__(
        self,
        recognizer: LiveTranscriber,
        translator: LiveTranslator | None = None,
        speaker: str = "",
    ) -> None:
        self.recognizer, self.speaker = recognizer, speaker
        self._translator = translator
        self._samples = 0  # fed to recognition
        self._sentences: deque[str] = deque()  # complete, not translated yet
        # Committed text that belongs to no translated sentence yet.
        self._untimed: deque[Cue] = deque()
        self._partial_text = ""
        self._translated_partial = ""  # source of the latest TranslationPartial

    def feed(self, audio: Samples) -> list[LiveEvent]:
        """Recognize audio [n]."""
        self._samples += len(audio)
        return self._noted(self.recognizer.feed(audio))

    def finish(self) -> list[LiveEvent]:
        """End the audio, and commit all text."""
        return self._noted(self.recognizer.finish())

    def skip(self, samples: int) -> list[LiveEvent]:
        """End what is being said, and commit all text; the next audio follows after a gap."""
        self._samples += samples
        return self._noted(self.recognizer.skip(samples))

    def translate(self, is_behind: Callable[[], bool], *, ended: bool) -> Iterator[SpeechEvent]:
        """Translate complete sentences, then the running one.

        Args:
            is_behind: whether recognition needs the time; the rest is translated later.
            ended: the audio has ended; only complete sentences are translated.
        """
        if self._translator is None:
            return
        while self._sentences and not is_behind():
            sentence = self._sentences.popleft()
            translation = self._translator.final(sentence)
            for warning in translation.warnings:
                yield WarningRaised(warning)
            start, end = self._pop_times(sentence)
            doubts = doubtful_words(translation.text, translation.words)
            yield TranslationFinal(translation.text, start, end, sentence, doubts)
            self._translated_partial = ""
        if ended or self._sentences or is_behind():
            return
        running = (self._translator.running + self._partial_text).strip()
        if running and running != self._translated_partial:
            self._translated_partial = running
            partial = self._translator.partial(self._partial_text)
            if partial is not None:
                yield TranslationPartial(partial.text)

    def _noted(self, events: list[LiveEvent]) -> list[LiveEvent]:
        """The events, of which translation has taken note."""
        for event in events:
            if isinstance(event, PartialText):
                self._partial_text = event.text
            if self._translator is None:
                continue
            if isinstance(event, CommittedText):
                self._untimed.append(Cue(event.start, event.end, event.text))
                self._sentences.extend(self._translator.add(event.text))
            elif isinstance(event, SpeechEnded):
                self._sentences.extend(self._translator.finish())
        return events

    def _pop_times(self, sentence: str) -> tuple[float, float]:
        """Start and end of a sentence (s), from the committed texts that it consists of.

        Characters are counted without white space. Within a committed text, time is divided in
        proportion to them.
        """
        left = len("".join(sentence.split()))
        start = end = self._untimed[0].start if self._untimed else self._samples / SAMPLE_RATE
        while left > 0 and self._untimed:
            cue = self._untimed.popleft()
            size = len("".join(cue.text.split()))
            end = cue.end
            if size > left:
                cut = cue.start + (cue.end - cue.start) * left / size
                rest = "".join(cue.text.split())[left:]
                self._untimed.appendleft(Cue(cut, cue.end, rest))
                end = cut
            left -= size
        return start, end

    def end_translation(self) -> None:
        """Translate nothing more."""
        self._translator = None
        self._sentences.clear()
        self._untimed.clear()
