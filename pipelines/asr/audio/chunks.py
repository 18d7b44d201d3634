"""A recording cut at its pauses into chunks that a model hears at once; silence is left out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.features import HOP, MARGIN
from pipelines.asr.audio.silero import FRAME, SileroDetector
from pipelines.asr.audio.vad import SpeechEnd, SpeechStart, VoiceActivity, VoiceOptions
from pipelines.deferred_errors import DeferErrors

__all__ = ["Chunk", "split_at_pauses"]

_BLOCK = 312 * FRAME  # samples judged at once: 10 s
_MIN_PAUSE_S = 0.2  # shorter ones may lie inside a word
_PRE_ROLL_S = 0.2
_THRESHOLD = 0.35  # below Silero's own 0.5, since what is taken for silence is lost
_KEPT_S = 2.0  # of the past: the next utterance may turn out to have begun there
_LEAST = 0.5  # of the longest chunk: from here on the longest pause is where it ends

SampleSpan = tuple[int, int]
"""First sample, and the one after the last."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """A piece of a recording with speech in it.

    first, last: its first frame of 10 ms and the one after its last, counted from the recording's
    start. samples: what they look at, from sample `offset` of the recording on.
    """

    first: int
    last: int
    offset: int
    samples: Samples


def split_at_pauses(blocks: Iterable[Samples], longest_s: float) -> Iterator[Chunk]:
    """The chunks of a recording, none longer than `longest_s`, found as they are asked for.

    blocks: mono float32 at 16 kHz, of any lengths; read some 10 s further than a chunk needs.
    Speech without a pause is cut at the quietest point of the last second that fits. Pauses stay
    where the speech around them fits into one chunk.
    """
    longest = round(longest_s * SAMPLE_RATE) - HOP  # a chunk begins with a whole frame
    tape, detector = _SampleTape(), _LookaheadVad()
    voice = VoiceActivity(
        VoiceOptions(
            threshold=_THRESHOLD,
            pre_roll_s=_PRE_ROLL_S,
            min_silence_s=_MIN_PAUSE_S,
            max_utterance_s=longest / SAMPLE_RATE,
        ),
        detector,
    )
    spoken: list[SampleSpan] = []
    speaking: int | None = None  # since when
    for block in _blocks_of(_BLOCK, blocks):
        tape.append(block)
        detector.listen(block)
        last = len(block) < _BLOCK
        for event in [*voice.feed(block), *(voice.finish() if last else ())]:
            if isinstance(event, SpeechStart):
                speaking = event.sample
            elif isinstance(event, SpeechEnd):
                assert speaking is not None, "what ends has begun"
                spoken.append((speaking, event.sample))
                speaking = None
                while spoken[-1][1] - spoken[0][0] > longest:
                    yield tape.cut(_next_chunk(spoken, longest))
        now = tape.end if speaking is None else speaking
        if spoken and (last or now - spoken[0][0] > longest):  # nothing more fits
            yield tape.cut(_next_chunk(spoken, longest))
        tape.forget(spoken[0][0] if spoken else now - round(_KEPT_S * SAMPLE_RATE))


def _next_chunk(spoken: list[SampleSpan], longest: int) -> SampleSpan:
    """Take the next chunk's utterances away: all where they fit, else up to the longest pause."""
    start, count = spoken[0][0], len(spoken)
    if spoken[-1][1] - start > longest:
        ends = [i for i in range(1, count) if spoken[i - 1][1] - start >= _LEAST * longest]
        count = max(ends or [count - 1], key=lambda i: (spoken[i][0] - spoken[i - 1][1], i))
    taken, spoken[:] = spoken[:count], spoken[count:]
    return start, taken[-1][1]


def _blocks_of(size: int, blocks: Iterable[Samples]) -> Iterator[Samples]:
    """The same samples in blocks [size]; the last one is shorter, and may be empty. Where the
    source breaks off, what it gave comes first."""
    held: list[Samples] = []
    count = 0
    source = DeferErrors(blocks)
    for block in source:
        held.append(block)
        count += len(block)
        if count < size:
            continue
        joined = np.concatenate(held)
        whole = count // size * size
        yield from (joined[at : at + size] for at in range(0, whole, size))
        held, count = [joined[whole:]], count - whole
    yield np.concatenate(held) if held else np.zeros(0, np.float32)
    source.check()


class _LookaheadVad:
    """Silero's verdicts, found for a block at once and told frame by frame."""

    def __init__(self) -> None:
        self._silero = SileroDetector()
        self._known: deque[float] = deque()

    def listen(self, block: Samples) -> None:
        whole = block[: len(block) // FRAME * FRAME]
        self._known.extend(self._silero.judge(whole))

    def __call__(self, frame: Samples) -> float:
        return self._known.popleft() if self._known else self._silero(frame)


class _SampleTape:
    """The recording's latest samples."""

    def __init__(self) -> None:
        self._blocks: deque[Samples] = deque()
        self._start = self.end = 0  # samples of the recording

    def append(self, block: Samples) -> None:
        self._blocks.append(block)
        self.end += len(block)

    def forget(self, before: int) -> None:
        """Samples before this are not needed any more, but for what the first frame looks at."""
        while self._blocks and self._start + len(self._blocks[0]) <= before - MARGIN - HOP:
            self._start += len(self._blocks.popleft())

    def cut(self, span: SampleSpan) -> Chunk:
        first, last = span[0] // HOP, span[1] // HOP
        low, high = max(first * HOP - MARGIN, 0), min(last * HOP + MARGIN, self.end)
        held = np.concatenate(self._blocks)
        return Chunk(first, last, low, held[low - self._start : high - self._start].copy())
