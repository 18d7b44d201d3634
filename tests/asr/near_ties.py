"""Counts where two runs in float32 chose different tokens: only where the best two are near ties.

Rows of a float32 product depend on the other rows of its batch in their last digits, and a run that
goes on after a checkpoint has other batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pipelines.asr import Samples, Segment, TranscribeOptions, Transcriber, split_recording
from pipelines.asr.audio.features import FRAMES_PER_SECOND

__all__ = ["NEAR", "Difference", "differences"]

NEAR = 1e-4
"""Two tokens whose log-probabilities differ by less are a near tie."""


@dataclass(frozen=True)
class Difference:
    """A chunk for which two runs chose different tokens.

    Attributes:
        start_s: When it begins.
        gap: The difference of the log-probabilities of the first two tokens that differ; the
            tokens after them have other texts before them.
    """

    start_s: float
    gap: float


def differences(
    transcriber: Transcriber,
    samples: Samples,
    options: TranscribeOptions,
    language: str,
    first: Iterable[Segment],
    second: Iterable[Segment],
) -> list[Difference]:
    """The chunks for which two runs with a batch size above 1 have different tokens."""
    ours, others = _tokens(first), _tokens(second)
    found: list[Difference] = []
    recognizer = transcriber.recognizer
    for part in split_recording(samples, options, transcriber.window_s):
        frames = range(part.start_frame, part.end_frame)
        seeks = sorted(seek for seek in {*ours, *others} if seek in frames)
        different = [seek for seek in seeks if ours[seek] != others[seek]]
        if not different:
            continue
        mel, _ = recognizer.chunk_features(part).window(different[0])
        same = _common(ours[different[0]], others[different[0]])
        special = transcriber.tokenizer.special
        start = [special.sot]
        if transcriber.capabilities.multilingual:
            start += [special.languages[language], special.transcribe]  # type: ignore[list-item]
        logits = transcriber.model.score(transcriber.encode([mel])[0], [*start, *same])[-1]
        a, b = (
            (*tokens, special.eot)[len(same)]
            for tokens in (ours[different[0]], others[different[0]])
        )
        found.append(
            Difference(different[0] / FRAMES_PER_SECOND, float(abs(logits[a] - logits[b])))
        )
    return found


def _tokens(segments: Iterable[Segment]) -> defaultdict[int, tuple[int, ...]]:
    """The tokens of each window, by its first frame."""
    windows: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
    for segment in segments:
        windows[segment.seek] += segment.tokens
    return windows


def _common(first: Sequence[int], second: Sequence[int]) -> list[int]:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return [a for a, _ in pairs]
