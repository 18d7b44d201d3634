"""When each word is spoken: dynamic time warping of the decoder's attention to the sound.

After openai-whisper's timing.py, whose corrections for overlong words are kept as they are.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pipelines.asr.audio.features import FRAMES_PER_SECOND
from pipelines.asr.results import Segment, Word
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.engine import EncodedSource

__all__ = ["WordAligner", "split_words", "dynamic_time_warping"]

_POSITIONS_PER_SECOND = 50  # of the encoder
_MEDIAN_WIDTH = 7  # positions
_SENTENCE_ENDS = ".。!！?？"
_LONGEST_USUAL = 0.7  # seconds of the median word
# Written without spaces: any whole character may begin a word.
_UNSPACED = {"zh", "ja", "th", "lo", "my", "yue"}

Attend = Callable[[EncodedSource, Sequence[int]], tuple[Tensor, Tensor]]
"""(memory, tokens) → (logits [tokens, vocab], attention [heads, tokens, positions])"""


@dataclass
class _Timing:
    word: str
    tokens: int
    start: float
    end: float
    probability: float


class WordAligner:
    """Gives the segments of a recording their words, window after window.

    start: the decoder's prompt up to the task, without time stamps. prepended, appended:
    punctuation that belongs to the word behind, or before it.
    """

    def __init__(
        self,
        attend: Attend,
        tokenizer: WhisperTokenizer,
        *,
        sot_sequence: Sequence[int],
        language: str,
        prepended: str,
        appended: str,
        last_speech: float = 0.0,
    ) -> None:
        """last_speech: seconds of the recording at which the speech before it ended."""
        self._attend, self._tokenizer = attend, tokenizer
        self._sot_sequence = tuple(sot_sequence)
        self._language, self._prepended, self._appended = language, prepended, appended
        self._last_speech = last_speech

    def add(
        self, segments: Sequence[Segment], encoded: EncodedSource, frames: int
    ) -> list[Segment]:
        """The segments of one window with their words, and with their times set to these."""
        texts = [[t for t in s.tokens if t < self._tokenizer.special.eot] for s in segments]
        timings = self._timings(list(chain.from_iterable(texts)), encoded, frames)
        durations = np.array([t.end - t.start for t in timings])
        durations = durations[durations.nonzero()]
        median = min(_LONGEST_USUAL, float(np.median(durations)) if len(durations) else 0.0)
        if len(durations):
            _shorten_at_sentence_ends(timings, 2 * median)
        _join_punctuation(timings, self._prepended, self._appended)
        offset, rest, done = segments[0].seek / FRAMES_PER_SECOND, iter(timings), []
        for segment, text in zip(segments, texts, strict=True):
            words = list(_words(rest, len(text), offset))
            done.append(self._fitted(segment, words, median))
        self._last_speech = next((s.words[-1].end for s in reversed(done) if s.words), done[-1].end)
        return done

    def _timings(self, text: list[int], encoded: EncodedSource, frames: int) -> list[_Timing]:
        special = self._tokenizer.special
        if not text:
            return []
        tokens = [*self._sot_sequence, special.no_timestamps, *text, special.eot]
        logits, attention = self._attend(encoded, tokens)
        chances = logits[len(self._sot_sequence) :, : special.eot].softmax(-1)
        sure = chances[range(len(text)), text].tolist()
        rows, positions = dynamic_time_warping(-self._matrix(attention, frames).numpy())
        words = split_words(self._tokenizer, [*text, special.eot], self._language)
        if len(words) <= 1:
            return []
        bounds = np.cumsum([0, *(len(ids) for _, ids in words[:-1])])
        jumps = np.concatenate([[True], np.diff(rows) > 0])
        times = positions[jumps] / _POSITIONS_PER_SECOND
        return [
            _Timing(word, len(ids), float(times[a]), float(times[b]), float(np.mean(sure[a:b])))
            for (word, ids), (a, b) in zip(words[:-1], pairwise(bounds), strict=True)
        ]

    def _matrix(self, attention: Tensor, frames: int) -> Tensor:
        """How well each text token fits each position, [tokens, positions]."""
        seen = attention[:, :, : frames // 2]
        seen = seen / seen.sum(-1, keepdim=True)
        deviation, mean = torch.std_mean(seen, dim=-2, keepdim=True, correction=0)
        seen = (seen - mean) / deviation
        half = _MEDIAN_WIDTH // 2
        if seen.shape[-1] > half:
            padded = F.pad(seen, (half, half, 0, 0), mode="reflect")
            seen = padded.unfold(-1, _MEDIAN_WIDTH, 1).sort()[0][..., half]
        return seen.mean(0)[len(self._sot_sequence) : -1]

    def _fitted(self, segment: Segment, words: list[Word], median: float) -> Segment:
        """A segment with its words, where the two agree on where it begins and ends."""
        if not words:
            return segment
        longest = 2 * median
        first = words[0]
        if first.end - self._last_speech > 4 * median and (
            first.end - first.start > longest
            or (len(words) > 1 and words[1].end - first.start > 2 * longest)
        ):
            # After a pause words tend to begin too early.
            if len(words) > 1 and words[1].end - words[1].start > longest:
                border = max(words[1].end / 2, words[1].end - longest)
                words[0] = replace(words[0], end=border)
                words[1] = replace(words[1], start=border)
            words[0] = replace(words[0], start=max(0, words[0].end - longest))
        start, end = segment.start, segment.end
        if start < words[0].end and start - 0.5 > words[0].start:
            words[0] = replace(words[0], start=max(0, min(words[0].end - median, start)))
        else:
            start = words[0].start
        if end > words[-1].start and end + 0.5 < words[-1].end:
            words[-1] = replace(words[-1], end=max(words[-1].start + median, end))
        else:
            end = words[-1].end
        self._last_speech = end
        return replace(segment, start=start, end=end, words=tuple(words))


def split_words(
    tokenizer: WhisperTokenizer, tokens: Sequence[int], language: str
) -> list[tuple[str, list[int]]]:
    """Words with their tokens: at spaces and punctuation, or at whole characters where the
    language is written without spaces."""
    pieces = list(_characters(tokenizer, tokens))
    if language in _UNSPACED:
        return pieces
    words: list[tuple[str, list[int]]] = []
    for text, ids in pieces:
        begins = text.startswith(" ") or text.strip() in string.punctuation
        if begins or not words or ids[0] >= tokenizer.special.eot:
            words.append((text, ids))
        else:
            words[-1] = (words[-1][0] + text, words[-1][1] + ids)
    return words


def _characters(
    tokenizer: WhisperTokenizer, tokens: Sequence[int]
) -> Iterator[tuple[str, list[int]]]:
    """The shortest runs of tokens that are whole characters."""
    whole, at, run = tokenizer.decode(tokens), 0, list[int]()
    for token in tokens:
        run.append(token)
        text = tokenizer.decode(run)
        broken = text.find("\ufffd")
        # What is broken in the whole text, too, will not be mended by more tokens.
        if broken < 0 or whole[at + broken] == "\ufffd":
            yield text, run
            at, run = at + len(text), []


def dynamic_time_warping(cost: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The cheapest way through a matrix from corner to corner, step by step to the right, down,
    or both: its rows and its columns. Ties and rounding as in openai-whisper's dtw_cpu.
    """
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    steps = np.full((rows + 1, columns + 1), -1, np.int8)
    total[0, 0] = 0
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        step = np.where((both < down) & (both < right), 0,
                        np.where((down < both) & (down < right), 1, 2))  # fmt: skip
        least = np.choose(step, [both, down, right])
        total[i, j] = cost[i - 1, j - 1].astype(np.float64) + least
        steps[i, j] = step
    steps[0, :], steps[:, 0] = 2, 1
    path, i, j = [], rows, columns
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        step = steps[i, j]
        i, j = i - (step != 2), j - (step != 1)
    way = np.array(path[::-1])
    return way[:, 0], way[:, 1]


