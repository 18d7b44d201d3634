"""Events of live recognition: frozen data. Times are seconds from the start of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipelines.asr.audio.arrays import Samples
from pipelines.asr.results import Word


@dataclass(frozen=True)
class SpeechStarted:
    """An utterance began at about `time` (pre-roll included)."""

    time: float


@dataclass(frozen=True)
class SpeechEnded:
    """The utterance ended at `time`; all of its text has been committed."""

    time: float


@dataclass(frozen=True)
class PartialText:
    """The text after the committed text, complete; it replaces the previous one and may change.

    Attributes:
        text: the text.
        language: the code of the spoken language; None before it is known.
    """

    text: str
    language: str | None = None


@dataclass(frozen=True)
class CommittedText:
    """New text that is final.

    Attributes:
        text: begins with the space that separates it from the text before, if there is one.
        start: time of its first word.
        end: time of its last word.
        words: its words, with their times and probabilities.
        language: the code of the spoken language.
    """

    text: str
    start: float
    end: float
    words: tuple[Word, ...] = ()
    language: str | None = None


@dataclass(frozen=True, eq=False)
class CorrectionDue:
    """Speech whose text is final, and which `LiveTranscriber.correct` can decode once more.

    Attributes:
        samples: its sound, mono float32 [n] at 16 kHz.
        offset: position of samples[0] in the stream, in samples.
        text: its committed text.
        start: time of the first word.
        end: time of the last word.
        language: the code of the spoken language.
        context: the committed text before it, if it was understood well; "" otherwise.
    """

    samples: Samples
    offset: int
    text: str
    start: float
    end: float
    language: str | None = None
    context: str = ""


@dataclass(frozen=True)
class CorrectedText:
    """Text that replaces committed text, once.

    Attributes:
        text: begins with the space that separates it from the text before, if there is one.
        start: time of the first word of the text that it replaces.
        end: time of the last word of that text.
        replaced_text: that text: the committed texts that lie within these times.
        words: its words, with their times and probabilities; empty if the model knows no times.
        language: the code of the spoken language.
    """

    text: str
    start: float
    end: float
    replaced_text: str
    words: tuple[Word, ...] = ()
    language: str | None = None


@dataclass(frozen=True)
class OtherLanguage:
    """For ten seconds of speech, another language was heard than the given ones.

    The text goes on in the given language.

    Attributes:
        language: the code of the language that was heard.
        expected: the codes of those that were given.
        task: what is done with the speech.
    """

    language: str
    expected: tuple[str, ...]
    task: Literal["transcribe", "translate"] = "transcribe"


@dataclass(frozen=True)
class UpdateDecoded:
    """Cost of one update.

    Attributes:
        audio: seconds of audio decoded.
        tokens: tokens of the new hypothesis.
        drafted: tokens of the previous hypothesis, given as the draft.
        accepted: draft tokens that were verified instead of decoded one by one.
    """

    audio: float
    tokens: int
    drafted: int
    accepted: int


LiveEvent: TypeAlias = (
    SpeechStarted
    | SpeechEnded
    | PartialText
    | CommittedText
    | CorrectionDue
    | OtherLanguage
    | UpdateDecoded
)
