"""Splits a recording at its pauses into chunks of speech that fit the model's window.

Silence between chunks is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.features import FRAMES_PER_SECOND, HOP, MARGIN
from pipelines.asr.audio.silero import FRAME, SileroDetector
from pipelines.asr.audio.vad import SpeechEnd, SpeechStart, VoiceActivity
from pipelines.asr.options import VadOptions

_BLOCK = 312 * FRAME  # samples per call of the detector: 10 s
CHUNK_VAD = VadOptions(
    min_speech_duration_ms=100,
    min_silence_duration_ms=200,  # shorter pauses may lie inside a word
    speech_pad_ms=200,
)
# Speech that is found this early begins with the recording, because the detector starts cold.
_FIRST_S = 0.5
# The peak that quiet recordings are raised to for the detector, and by how much at most (dB).
_PEAK, _MOST_GAIN_DB = 0.5, 30.0
_HISTORY_S = 2.0  # samples kept during silence: the next utterance may turn out to begin there
_MIN_FILL = 0.5  # share of the maximum length from which on a chunk may end at a pause

SampleSpan = tuple[int, int]
"""First sample, and the one after the last."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """A part of a recording that contains speech, and is decoded by itself.

    Where two channels of a recording are unlike, it is divided into sections of one channel or of
    two; some 30 s of both channels are one chunk. Frames and times are those of the section.

    Attributes:
        start_frame: Its first frame of 10 ms.
        end_frame: The frame after its last one.
        offset: Position of samples[0], in samples.
        samples: Mono float32 [n] at 16 kHz, what the STFT windows of its frames cover; or two
            channels [n, 2].
        number: From 1, within its section.
        last_speech_s: When the speech of the chunk before it ended.
        section: Number of the part of the recording, with one channel or two, from 0.
        section_start: Samples of the recording before its section.
    """

    start_frame: int
    end_frame: int
    offset: int
    samples: Samples
    number: int
    last_speech_s: float = 0.0
    section: int = 0
    section_start: int = 0

    @property
    def start_s(self) -> float:
        """When it begins (seconds of the recording)."""
        return self.section_start / SAMPLE_RATE + self.start_frame / FRAMES_PER_SECOND

    @property
    def end_s(self) -> float:
        """When it ends (seconds of the recording)."""
        return self.section_start / SAMPLE_RATE + self.end_frame / FRAMES_PER_SECOND


def split_at_pauses(
    blocks: Iterable[Samples], max_duration_s: float, options: VadOptions = CHUNK_VAD
) -> Iterator[Chunk]:
    """Split a recording into chunks, lazily.

    Speech without a pause is cut at the quietest point of the last second that fits. Pauses are
    kept inside a chunk if the speech around them fits into it.

    Args:
        blocks: mono float32 [n] each, at 16 kHz, of any lengths. Reading is some 10 s ahead of
            the end of a chunk.
        max_duration_s: maximum duration of a chunk (s).
        options: what counts as speech; `max_speech_duration_s` is that of a chunk.

    Yields:
        The chunks, in order.
    """
    max_samples = round(max_duration_s * SAMPLE_RATE) - HOP  # a chunk begins at a frame boundary
    history, detector = _SampleHistory(), _BatchedDetector()
    vad = VoiceActivity(
        replace(options.over(CHUNK_VAD), max_speech_duration_s=max_samples / SAMPLE_RATE), detector
    )
    utterances: list[SampleSpan] = []  # not in a chunk yet
    utterance_start: int | None = None  # of the open utterance
    number, last_speech_s = 1, 0.0

    def next_chunk() -> Chunk:
        nonlocal number, last_speech_s
        chunk = history.cut(_pop_chunk(utterances, max_samples), number)
        chunk = replace(chunk, last_speech_s=last_speech_s)
        number, last_speech_s = number + 1, chunk.end_frame / FRAMES_PER_SECOND
        return chunk

    for block in _rechunk(blocks, _BLOCK):
        history.append(block)
        detector.prefetch(block)
        last = len(block) < _BLOCK
        for event in [*vad.feed(block), *(vad.finish() if last else ())]:
            if isinstance(event, SpeechStart):
                utterance_start = event.sample
            elif isinstance(event, SpeechEnd):
                assert utterance_start is not None, "speech starts before it ends"
                if utterance_start < _FIRST_S * SAMPLE_RATE and event.sample <= max_samples:
                    utterance_start = 0
                utterances.append((utterance_start, event.sample))
                utterance_start = None
                while utterances[-1][1] - utterances[0][0] > max_samples:
                    yield next_chunk()
        now = history.end if utterance_start is None else utterance_start
        if utterances and (last or now - utterances[0][0] > max_samples):  # no more speech fits
            yield next_chunk()
        history.drop_before(
            utterances[0][0] if utterances else now - round(_HISTORY_S * SAMPLE_RATE)
        )


def _pop_chunk(utterances: list[SampleSpan], max_samples: int) -> SampleSpan:
    """Remove the utterances of the next chunk: all if they fit, else up to the longest pause."""
    start, count = utterances[0][0], len(utterances)
    if utterances[-1][1] - start > max_samples:
        ends = [
            i for i in range(1, count) if utterances[i - 1][1] - start >= _MIN_FILL * max_samples
        ]
        count = max(ends or [count - 1], key=lambda i: (utterances[i][0] - utterances[i - 1][1], i))
    chunk, utterances[:] = utterances[:count], utterances[count:]
    return start, chunk[-1][1]


def _rechunk(blocks: Iterable[Samples], size: int) -> Iterator[Samples]:
    """The same samples in blocks [size]; the last one is shorter and may be empty.

    An error of the source is raised after the samples that came before it.
    """
    pending: list[Samples] = []
    count = 0
    failure: Exception | None = None
    try:
        for block in blocks:
            pending.append(block)
            count += len(block)
            if count < size:
                continue
            joined = np.concatenate(pending)
            complete = count // size * size
            yield from (joined[start : start + size] for start in range(0, complete, size))
            pending, count = [joined[complete:]], count - complete
    except Exception as error:
        failure = error
    yield np.concatenate(pending) if pending else np.zeros(0, np.float32)
    if failure is not None:
        raise failure


class _BatchedDetector:
    """Silero's probabilities, computed for a block at once and returned frame by frame.

    Blocks are raised to an ordinary level, by the loudest sample so far: in quiet recordings the
    detector finds the beginning of speech late, or not at all.
    """

    def __init__(self) -> None:
        self._peak = 0.0
        self._silero = SileroDetector()
        self._probabilities: deque[float] = deque()

    def prefetch(self, block: Samples) -> None:
        """Compute the probabilities of the block's complete frames."""
        self._peak = max(self._peak, float(np.abs(block).max(initial=0.0)))
        complete = block[: len(block) // FRAME * FRAME] * self._gain
        self._probabilities.extend(self._silero.probabilities(complete))

    def __call__(self, frame: Samples) -> float:
        if self._probabilities:
            return self._probabilities.popleft()
        return self._silero(frame * self._gain)

    @property
    def _gain(self) -> np.float32:
        gain = 1.0 if not self._peak else _PEAK / self._peak
        return np.float32(min(max(gain, 1.0), 10 ** (_MOST_GAIN_DB / 20)))


class _SampleHistory:
    """The latest samples of the recording, from which chunks are cut.

    Attributes:
        end: samples of the recording so far.
    """

    def __init__(self) -> None:
        self._blocks: deque[Samples] = deque()
        self._start = self.end = 0

    def append(self, block: Samples) -> None:
        self._blocks.append(block)
        self.end += len(block)

    def drop_before(self, sample: int) -> None:
        """Drop blocks before `sample`, less the margin of the first frame's STFT window."""
        while self._blocks and self._start + len(self._blocks[0]) <= sample - MARGIN - HOP:
            self._start += len(self._blocks.popleft())

    def cut(self, span: SampleSpan, number: int) -> Chunk:
        """Chunk `number`: a copy of the frames of `span`, with MARGIN samples around them."""
        start_frame, end_frame = span[0] // HOP, span[1] // HOP
        low, high = max(start_frame * HOP - MARGIN, 0), min(end_frame * HOP + MARGIN, self.end)
        samples = np.concatenate(self._blocks)[low - self._start : high - self._start]
        return Chunk(start_frame, end_frame, low, samples.copy(), number)
