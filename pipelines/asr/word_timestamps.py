"""Word timestamps: dynamic time warping of the decoder's cross-attention.

After openai-whisper's timing.py, including its corrections for overlong words.
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

_POSITIONS_PER_SECOND = 50  # of the encoder's output
_MEDIAN_WIDTH = 7  # positions
_SENTENCE_ENDS = ".。!！?？"
_MAX_MEDIAN_S = 0.7  # limit of the median word duration
# Languages written without spaces: a word may begin at any character.
_UNSPACED_LANGUAGES = {"zh", "ja", "th", "lo", "my", "yue"}

Attend = Callable[[EncodedSource, Sequence[int]], tuple[Tensor, Tensor]]
"""(encoded window, tokens) → (logits [tokens, vocab], attention [heads, tokens, positions])"""


@dataclass
class _Timing:
    """A word while it is aligned. Times are seconds from the start of the window."""

    word: str
    tokens: int  # their number
    start: float
    end: float
    probability: float


class WordAligner:
    """Adds words to the segments of a recording, window after window."""

    def __init__(
        self,
        attend: Attend,
        tokenizer: WhisperTokenizer,
        *,
        sot_sequence: Sequence[int],
        language: str,
        prepended: str,
        appended: str,
    ) -> None:
        self._attend, self._tokenizer = attend, tokenizer
        self._sot_sequence = tuple(sot_sequence)
        self._language, self._prepended, self._appended = language, prepended, appended

    def add(
        self,
        segments: Sequence[Segment],
        encoded: EncodedSource,
        frames: int,
        last_speech: float = 0.0,
    ) -> list[Segment]:
        """Add words to the segments of one window.

        Args:
            segments: All segments of the window.
            encoded: The encoded window.
            frames: How many frames (10 ms) of the window are audio.
            last_speech: Seconds at which the speech before the window ended.

        Returns:
            The segments with their words; start and end are those of the words.
        """
        texts = [[t for t in s.tokens if t < self._tokenizer.special.eot] for s in segments]
        timings = self._timings(list(chain.from_iterable(texts)), encoded, frames)
        durations = np.array([t.end - t.start for t in timings])
        durations = durations[durations.nonzero()]
        median = min(_MAX_MEDIAN_S, float(np.median(durations)) if len(durations) else 0.0)
        if len(durations):
            _shorten_at_sentence_ends(timings, 2 * median)
        _join_punctuation(timings, self._prepended, self._appended)
        offset, remaining, done = segments[0].seek / FRAMES_PER_SECOND, iter(timings), []
        for segment, text in zip(segments, texts, strict=True):
            words = list(_words(remaining, len(text), offset))
            if words:
                segment = _with_words(segment, words, median, last_speech)
                last_speech = segment.end
            done.append(segment)
        return done

    def _timings(self, text: list[int], encoded: EncodedSource, frames: int) -> list[_Timing]:
        """The words of a window's text tokens with their times."""
        special = self._tokenizer.special
        if not text:
            return []
        tokens = [*self._sot_sequence, special.no_timestamps, *text, special.eot]
        logits, attention = self._attend(encoded, tokens)
        probs = logits[len(self._sot_sequence) :, : special.eot].softmax(-1)
        token_probs = probs[range(len(text)), text].tolist()
        rows, positions = dynamic_time_warping(-self._scores(attention, frames).numpy())
        words = split_words(self._tokenizer, [*text, special.eot], self._language)
        if len(words) <= 1:
            return []
        bounds = np.cumsum([0, *(len(ids) for _, ids in words[:-1])])
        jumps = np.concatenate([[True], np.diff(rows) > 0])
        times = positions[jumps] / _POSITIONS_PER_SECOND
        return [
            _Timing(
                word, len(ids), float(times[a]), float(times[b]), float(np.mean(token_probs[a:b]))
            )
            for (word, ids), (a, b) in zip(words[:-1], pairwise(bounds), strict=True)
        ]

    def _scores(self, attention: Tensor, frames: int) -> Tensor:
        """Alignment scores [text tokens + 1, positions]: attention, normalised over the tokens,
        median-filtered over the positions, and averaged over the heads."""
        weights = attention[:, :, : frames // 2]  # [heads, tokens, positions]
        weights = weights / weights.sum(-1, keepdim=True)
        deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, correction=0)
        weights = (weights - mean) / deviation
        half = _MEDIAN_WIDTH // 2
        if weights.shape[-1] > half:
            padded = F.pad(weights, (half, half, 0, 0), mode="reflect")
            weights = padded.unfold(-1, _MEDIAN_WIDTH, 1).sort()[0][..., half]
        return weights.mean(0)[len(self._sot_sequence) : -1]


