"""Plays recordings to the live transcriber without a clock, and times its work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from edgeapp.live.events import SpeechEvent, TranslationFinal, TranslationPartial
from edgeapp.live.speech_channel import SpeechChannel
from pipelines import (
    SAMPLE_RATE,
    CommittedText,
    LiveOptions,
    LiveTranscriber,
    LiveTranslator,
    PartialText,
    Transcriber,
    Translator,
)
from pipelines.asr import LiveEvent, Word
from tests.benchmarks.live_latency.emissions import Update
from tests.benchmarks.live_latency.recordings import Spoken

__all__ = ["Played", "play", "transcribe", "warm_up"]

_BLOCK = SAMPLE_RATE // 10  # as from a microphone


@dataclass(frozen=True, eq=False)
class Played:
    """A recording and the events of its live session.

    Attributes:
        recording: What was played.
        updates: One a block of audio, and one for the end.
        words: The final words of the speech with their times.
        cpu_s: CPU seconds of all of it.
    """

    recording: Spoken
    updates: tuple[Update, ...]
    words: tuple[Word, ...]
    cpu_s: float


class _Captions:
    """The captions that the events leave: of the speech, or of its translation."""

    def __init__(self, translated: bool) -> None:
        self._translated = translated
        self.committed = self.partial = ""
        self.words: list[Word] = []

    def add(self, events: Iterable[LiveEvent | SpeechEvent]) -> None:
        for event in events:
            if isinstance(event, CommittedText):
                self.words += event.words
            match event:
                case TranslationFinal(text) if self._translated:
                    self.committed, self.partial = f"{self.committed} {text}", ""
                case TranslationPartial(text) if self._translated:
                    self.partial = f" {text}"
                case CommittedText(text) if not self._translated:
                    self.committed += text
                case PartialText(text) if not self._translated:
                    self.partial = text


def play(
    transcriber: Transcriber,
    recording: Spoken,
    options: LiveOptions,
    translator: Translator | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Played:
    """Feed a recording in blocks of 0.1 s, each after the work on the one before it.

    Args:
        transcriber: The model.
        recording: Its language is given to the model.
        options: Of the live session.
        translator: The captions are its translation; None: the speech.
        clock: Times the work (s). `time.process_time` leaves out the work of other programs, and
            is right for one thread.
    """
    spoken = replace(options.transcribe, language=recording.language)
    live = LiveTranscriber(transcriber, replace(options, transcribe=spoken))
    channel = SpeechChannel(live, LiveTranslator(translator) if translator else None)
    captions, updates = _Captions(translator is not None), list[Update]()
    cpu = time.process_time()
    for at in [*range(0, len(recording.samples), _BLOCK), None]:
        began = clock()
        if at is None:
            captions.add(channel.finish())
        else:
            captions.add(channel.feed(recording.samples[at : at + _BLOCK]))
        captions.add(channel.translate(lambda: False, ended=at is None))
        computing_s = clock() - began
        fed = len(recording.samples) if at is None else min(at + _BLOCK, len(recording.samples))
        updates.append(Update(fed / SAMPLE_RATE, computing_s, captions.committed, captions.partial))
    cpu_s = time.process_time() - cpu
    return Played(recording, tuple(updates), tuple(captions.words), cpu_s)


def warm_up(
    transcriber: Transcriber,
    recording: Spoken,
    options: LiveOptions,
    translator: Translator | None = None,
) -> None:
    """Play one window: the first encoding of each length prepares that length."""
    start = recording.samples[: int(transcriber.window_s * SAMPLE_RATE)]
    play(transcriber, replace(recording, samples=start), options, translator)


def transcribe(transcriber: Transcriber, recording: Spoken) -> tuple[Word, ...]:
    """The words of a recording, offline, window by window.

    Their times are spread evenly over their segment: `word_timestamps` would move the windows, and
    so change the text.
    """
    words = list[Word]()
    segments = transcriber.transcribe(recording.samples, language=recording.language, batch_size=1)
    for segment in segments:
        texts = segment.text.split()
        step = (segment.end - segment.start) / max(1, len(texts))
        for index, text in enumerate(texts):
            start = segment.start + index * step
            words.append(Word(text, start, start + step, 1.0))
    return tuple(words)
