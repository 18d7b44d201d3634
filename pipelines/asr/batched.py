"""Transcription of a recording in chunks, cut at pauses and decoded in parallel."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import Tensor

from pipelines.asr.audio.arrays import Samples
from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.audio.decode import AudioSource
from pipelines.asr.audio.left_out import LeftOutSound
from pipelines.asr.capabilities import Capabilities
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.plain_decoder import PlainDecoder
from pipelines.asr.plain_tokenizer import PlainTokenizer
from pipelines.asr.recording_chunks import audio_blocks, chunks_of_blocks
from pipelines.asr.results import (
    Checkpoint,
    LeftOut,
    Retract,
    SegmentDone,
    TextDelta,
    TranscriptEvent,
    TranscriptionInfo,
)
from pipelines.asr.sequential import DecodeEvent, DecodeTask
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.window import WindowDecoder
from pipelines.engine import (
    MY_TURN,
    Drafting,
    EncodedSource,
    Engine,
    LoadedModel,
    Pending,
    SourceHandle,
    TaskLimits,
    interleave,
)
from pipelines.errors import EdgeError, EngineError, NumericalError

_LONG_S = 600.0  # of a longer recording the first text comes early, at the cost of a second
# At most this many times `batch_size` chunks are begun, finished ones that wait for their turn
# included.
_MAX_CHUNKS_PER_SLOT = 4
_PREPARED = 3  # chunks that are encoded while others are decoded
_MAX_NAMED = 5  # failed chunks that an error message names


@dataclass(frozen=True)
class Spoken:
    """The language of a recording.

    Attributes:
        language: Code, given or detected.
        probability: None if it was given.
        probs: Language code → probability; None if it was given.
        sources: Number of a chunk → its first window, where detection has read it.
    """

    language: str
    probability: float | None = None
    probs: dict[str, float] | None = None
    sources: dict[int, SourceHandle] = field(default_factory=dict)


class SpeechModel(Protocol):
    """A loaded model of any family. Models without timestamps decode in chunks only."""

    engine: Engine
    model: LoadedModel
    capabilities: Capabilities
    drafting: Drafting
    chunks_only: bool

    @property
    def window_s(self) -> float:
        """The longest chunk in seconds."""
        ...

    @property
    def tokenizer(self) -> WhisperTokenizer | PlainTokenizer:
        """The vocabulary. Raises UnsupportedTask if transformers runs the model."""
        ...

    def check(self, options: TranscribeOptions) -> None:
        """Raise UnsupportedTask or OptionError if the model cannot do what the options request."""
        ...

    def language_of_chunks(
        self, chunks: Iterator[Chunk], options: TranscribeOptions
    ) -> tuple[Spoken, Iterator[Chunk]]:
        """Return the language, given or detected in the first chunks, and all chunks."""
        ...

    def decode_chunk(
        self,
        chunk: Chunk,
        language: str,
        options: TranscribeOptions,
        first_window: SourceHandle | None = None,
    ) -> DecodeTask:
        """Return the task that decodes a chunk; its times are those of the section.

        Args:
            chunk: With one channel.
            language: Code; with `options.multilingual` each window of Whisper has its own.
            options: How to decode.
            first_window: The source of its first window, if it was read before.
        """
        ...

    def live_source(self, samples: Samples, window_s: float) -> Tensor:
        """Return what the encoder takes of a live buffer [n]."""
        ...

    def language_probs(self, encoded: EncodedSource) -> dict[str, float]:
        """Return the probability of each language in an encoded window."""
        ...

    def window_decoder(
        self, language: str, options: TranscribeOptions
    ) -> WindowDecoder | PlainDecoder:
        """Return the decoder of live buffers."""
        ...


def transcribe_batched(
    recognizer: SpeechModel,
    audio: AudioSource,
    options: TranscribeOptions,
    resume_from: Checkpoint | None = None,
    checkpoints: bool = False,
) -> Generator[TranscriptEvent, None, None]:
    """Return the events of a recording as `Transcriber.stream` yields them, in its order.

    An iterable of blocks is read as far ahead as `parallel_chunks` are decoded. A Checkpoint
    follows each chunk as long as none has failed.

    Raises:
        AudioError: There is no audio to decode. Raised before decoding starts; for an iterable,
            when the block at fault is reached.
    """
    blocks, duration = audio_blocks(audio)
    length_s = duration or getattr(audio, "duration_s", None) or 0.0  # an AudioFile has one
    left_out = LeftOutSound()
    if not options.clip_timestamps:
        blocks = left_out.measured(blocks)
    return transcribe_chunks(
        recognizer,
        chunks_of_blocks(blocks, options, recognizer.window_s),
        options,
        resume_from,
        checkpoints,
        duration_s=duration,
        first_alone=length_s > _LONG_S,
        left_out=left_out,
    )


def transcribe_chunks(
    recognizer: SpeechModel,
    chunks: Iterator[Chunk],
    options: TranscribeOptions,
    resume_from: Checkpoint | None = None,
    checkpoints: bool = True,
    *,
    duration_s: float | None = None,
    first_alone: bool = False,
    left_out: LeftOutSound | None = None,
) -> Generator[TranscriptEvent, None, None]:
    """As `transcribe_batched`, of consecutive chunks of one recording.

    Those up to `resume_from` are left out; `left_out` measures what is in none of them.
    """
    if resume_from is None:
        spoken, chunks = recognizer.language_of_chunks(chunks, options)
    else:
        spoken = Spoken(resume_from.language)
    before = replace(resume_from or Checkpoint(0), language=spoken.language)
    yield TranscriptionInfo(
        spoken.language,
        spoken.probability,
        duration_s,
        all_language_probs=None if spoken.probs is None else tuple(spoken.probs.items()),
    )

    def remaining() -> Iterator[Chunk]:
        for chunk in chunks:
            if left_out is not None:
                left_out.keep(chunk.start_s, chunk.end_s)
            if chunk.number > before.chunks:
                yield chunk

    def decode(chunk: Chunk) -> DecodeTask:
        first_window = spoken.sources.pop(chunk.number, None)
        return recognizer.decode_chunk(chunk, spoken.language, options, first_window)

    events = decode_chunks(
        remaining(), decode, options.parallel_chunks, before=before, first_alone=first_alone
    )
    with closing(events):
        for event in events:
            if checkpoints or not isinstance(event, Checkpoint):
                yield event
    if left_out is not None and (seconds := left_out.seconds):
        yield LeftOut(seconds, left_out.duration_s)


@dataclass(frozen=True)
class _Failed:
    """The last event of a chunk whose second attempt has failed, too."""

    chunk: Chunk
    error: Exception


def decode_chunks(
    chunks: Iterable[Chunk],
    decode: Callable[[Chunk], DecodeTask],
    batch_size: int,
    *,
    before: Checkpoint | None = None,
    first_alone: bool = False,
) -> Generator[DecodeEvent, None, None]:
    """Decode chunks, up to `batch_size` of them in parallel.

    Events come in the order of the chunks: those of the first unfinished chunk live, those of
    later ones when it is their turn. Chunks are read from the iterator as needed. A chunk that
    fails is retried once, when it is its turn. If the retry fails, the other chunks are decoded
    before the error is raised; two failed chunks in a row raise it at once. If the iterator
    raises, the chunks before are decoded first. Closing the generator cancels the decoding.

    Args:
        chunks: The chunks of a recording in order.
        decode: Makes the task of a chunk; called again after a failure.
        batch_size: Maximum number of chunks decoded in parallel.
        before: What comes before them: segments are numbered on.
        first_alone: Decode the first chunk alone, so that its text does not wait for the encoding
            of others.

    Yields:
        The events of all chunks, and after each a Checkpoint until one has failed.

    Raises:
        EngineError: Chunks failed; the message names them. A NumericalError if the last of them
            failed with one.
    """
    limits = TaskLimits(
        parallel=batch_size,
        ahead=_MAX_CHUNKS_PER_SLOT * batch_size,
        first_ahead=1 if first_alone else None,
        prepared=_PREPARED,
    )
    before = before or Checkpoint(0)
    failed: list[_Failed] = []
    previous_failed = False
    events: Generator[DecodeEvent | _Failed, None, None]
    events = interleave((_with_retry(chunk, decode) for chunk in chunks), limits)
    with closing(events):
        for event in events:
            if isinstance(event, SegmentDone):
                yield SegmentDone(replace(event.segment, id=before.segments))
                before = replace(before, segments=before.segments + 1)
            elif isinstance(event, Checkpoint):
                previous_failed = False
                if event.chunks == before.chunks + 1:  # no chunk before it has failed
                    before = replace(event, segments=before.segments, language=before.language)
                    yield before
            elif isinstance(event, _Failed):
                failed.append(event)
                if previous_failed:
                    break
                previous_failed = True
            else:
                yield event
    if failed:
        raise _failure(failed)


def _with_retry(
    chunk: Chunk, decode: Callable[[Chunk], DecodeTask]
) -> Generator[DecodeEvent | _Failed | Pending, None, None]:
    """Yield the events of a chunk, and at last a Checkpoint or _Failed.

    The second attempt waits until others cannot make it fail as well, and leaves out the segments
    that the first one has given.
    """
    segments = 0  # given so far
    for is_last in (False, True):
        to_skip, has_live_text = segments, False
        try:
            with closing(decode(chunk)) as task:
                for item in task:
                    if isinstance(item, Pending):
                        yield item
                    elif to_skip:
                        to_skip -= isinstance(item, SegmentDone)
                    else:
                        has_live_text = isinstance(item, TextDelta)
                        segments += isinstance(item, SegmentDone)
                        yield item
        except Exception as error:  # of any kind: the other chunks go on
            if has_live_text:
                yield Retract()
            yield _Failed(chunk, error) if is_last else MY_TURN
        else:
            yield Checkpoint(0, chunks=chunk.number)
            return


def _failure(failed: Sequence[_Failed]) -> EngineError:
    """Return the error for chunks that failed, of the kind of the last one."""
    *others, last = [
        f"the speech from {each.chunk.start_s:.1f} to {each.chunk.end_s:.1f} s" for each in failed
    ]
    error = failed[-1].error
    if isinstance(error, NumericalError):
        message = str(error)  # names the times
    else:
        reason = str(error) if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}"
        message = f"{last} could not be recognized: {reason}"
    if others:
        names = others[:_MAX_NAMED]
        if len(others) > _MAX_NAMED:
            names.append(f"{len(others) - _MAX_NAMED} more")
        message += f"; nor could {', '.join(names)}"
    failure = NumericalError(message) if isinstance(error, NumericalError) else EngineError(message)
    failure.__cause__ = error
    return failure
