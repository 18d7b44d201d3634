"""What can be chosen about a transcription."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pipelines.errors import OptionError
from pipelines.languages import language_code

__all__ = ["TranscribeOptions"]


@dataclass(frozen=True)
class TranscribeOptions:
    """How to transcribe; names and defaults are openai-whisper's.

    language: code or English name; None detects it. task: "transcribe", or "translate" into
        English.
    temperature: one, or several to fall back through when a window's text fails a threshold.
    beam_size: at temperature 0, search with so many beams; None: greedily. patience: scales how
        many hypotheses the search collects, 1 where None. best_of: above temperature 0, take the
        best of so many samples.
    length_penalty: ranks hypotheses by the Google NMT paper's length penalty, 0 to 1; None: by
        their mean log-probability.
    compression_ratio_threshold: text that zlib shrinks more than this repeats itself: failed.
    logprob_threshold: mean log-probability of a window's tokens below this: failed.
    no_speech_threshold: a window more surely silent than this, and below logprob_threshold, is
        skipped. None turns any of the three off.
    condition_on_previous_text: let the text so far be the prompt of the next window.
    initial_prompt: text put before the first window: names, spelling, style.
    suppress_blank: a window never begins with a space alone.
    suppress_tokens: ids never chosen; -1 stands for the symbols that are not spoken.
    without_timestamps: one segment a window, with text only. A word that is cut by the end of a
        window is then lost.
    max_initial_timestamp: seconds; a window's first segment begins by then. None: anywhere.
    word_timestamps: also find when each word is spoken; segments then begin and end with theirs.
    prepend_punctuations, append_punctuations: go to the word behind, or before them.
    seed: makes sampling above temperature 0 repeatable; None draws anew each time.
    batch_size: 1: window after window, exactly as openai-whisper. Above, the recording is cut at
        pauses, and up to so many pieces are decoded side by side. Each is as a recording of its
        own: it begins with initial_prompt, and condition_on_previous_text does not reach over
        from the one before. What holds no speech is left out. A stream of blocks is read ahead.
    chunk_s: seconds; with a batch_size above 1, no piece is longer. None: as long as the window.

    Raises OptionError for values that make no sense.
    """

    language: str | None = None
    task: Literal["transcribe", "translate"] = "transcribe"
    temperature: float | tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    beam_size: int | None = None
    best_of: int | None = None
    patience: float | None = None
    length_penalty: float | None = None
    compression_ratio_threshold: float | None = 2.4
    logprob_threshold: float | None = -1.0
    no_speech_threshold: float | None = 0.6
    condition_on_previous_text: bool = True
    initial_prompt: str | None = None
    suppress_blank: bool = True
    suppress_tokens: tuple[int, ...] = (-1,)
    without_timestamps: bool = False
    max_initial_timestamp: float | None = 1.0
    word_timestamps: bool = False
    prepend_punctuations: str = "\"'“¿([{-"
    append_punctuations: str = "\"'.。,，!！?？:：”)]}、"
    seed: int | None = 0
    batch_size: int = 1
    chunk_s: float | None = None

    def __post_init__(self) -> None:
        if self.task not in ("transcribe", "translate"):
            raise OptionError(f"task must be 'transcribe' or 'translate', not {self.task!r}")
        if not self.temperatures:
            raise OptionError("temperature needs at least one value")
        for temperature in self.temperatures:
            if not (math.isfinite(temperature) and temperature >= 0):
                raise OptionError(f"temperature must be 0 or more, not {temperature}")
        self._check_search()
        if self.chunk_s is not None and not 2 <= self.chunk_s < math.inf:
            raise OptionError(f"chunk_s must be 2 s or more, not {self.chunk_s}")
        if self.max_initial_timestamp is not None and not self.max_initial_timestamp >= 0:
            raise OptionError(
                f"max_initial_timestamp must be 0 s or more, not {self.max_initial_timestamp}"
            )
        if self.language is not None:
            object.__setattr__(self, "language", language_code(self.language))

    def _check_search(self) -> None:
        for name in ("beam_size", "best_of", "batch_size"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise OptionError(f"{name} must be 1 or more, not {number}")
        if self.patience is not None and not (self.beam_size and 0 < self.patience < math.inf):
            raise OptionError("patience is a number above 0, and needs a beam_size")
        if self.length_penalty is not None and not 0 <= self.length_penalty <= 1:
            raise OptionError(f"length_penalty must be from 0 to 1, not {self.length_penalty}")

    @property
    def temperatures(self) -> tuple[float, ...]:
        """What to try, in order."""
        if isinstance(self.temperature, (int, float)):
            return (float(self.temperature),)
        return tuple(self.temperature)