def split_words(
    tokenizer: WhisperTokenizer, tokens: Sequence[int], language: str
) -> list[tuple[str, list[int]]]:
    """Split tokens into words.

    Args:
        tokenizer: The model's vocabulary.
        tokens: Text ids; special tokens become words of their own.
        language: Code. Words begin at spaces and punctuation, or at every character where the
            language is written without spaces.

    Returns:
        (text, ids) of each word.
    """
    characters = list(_characters(tokenizer, tokens))
    if language in _UNSPACED_LANGUAGES:
        return characters
    words: list[tuple[str, list[int]]] = []
    for text, ids in characters:
        begins = text.startswith(" ") or text.strip() in string.punctuation
        if begins or not words or ids[0] >= tokenizer.special.eot:
            words.append((text, ids))
        else:
            words[-1] = (words[-1][0] + text, words[-1][1] + ids)
    return words


def _characters(
    tokenizer: WhisperTokenizer, tokens: Sequence[int]
) -> Iterator[tuple[str, list[int]]]:
    """(text, ids) of the shortest runs of tokens that decode to complete characters."""
    full_text, at, run = tokenizer.decode(tokens), 0, list[int]()
    for token in tokens:
        run.append(token)
        text = tokenizer.decode(run)
        broken = text.find("\ufffd")
        # Invalid UTF-8 in the full text as well is not completed by further tokens.
        if broken < 0 or full_text[at + broken] == "\ufffd":
            yield text, run
            at, run = at + len(text), []


def dynamic_time_warping(cost: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The cheapest monotonic path through a matrix from its first to its last cell.

    Each step goes down, right, or both. Ties and rounding are those of openai-whisper's dtw_cpu.

    Args:
        cost: [rows, columns].

    Returns:
        Row indices [n] and column indices [n] of the path.
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
    indices = np.array(path[::-1])
    return indices[:, 0], indices[:, 1]


def _words(timings: Iterator[_Timing], tokens: int, offset: float) -> Iterator[Word]:
    """The words of the next `tokens` tokens, without those merged into a neighbour."""
    while tokens > 0 and (timing := next(timings, None)) is not None:
        if timing.word:
            start, end = round(offset + timing.start, 2), round(offset + timing.end, 2)
            yield Word(timing.word, start, end, timing.probability)
        tokens -= timing.tokens


def _shorten_at_sentence_ends(timings: list[_Timing], longest: float) -> None:
    """Limit words at sentence boundaries to `longest` seconds, in place."""
    for before, timing in pairwise(timings):
        if timing.end - timing.start > longest:
            if timing.word in _SENTENCE_ENDS:
                timing.end = timing.start + longest
            elif before.word in _SENTENCE_ENDS:
                timing.start = timing.end - longest


def _join_punctuation(timings: list[_Timing], prepended: str, appended: str) -> None:
    """Merge punctuation into its word, in place; an empty word without tokens remains."""
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


def _with_words(segment: Segment, words: list[Word], median: float, last_speech: float) -> Segment:
    """The segment with its words, their bounds reconciled."""
    longest = 2 * median
    first = words[0]
    if first.end - last_speech > 4 * median and (
        first.end - first.start > longest
        or (len(words) > 1 and words[1].end - first.start > 2 * longest)
    ):
        # After a pause the first words tend to begin too early.
        if len(words) > 1 and words[1].end - words[1].start > longest:
            boundary = max(words[1].end / 2, words[1].end - longest)
            words[0] = replace(words[0], end=boundary)
            words[1] = replace(words[1], start=boundary)
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
    return replace(segment, start=start, end=end, words=tuple(words))
