"""Options of a transcription."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypedDict

from pipelines.decoding_choices import OwnLogitFilter, check_choices
from pipelines.errors import OptionError
from pipelines.languages import language_code

__all__ = ["TranscribeOptions", "TranscribeOverrides"]

_PARALLEL_CHUNKS = 8

_VAD_FIELDS = (
    "vad_threshold",
    "vad_neg_threshold",
    "vad_min_speech_duration_ms",
    "vad_max_speech_duration_s",
    "vad_min_silence_duration_ms",
    "vad_speech_pad_ms",
)


@dataclass(frozen=True)
class TranscribeOptions:
    """How to transcribe. Names are openai-whisper's, and so are defaults, except that a recording
    is decoded in chunks without its silence: `batch_size=1` decodes as openai-whisper.

    Attributes:
        language: Code ("de") or English name ("German"). None: detected in the first window.
        task: "transcribe", or "translate" into English.
        temperature: One sampling temperature, or several for temperature fallback: the next one
            is used when a window's text fails a threshold. If all fail, the best attempt is kept:
            the most probable of those that are not repetitive, else of all. Repetitive text that is
            probable, and no longer than the sound allows, was said, and does not fail.
        beam_size: Number of beams at temperature 0. None: greedy decoding.
        best_of: Number of samples above temperature 0, of which the best is taken. None: 1.
        patience: Beam search stops after `beam_size * patience` finished hypotheses. None: 1.
        length_penalty: Alpha of the length penalty that ranks hypotheses (Wu et al. 2016), 0 to
            1. None: hypotheses are ranked by mean log-probability.
        compression_ratio_threshold: Text that zlib compresses by more than this factor is
            repetitive, and the window fails. None: not checked.
        logprob_threshold: The window fails when the mean log-probability of its tokens is below
            this. None: not checked.
        no_speech_threshold: A window is skipped as silent when its no-speech probability is above
            this and its mean log-probability is not above `logprob_threshold`. None: no window is
            skipped.
        condition_on_previous_text: Give the text so far as the prompt of the next window.
        initial_prompt: Text before the first window: names, spelling, style.
        carry_initial_prompt: Text before every window: the text so far has what room is left.
        prefix: Text with which the first window begins, and the result.
        hotwords: Names and terms to prefer: text before every window, besides the text so far.
            Without effect on the window that `prefix` begins.
        clip_timestamps: Seconds of the parts to decode: start, end, start, end …; the last end may
            be left out. In chunks the rest of the recording is silenced. The language is
            detected at the start of the recording, or in its first chunk, or, of two unlike
            channels, in the first part.
        multilingual: Detect the language of each window, or of each chunk.
        suppress_blank: A window does not begin with a space alone, or with the end of text.
        suppress_tokens: Ids that are never generated. -1 stands for the symbols that are written
            but not spoken.
        without_timestamps: One segment a window, without timestamp tokens. A word that the end of
            a window cuts is then lost.
        max_initial_timestamp: The first segment of a window begins at most this many seconds after
            the window's start. None: no limit.
        word_timestamps: Also compute the times of each word. Segments then begin with their first
            word and end with their last.
        prepend_punctuations: Punctuation that belongs to the word after it.
        append_punctuations: Punctuation that belongs to the word before it.
        hallucination_silence_threshold: Skip silence longer than this (s) where text next to it
            was probably made up; needs `word_timestamps`. None: nothing is skipped.
        vad_filter: Leave out parts without speech, which Silero's network finds. None: in chunks,
            which require it, but not with a `batch_size` of 1.
        vad_threshold: Probability above which there is speech. None: 0.35, and 0.5 with a
            `batch_size` of 1.
        vad_neg_threshold: Probability below which speech ends. None: 0.15 below `vad_threshold`.
        vad_min_speech_duration_ms: Shorter speech is left out. None: 100, and 0.
        vad_max_speech_duration_s: Longer speech is cut. None: the model's window, and unlimited.
        vad_min_silence_duration_ms: Silence of this length ends speech. None: 200, and 2000.
        vad_speech_pad_ms: Audio kept around speech. None: 200 before it, and 400.
        n_best: How many hypotheses of a window its segments carry as `alternatives`; more than 1
            needs as many beams or, above temperature 0, samples.
        token_logprobs: Segments carry the log-probability of each token of their text.
        repetition_penalty: Divides the score of tokens that the window's text has already, as in
            faster-whisper; 1 is none.
        no_repeat_ngram_size: No n-gram of this size occurs twice in a window; 0: off.
        suppress_phrases: Texts that are not written, as the tokenizer spells them.
        forced_phrases: Texts that the first window contains, if its length allows.
        logit_filters: Your own filters, applied after all others (`pipelines.engine.LogitFilter`).
        seed: Makes sampling above temperature 0 repeatable. None: random.
        batch_size: Above 1: the recording is cut at pauses into chunks, and up to this many are
            decoded in parallel. Each chunk begins with `initial_prompt`, and
            `condition_on_previous_text` does not reach into the next one. On a CPU it is encoded
            with some silence behind it instead of padding to the window; where its text ends
            early, the rest is decoded, too, and where the text is too little for its length, it is
            padded and decoded again. Parts without speech are left out. A stream of blocks is read
            ahead. 1: one window after the other, as openai-whisper. None: 8, or 1 if `vad_filter`
            is False.
        chunk_s: Longest chunk in seconds. None: the model's window.
        priority: Of the requests, on a shared engine: a lower number goes first.
        openai_rules: Keep openai-whisper's rules where others serve better. When all temperatures
            fail, its text is the last attempt's, not the best one's; repetitive text always fails;
            and times may lie after the end of the recording, or before those of the segment before.

    Raises:
        OptionError: A value is out of its range, or a combination makes no sense.
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
    carry_initial_prompt: bool = False
    prefix: str | None = None
    hotwords: str | None = None
    clip_timestamps: tuple[float, ...] = ()
    multilingual: bool = False
    suppress_blank: bool = True
    suppress_tokens: tuple[int, ...] = (-1,)
    without_timestamps: bool = False
    max_initial_timestamp: float | None = 1.0
    word_timestamps: bool = False
    prepend_punctuations: str = "\"'“¿([{-"
    append_punctuations: str = "\"'.。,，!！?？:：”)]}、"
    hallucination_silence_threshold: float | None = None
    vad_filter: bool | None = None
    vad_threshold: float | None = None
    vad_neg_threshold: float | None = None
    vad_min_speech_duration_ms: int | None = None
    vad_max_speech_duration_s: float | None = None
    vad_min_silence_duration_ms: int | None = None
    vad_speech_pad_ms: int | None = None
    n_best: int = 1
    token_logprobs: bool = False
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    suppress_phrases: tuple[str, ...] = ()
    forced_phrases: tuple[str, ...] = ()
    logit_filters: tuple[OwnLogitFilter, ...] = ()
    seed: int | None = 0
    batch_size: int | None = None
    chunk_s: float | None = None
    priority: int = 2
    openai_rules: bool = False

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
        self._check_parts()
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
        check_choices(
            self.n_best,
            self.repetition_penalty,
            self.no_repeat_ngram_size,
            (*self.suppress_phrases, *self.forced_phrases),
        )
        sequences = self.best_of if self.temperatures[0] else self.beam_size
        if self.n_best > (sequences or 1):
            needed = "best_of" if self.temperatures[0] else "beam_size"
            raise OptionError(f"n_best {self.n_best} needs a {needed} of {self.n_best} or more")

    def _check_parts(self) -> None:
        """Check what says which parts of a recording are decoded."""
        for point in self.clip_timestamps:
            if not (math.isfinite(point) and point >= 0):
                raise OptionError(f"clip_timestamps must be 0 s or more, not {point}")
        starts, ends = self.clip_timestamps[::2], self.clip_timestamps[1::2]
        for start, end in zip(starts, ends, strict=False):
            if end <= start:
                raise OptionError(f"clip_timestamps: the part from {start} to {end} s is empty")
        threshold = self.hallucination_silence_threshold
        if threshold is not None:
            if not (math.isfinite(threshold) and threshold >= 0):
                raise OptionError(
                    f"hallucination_silence_threshold must be 0 s or more, not {threshold}"
                )
            if not self.word_timestamps:
                raise OptionError("hallucination_silence_threshold needs word_timestamps")
        self._check_vad()
        if self.vad_filter and self.clip_timestamps and not self.in_chunks:
            raise OptionError("clip_timestamps and vad_filter exclude each other")
        if self.vad_filter is False and self.in_chunks:
            raise OptionError(
                "vad_filter cannot be off with a batch_size above 1: chunks are cut where nobody "
                "speaks"
            )
        if self.vad_filter is not True and not self.in_chunks:
            for name in _VAD_FIELDS:
                if getattr(self, name) is not None:
                    raise OptionError(f"{name} needs vad_filter")

    def _check_vad(self) -> None:
        """Check the limits of voice activity detection."""
        for name in ("vad_threshold", "vad_neg_threshold"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise OptionError(f"{name} must lie between 0 and 1, not be {value}")
        for name in _VAD_FIELDS[2:]:
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise OptionError(f"{name} must be 0 or more, not {value}")
        if self.vad_max_speech_duration_s is not None and self.vad_max_speech_duration_s < 2:
            raise OptionError(
                f"vad_max_speech_duration_s must be 2 s or more, not "
                f"{self.vad_max_speech_duration_s}"
            )

    @property
    def parallel_chunks(self) -> int:
        """How many chunks are decoded in parallel; 1: one window after the other."""
        if self.batch_size is not None:
            return self.batch_size
        return 1 if self.vad_filter is False else _PARALLEL_CHUNKS

    @property
    def in_chunks(self) -> bool:
        """Whether recordings are decoded in chunks, not one window after the other."""
        return self.parallel_chunks > 1

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The temperatures to try, in this order."""
        if isinstance(self.temperature, (int, float)):
            return (float(self.temperature),)
        return tuple(self.temperature)


class TranscribeOverrides(TypedDict, total=False):
    """Keyword arguments that replace fields of `TranscribeOptions`, which describes them."""

    language: str | None
    task: Literal["transcribe", "translate"]
    temperature: float | tuple[float, ...]
    beam_size: int | None
    best_of: int | None
    patience: float | None
    length_penalty: float | None
    compression_ratio_threshold: float | None
    logprob_threshold: float | None
    no_speech_threshold: float | None
    condition_on_previous_text: bool
    initial_prompt: str | None
    carry_initial_prompt: bool
    prefix: str | None
    hotwords: str | None
    clip_timestamps: tuple[float, ...]
    multilingual: bool
    suppress_blank: bool
    suppress_tokens: tuple[int, ...]
    without_timestamps: bool
    max_initial_timestamp: float | None
    word_timestamps: bool
    prepend_punctuations: str
    append_punctuations: str
    hallucination_silence_threshold: float | None
    vad_filter: bool | None
    vad_threshold: float | None
    vad_neg_threshold: float | None
    vad_min_speech_duration_ms: int | None
    vad_max_speech_duration_s: float | None
    vad_min_silence_duration_ms: int | None
    vad_speech_pad_ms: int | None
    n_best: int
    token_logprobs: bool
    repetition_penalty: float
    no_repeat_ngram_size: int
    suppress_phrases: tuple[str, ...]
    forced_phrases: tuple[str, ...]
    logit_filters: tuple[OwnLogitFilter, ...]
    seed: int | None
    batch_size: int | None
    chunk_s: float | None
    priority: int
    openai_rules: bool
