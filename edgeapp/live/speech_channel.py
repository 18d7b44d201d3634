"""One channel of a live session: what is heard on it, as recognition and translation."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from edgeapp.live.corrections import Corrections, SettledEvents
from edgeapp.live.doubts import doubtful_words
from edgeapp.live.events import (
    SpeechEvent,
    TranslationFinal,
    TranslationPartial,
    WarningRaised,
)
from edgeapp.live.pair_translators import PairTranslators, missing_pair_message
from pipelines import (
    LANGUAGES,
    SAMPLE_RATE,
    CommittedText,
    EdgeError,
    LiveTranscriber,
    LiveTranslator,
    PartialText,
)
from pipelines.asr import (
    CorrectionDue,
    LiveEvent,
    OtherLanguage,
    Samples,
    SpeechEnded,
    UpdateDecoded,
)
from pipelines.subtitles import Cue

__all__ = ["SpeechChannel", "other_language_message"]

_OVERDUE_S = 3.0  # a sentence that has waited so long is translated before more is recognized


class SpeechChannel:
    """Recognizes and translates one channel.

    Args:
        recognizer: of this channel only.
        translator: of this channel only; None: no translation, unless there are `pairs`.
        speaker: the name of who is heard on it; "" if the session has one channel.
        pairs: translators of the languages that are detected, which channels may share.
        clock: seconds; replaceable for tests.

    Attributes:
        recognizer: see above.
        speaker: see above.
    """

    def __init__(
        self,
        recognizer: LiveTranscriber,
        translator: LiveTranslator | None = None,
        speaker: str = "",
        pairs: PairTranslators | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recognizer, self.speaker = recognizer, speaker
        self._clock = clock
        self._pairs = pairs
        self._language: str | None = None  # that was detected, of the translator
        self._translator = translator
        # By language, of those that were detected; None: there is none.
        self._translators: dict[str, LiveTranslator | None] = {}
        self._warnings: deque[str] = deque()
        self._samples = 0  # fed to recognition
        self._corrections = Corrections(recognizer, clock)
        # Translation gets text when it is corrected.
        self._settled = SettledEvents(corrects=recognizer.corrects)
        # No translator has it yet; each with the time at which it was heard.
        self._said: deque[tuple[CommittedText | SpeechEnded, float]] = deque()
        # Complete, not translated yet; each with its translator, and the time of its end.
        self._sentences: deque[tuple[str, LiveTranslator, float]] = deque()
        # Committed text that belongs to no translated sentence yet.
        self._untimed: deque[Cue] = deque()
        self._partial = PartialText("")
        self._translated_partial = ""  # source of the latest running translation
        self._shown = ""  # of it

    def feed(self, audio: Samples) -> list[SpeechEvent | UpdateDecoded]:
        """Recognize audio [n]."""
        self._samples += len(audio)
        return self._noted(self.recognizer.feed(audio))

    def finish(self) -> list[SpeechEvent | UpdateDecoded]:
        """End the audio, and commit all text."""
        return self._noted(self.recognizer.finish())

    def skip(self, samples: int) -> list[SpeechEvent | UpdateDecoded]:
        """End what is being said, and commit all text; the next audio follows after a gap."""
        self._samples += samples
        self._corrections.skip(samples / SAMPLE_RATE)
        return self._noted(self.recognizer.skip(samples))

    def correct(
        self, *, may_wait: bool, paused: bool = False, ended: bool = False
    ) -> Iterator[SpeechEvent]:
        """Yield the corrections that have been made; see `Corrections.take`."""
        heard_s = self._samples / SAMPLE_RATE
        take = self._corrections.take
        for event in take(heard_s, may_wait=may_wait, paused=paused, ended=ended):
            self._settle(event)
            yield event

    def close(self) -> None:
        """End what is being corrected."""
        self._corrections.close()

    def translate(
        self, is_behind: Callable[[], bool], *, ended: bool, wait: bool = False
    ) -> Iterator[SpeechEvent]:
        """Translate complete sentences, then the running one.

        Args:
            is_behind: whether recognition needs the time; then one sentence at most is translated,
                if it has waited for three seconds, and the rest later.
            ended: the audio has ended; only complete sentences are translated.
            wait: until the translators are opened; without it, their text is translated later.
        """
        self._pass_on(wait=wait)
        while self._warnings:
            yield WarningRaised(self._warnings.popleft())
        may_delay = True
        while self._sentences:
            sentence, translator, complete_s = self._sentences[0]
            if is_behind():
                if not may_delay or self._clock() - complete_s < _OVERDUE_S:
                    return
                may_delay = False
            self._sentences.popleft()
            translation = translator.final(sentence)
            for warning in translation.warnings:
                yield WarningRaised(warning)
            start, end = self._pop_times(sentence)
            doubts = doubtful_words(translation.text, translation.words)
            yield TranslationFinal(translation.text, start, end, sentence, doubts)
            self._translated_partial = self._shown = ""
        if ended or self._said or is_behind():
            return
        unsettled, tail = self._settled.open_text(end="\n"), self._partial.text
        running_translator = self._running_translator(unsettled)
        if running_translator is None:
            return
        running = (running_translator.running_after(unsettled) + tail).strip()
        if running and running != self._translated_partial:
            self._translated_partial = running
            partial = running_translator.partial(tail, unsettled)
            if partial is not None and partial.text != self._shown:
                self._shown = partial.text
                yield TranslationPartial(partial.text)

    def _noted(self, events: list[LiveEvent]) -> list[SpeechEvent | UpdateDecoded]:
        """The events, of which translation has taken note."""
        noted: list[SpeechEvent | UpdateDecoded] = []
        for event in events:
            if isinstance(event, OtherLanguage):
                noted.append(WarningRaised(other_language_message(event)))
                continue
            if isinstance(event, CorrectionDue):
                self._corrections.begin(event, self._samples / SAMPLE_RATE)
                continue
            noted.append(event)
            if isinstance(event, PartialText):
                self._partial = event
                if self._pairs is not None and event.language is not None:
                    self._pairs.prepare(event.language)
            elif isinstance(event, CommittedText | SpeechEnded):
                self._settle(event)
        return noted

    def _settle(self, event: SpeechEvent) -> None:
        """Keep for translation what will not change any more."""
        for settled in self._settled.add(event):
            if isinstance(settled, CommittedText | SpeechEnded):
                self._said.append((settled, self._clock()))

    def _pass_on(self, *, wait: bool) -> None:
        """Pass what was said on to the translator of its language.

        Args:
            wait: until the translator is opened; without it, what was said waits.
        """
        while self._said:
            said, heard_s = self._said[0]
            if isinstance(said, CommittedText) and not self._turn_to(
                said.language, heard_s, wait=wait
            ):
                return
            self._said.popleft()
            if self._translator is None:
                continue
            if isinstance(said, CommittedText):
                self._untimed.append(Cue(said.start, said.end, said.text))
                self._add(self._translator.add(said.text), heard_s)
            else:
                self._add(self._translator.finish(), heard_s)

    def _turn_to(self, language: str | None, heard_s: float, *, wait: bool) -> bool:
        """Use the translator of a language; False: it is not opened yet."""
        if self._pairs is None or language is None or language == self._language:
            return True
        if language not in self._translators:
            try:
                found = self._pairs.find(language, wait=wait)
                if found is None:
                    return False
            except EdgeError as error:
                found = None
                self._warnings.append(missing_pair_message(error, language))
            self._translators[language] = found
        if self._translator is not None:
            self._add(self._translator.finish(), heard_s)
        self._language, self._translator = language, self._translators[language]
        return True

    def _running_translator(self, unsettled: str) -> LiveTranslator | None:
        """Return the translator of the running text; None: there is none, or it is not opened.

        Args:
            unsettled: text before it that may be corrected, and so has turned to no translator yet.
        """
        language = self._partial.language
        if self._pairs is None or language == self._language:
            return self._translator
        if not unsettled or language is None:
            return None
        if language not in self._translators:
            try:
                found = self._pairs.find(language, wait=False)
            except EdgeError:  # said when the text is to be translated
                return None
            if found is None:
                return None
            self._translators[language] = found
        return self._translators[language]

    def _add(self, sentences: list[str], complete_s: float) -> None:
        """Let complete sentences wait for their translation."""
        assert self._translator is not None
        translator = self._translator
        self._sentences.extend((sentence, translator, complete_s) for sentence in sentences)

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
        self._translator = self._pairs = None
        self._said.clear()
        self._sentences.clear()
        self._untimed.clear()


def other_language_message(event: OtherLanguage) -> str:
    """Return what to say of speech that is not in a language that was given."""
    heard, *given = (LANGUAGES[code].title() for code in (event.language, *event.expected))
    done = "translated" if event.task == "translate" else "written"
    return f"this sounds like {heard}, but is {done} as {' or '.join(given)}, which was given"
