"""Results of a transcription: segments, words, and the events that lead to them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias

from pipelines.decoding_choices import Alternative as Alternative
from pipelines.errors import EngineError, OutputError
from pipelines.subtitles import Transcript, check_format_name, render


@dataclass(frozen=True)
class Word:
    """A word with its time.

    Attributes:
        word: The text, with the space before it and the punctuation around it.
        start: Seconds.
        end: Seconds.
        probability: Mean probability of its tokens.
    """

    word: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True)
class TokenLogprob:
    """A token of a text with its log-probability.

    Attributes:
        utf8: The bytes of its text, which may begin or end inside a character.
        logprob: Natural logarithm of the probability that the model gave it, at temperature 1 and
            among the tokens that were allowed.
    """

    utf8: tuple[int, ...]
    logprob: float


@dataclass(frozen=True)
class Segment:
    """A part of the speech with its text. The fields are those of openai-whisper's results.

    Attributes:
        id: Number of the segment in the recording, from 0.
        seek: Frame (10 ms) at which its window begins.
        start: Seconds.
        end: Seconds.
        text: Begins with the space that separates it from the text before. Empty, as are
            `tokens`, where openai-whisper clears a segment because it has no duration or no text.
            Such segments are kept so that ids agree; writers should skip them.
        tokens: Ids, timestamps included.
        temperature: Sampling temperature of the whole window.
        avg_logprob: Mean log-probability of the whole window's tokens.
        compression_ratio: Of the whole window's text.
        no_speech_prob: Probability that the whole window holds no speech.
        words: The words, if `word_timestamps` was set.
        alternatives: The `n_best` hypotheses for the whole window, best first; the first is the one
            of the segments. Empty for a single one.
        token_logprobs: The tokens of the text, if `token_logprobs` was set. Their bytes add up to
            it.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: tuple[Word, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    token_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class TranscriptionInfo:
    """The first event of a transcription.

    Attributes:
        language: Code, given or detected.
        language_probability: Probability of the detected language; None if it was not detected.
        duration: Seconds of audio; None for a stream.
        warnings: Messages about the recording, such as that only a part of it could be decoded.
            Each names the recording.
        duration_after_vad: Seconds of audio that are decoded, window by window; None in chunks,
            whose speech is found while the first ones are decoded, and for a stream.
        all_language_probs: (code, probability) of each language, most probable first; None if the
            language was not detected.
    """

    language: str
    language_probability: float | None
    duration: float | None
    warnings: tuple[str, ...] = ()
    duration_after_vad: float | None = None
    all_language_probs: tuple[tuple[str, float], ...] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TextDelta:
    """Live text: what was just decoded of the current window, in whole characters.

    The next SegmentDone replaces all live text before it; Retract removes it.

    Attributes:
        text: Follows the live text so far.
    """

    text: str


@dataclass(frozen=True)
class Retract:
    """Remove all live text since the last SegmentDone: the window failed a threshold and is
    decoded again, or it holds no speech."""


@dataclass(frozen=True)
class SegmentDone:
    """A final segment. The segments of one window come together, at its end.

    Attributes:
        segment: The segment.
    """

    segment: Segment


@dataclass(frozen=True)
class Checkpoint:
    """Where a transcription can be resumed: all segments so far are final.

    Attributes:
        segments: Number of segments so far.
        seek: Frame (10 ms) of the next window, with a `batch_size` of 1.
        clip: Number of the part of `clip_timestamps` that `seek` lies in, from 0.
        prompt: Tokens of the text so far that are a part of the next window's prompt.
        initial_prompt: The initial prompt is a part of it too.
        last_speech: Seconds at which the speech so far ended.
        chunks: Number of finished chunks.
        section: Number of the part of a recording whose two channels are recognized one by one
            in some parts, from 0; the fields above count within it.
        language: Code of the language.
    """

    segments: int
    seek: int = 0
    clip: int = 0
    prompt: tuple[int, ...] = ()
    initial_prompt: bool = True
    last_speech: float = 0.0
    chunks: int = 0
    language: str = ""
    section: int = 0


@dataclass(frozen=True)
class LeftOut:
    """The last event of a recording that was mostly taken for silence although it sounds like
    speech, with a `batch_size` above 1.

    Attributes:
        seconds: Length of these parts.
        duration: Seconds of the recording.
    """

    seconds: float
    duration: float

    @property
    def message(self) -> str:
        """One line about it."""
        return (
            f"{self.seconds:.0f} of {self.duration:.0f} s sound like speech and were taken for "
            "silence"
        )


TranscriptEvent: TypeAlias = (
    TranscriptionInfo | TextDelta | Retract | SegmentDone | Checkpoint | LeftOut
)


class Transcription(Iterator[Segment]):
    """The segments of one recording, decoded lazily; can be iterated once.

    Closing it, or leaving it as a context manager, cancels the decoding. Segments of a stream are
    not kept after they have been read, because it may have no end.
    """

    def __init__(self, events: Generator[TranscriptEvent, None, None]) -> None:
        self._events = events
        self._info: TranscriptionInfo | None = None
        self._left_out: tuple[str, ...] = ()
        self._segments: list[Segment] = []  # so far
        self._keeps, self._has_dropped = False, False
        self._is_complete: bool | None = None  # False after a failure and after `close`

    @property
    def info(self) -> TranscriptionInfo:
        """Language, duration and warnings. The first access detects the language if necessary.

        Raises:
            EngineError: The transcription was closed before it began, or the language could not
                be detected.
        """
        if self._info is None:
            first = next(self._events, None)
            if first is None:
                raise EngineError(
                    "the transcription was closed before it began, or could not begin; "
                    "transcribe the recording again"
                )
            assert isinstance(first, TranscriptionInfo), "TranscriptionInfo is the first event"
            self._info = first
        return self._info

    @property
    def language(self) -> str:
        """Code of the language, given or detected."""
        return self.info.language

    @property
    def duration(self) -> float | None:
        """Seconds of audio; None for a stream."""
        return self.info.duration

    @property
    def text(self) -> str:
        """The text of the whole recording, which is decoded to its end."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments of the recording, which is decoded to its end. Those that have been read are
        among them, and are not yielded again.

        Raises:
            EngineError: The decoding failed or was closed before its end, or segments of a stream
                have been read before.
        """
        if self._has_dropped:
            raise EngineError(
                "segments of a stream are not kept after they have been read; collect them while "
                "they are read, or ask for all of them first"
            )
        self._keeps = True
        for _ in self:
            pass
        if self._info is None or not self._is_complete:
            raise EngineError(
                "the transcription failed or was closed before its end; transcribe the recording "
                "again"
            )
        return tuple(self._segments)

    def render(self, format: str) -> str:
        """Return all of the recording as "txt", "srt", "vtt", "tsv", "json", "lrc", "csv", "ass" or
        "ttml".

        Raises:
            OptionError: There is no such format. Raised before anything is decoded.
            EngineError: As for `segments`.
        """
        format = format.lower()
        check_format_name(format)
        return render(Transcript(self.language, self.segments), format)

    def write(self, path: str | PathLike[str], format: str | None = None) -> Path:
        """Write all of the recording to a file, and return its path.

        Args:
            path: The file, which is replaced once all is decoded.
            format: As for `render`. None: by the ending of the file.

        Raises:
            OptionError: There is no such format. Raised before anything is decoded.
            OutputError: There is no such folder (raised before anything is decoded), or the file
                cannot be written.
            EngineError: As for `segments`.
        """
        path = Path(path)
        if format is None:
            words = path.name.lower().endswith(".words.tsv")  # a format of the command line
            format = "words.tsv" if words else path.suffix.removeprefix(".")
        check_format_name(format.lower())
        if not path.parent.is_dir():
            raise OutputError(f"{path}: there is no folder {path.parent}; create it first")
        content = self.render(format).encode()
        target = path.resolve()  # a link stays one
        try:
            if target.exists() and not target.is_file():  # such as a pipe
                target.write_bytes(content)
                return path
            part = target.with_name(f".{token_hex(4)}.tmp")
            try:
                part.write_bytes(content)
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}") from error
        return path

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages about the recording, such as that only a part of it could be decoded. After the
        last segment also that most of its speech may have been taken for silence."""
        return self.info.warnings + self._left_out

    def __next__(self) -> Segment:
        try:
            for event in self._events:
                if isinstance(event, TranscriptionInfo):
                    self._info = event
                elif isinstance(event, SegmentDone):
                    if self._keeps or self.duration is not None:
                        self._segments.append(event.segment)
                    else:
                        self._has_dropped = True
                    return event.segment
                elif isinstance(event, LeftOut):
                    self._left_out = (event.message,)
        except BaseException:
            self._is_complete = False
            raise
        self._is_complete = self._is_complete is not False
        raise StopIteration

    def close(self) -> None:
        """Cancel the decoding. There are no further segments."""
        self._is_complete = self._is_complete or False
        self._events.close()

    def __enter__(self) -> Transcription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