def _words(timings: Iterator[_Timing], tokens: int, offset: float) -> Iterator[Word]:
    """The words of the next so many tokens; those merged into neighbours are left out."""
    while tokens > 0 and (timing := next(timings, None)) is not None:
        if timing.word:
            start, end = round(offset + timing.start, 2), round(offset + timing.end, 2)
            yield Word(timing.word, start, end, timing.probability)
        tokens -= timing.tokens


def _shorten_at_sentence_ends(timings: list[_Timing], longest: float) -> None:
    for before, timing in pairwise(timings):
        if timing.end - timing.start > longest:
            if timing.word in _SENTENCE_ENDS:
                timing.end = timing.start + longest
            elif before.word in _SENTENCE_ENDS:
                timing.start = timing.end - longest


def _join_punctuation(timings: list[_Timing], prepended: str, appended: str) -> None:
    """Punctuation goes to its word; what is left of it is an empty word without tokens."""
    after = len(timings) - 1
    for index in range(len(timings) - 2, -1, -1):
        mark, word = timings[index], timings[after]
        if mark.word.startswith(" ") and mark.word.strip() in prepended:
            word.word, word.tokens = mark.word + word.word, mark.tokens + word.tokens
            mark.word, mark.tokens = "", 0
        else:
            after = index
    before = 0
    for index in range(1, len(timings)):
        word, mark = timings[before], timings[index]
        if not word.word.endswith(" ") and mark.word in appended:
            word.word, word.tokens = word.word + mark.word, word.tokens + mark.tokens
            mark.word, mark.tokens = "", 0
        else:
            before = index
