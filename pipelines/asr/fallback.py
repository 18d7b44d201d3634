"""Which attempt at a window is kept: temperature fallback.

After openai-whisper's decode_with_fallback, and faster-whisper's choice where all attempts fail.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.asr.audio.features import FRAMES_PER_SECOND
from pipelines.asr.options import TranscribeOptions
from pipelines.decoding_choices import Alternative

_NO_SPEECH_IN_REST = 0.3  # probability above which what follows an early end of the text is noise
# Repetitive text that is this probable, and no faster than people speak, was said. A loop runs on
# to the last token or timestamp: it has more text than fits into the sound, or no end, or its last
# segments have next to no time. The times of segments may be wrong, but not by that much.
_PROBABLE = -0.5  # mean log-probability
_FASTEST = 25.0  # characters of text in a second of sound
_FASTEST_SEGMENT = 100.0  # characters in a second of a segment
_LESS_PROBABLE = 2  # attempts in a row less probable than the best: more heat does not help


@dataclass(frozen=True)
class WindowResult:
    """The decoded tokens of a window, and the figures that fallback is decided by.

    Attributes:
        tokens: Generated ids, without end of text.
        temperature: The sampling temperature.
        avg_logprob: Sum of log-probabilities of tokens and end of text, divided by the number of
            tokens + 1.
        compression_ratio: See `compression_ratio`.
        no_speech_prob: Probability of the no-speech token; 0 if the vocabulary has none.
        alternatives: The `n_best` hypotheses, the result first; empty for a single one.
        logprobs: Log-probability of each token.
        characters: Length of the text.
        fastest: Characters in a second of the segment that has the most.
        ended: The model ended the text itself, before the longest that is decoded.
    """

    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    alternatives: tuple[Alternative, ...] = ()
    logprobs: tuple[float, ...] = ()
    characters: int = 0
    fastest: float = 0.0
    ended: bool = True

    def is_repetitive(self, threshold: float | None) -> bool:
        """Whether the compression ratio is above the threshold; None is above all."""
        return threshold is not None and self.compression_ratio > threshold


def compression_ratio(text: str) -> float:
    """UTF-8 length divided by zlib-compressed length. High for repetitive text."""
    data = text.encode("utf-8")
    return len(data) / len(zlib.compress(data))


class Fallback:
    """Decides by the thresholds of the options when an attempt at a window is good enough, when
    further ones are in vain, and which one is kept. `frames` are those of the sound, of 10 ms."""

    def __init__(self, options: TranscribeOptions) -> None:
        self._options = options

    def is_silent(self, result: WindowResult) -> bool:
        """Return whether to skip the window: speech is improbable, and so is its text."""
        options = self._options
        probable_text = (
            options.logprob_threshold is not None and result.avg_logprob > options.logprob_threshold
        )
        return self._lacks_speech(result) and not probable_text

    def is_repetitive(self, result: WindowResult) -> bool:
        """Return whether the text's compression ratio is above the threshold."""
        return result.is_repetitive(self._options.compression_ratio_threshold)

    def is_reliable(self, result: WindowResult) -> bool:
        """Return whether the text may be the prompt of the next window."""
        certain = result.temperature <= self._options.prompt_reset_on_temperature
        return certain and (self._options.openai_rules or not self._fails(result))

    def is_good(self, result: WindowResult, frames: int) -> bool:
        """Return whether an attempt needs no further one."""
        if not self._fails(result):
            return True
        return not self._options.openai_rules and self._was_said(result, frames)

    def goes_on(self, attempts: Sequence[WindowResult], frames: int) -> bool:
        """Return whether a higher temperature may help, given the failed attempts so far."""
        if self._options.openai_rules:
            return True
        best = self.best(attempts, frames)
        in_vain = len(attempts) - 1 - list(attempts).index(best) >= _LESS_PROBABLE
        return self._is_loop(best, frames) or not in_vain

    def best(self, attempts: Sequence[WindowResult], frames: int) -> WindowResult:
        """Return the attempt that is kept when all have failed."""
        if self._options.openai_rules:
            return attempts[-1]
        varied = [each for each in attempts if not self._is_loop(each, frames)]
        return max(varied or attempts, key=lambda each: each.avg_logprob)

    def is_noise(self, result: WindowResult, frames: int) -> bool:
        """Return whether the text of the rest of a chunk was made up of noise."""
        if self._options.no_speech_threshold is None:
            return False
        return result.no_speech_prob > _NO_SPEECH_IN_REST or not _fits(result, frames)

    def _was_said(self, result: WindowResult, frames: int) -> bool:
        """Return whether repetitive text is likely to have been said as it is."""
        return not self._lacks_speech(result) and _is_plausible(result, frames)

    def _is_loop(self, result: WindowResult, frames: int) -> bool:
        """Return whether text is repetitive, and not as it would be if it had been said."""
        return self.is_repetitive(result) and not _is_plausible(result, frames)

    def _fails(self, result: WindowResult) -> bool:
        """Return whether the text is repetitive or improbable, and the window not silent."""
        options = self._options
        improbable = (
            options.logprob_threshold is not None and result.avg_logprob < options.logprob_threshold
        )
        silent = self._lacks_speech(result) and improbable
        return (self.is_repetitive(result) or improbable) and not silent

    def _lacks_speech(self, result: WindowResult) -> bool:
        """Return whether speech is improbable in the sound."""
        threshold = self._options.no_speech_threshold
        return threshold is not None and result.no_speech_prob > threshold


def _is_plausible(result: WindowResult, frames: int) -> bool:
    """Return whether the text is probable, complete, and can be said in the time."""
    probable = result.ended and result.avg_logprob >= _PROBABLE
    return probable and _fits(result, frames) and result.fastest <= _FASTEST_SEGMENT


def _fits(result: WindowResult, frames: int) -> bool:
    """Return whether the text can be said within `frames` of 10 ms."""
    return result.characters <= _FASTEST * frames / FRAMES_PER_SECOND
