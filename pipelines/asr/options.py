"""Options of a transcription, and of voice activity detection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from operator import index
from typing import Any, Literal, TypeVar

from pipelines.decoding_choices import OwnLogitFilter, check_phrases
from pipelines.errors import OptionError
from pipelines.languages import language_code
from pipelines.options import Range, check_fields, described, option, renamed, with_fields

_PARALLEL_CHUNKS = 8
_MIN_CHUNK_S = 2.0

_LANGUAGES, _SILENCE, _WORDS = "Languages", "Silence", "Words and subtitles"
_COUNT = Range(1, whole=True)
_PROBABILITY = Range(above=0, below=1)
_SECONDS = Range(0, unit="s")
_MS = Range(0, unit="ms")

T = TypeVar("T", int, float)


def _in_ms(seconds: float | None, _: object) -> float | None:
    return None if seconds is None else 1000 * seconds


@renamed(
    pre_roll_s=("speech_pad_ms", _in_ms),
    min_speech_s=("min_speech_duration_ms", _in_ms),
    min_silence_s=("min_silence_duration_ms", _in_ms),
    max_utterance_s=("max_speech_duration_s", lambda seconds, _: seconds),
    long_pause_s=("long_pause_ms", _in_ms),
)
@described
@dataclass(frozen=True, kw_only=True)
class VadOptions:
    """What counts as speech, and where it begins and ends. Names and units are faster-whisper's.

    None is the default of what the speech is for: recordings in chunks, recordings window by window
    (faster-whisper's), or live recognition.
    """

    threshold: float = option(
        0.35,
        "Probability from which a frame is speech.",
        "The default is below Silero's 0.5, with which a quarter of what is said in an echoing "
        "room would be lost.",
        range=_PROBABILITY,
        group=_SILENCE,
    )
    neg_threshold: float | None = option(
        None,
        "Probability below which speech ends. None: 0.15 below `threshold`.",
        range=_PROBABILITY,
        group=_SILENCE,
        flags=(),
    )
    min_speech_duration_ms: float | None = option(
        None,
        "Shorter speech is left out. None: 100, and 0 window by window.",
        "Live, and in chunks, shorter dips do not interrupt the speech that starts an utterance.",
        range=_MS,
        group=_SILENCE,
    )
    max_speech_duration_s: float | None = option(
        None,
        "Longer speech is cut. None: in chunks the model's window, else unlimited.",
        "Window by window it is cut at its last silence of 98 ms, else at the quietest point of "
        "its last second.",
        range=Range(0, infinite=True, unit="s"),
        group=_SILENCE,
    )
    min_silence_duration_ms: float | None = option(
        None,
        "Silence of this length ends speech. None: 200 in chunks, 2000 window by window.",
        "Live, None: 600.",
        range=_MS,
        group=_SILENCE,
    )
    speech_pad_ms: float | None = option(
        None,
        "Audio kept around speech; live, and in chunks, before it: the silence that ends it is "
        "kept, too. None: 200 in chunks, 400 window by window, 500 live.",
        range=_MS,
        group=_SILENCE,
        flags=(),
    )
    long_pause_ms: float | None = option(
        None,
        "Live: a shorter pause ends neither the utterance nor its sentence. None: 1500; 0: each "
        "silence ends both.",
        range=_MS,
        group=_SILENCE,
        flags=(),
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.release > self.threshold:
            raise OptionError(
                f"neg_threshold must be at most threshold ({self.threshold}), not {self.release}"
            )

    @classmethod
    def of(cls, given: object, name: str) -> VadOptions:
        """Return options of which a dictionary, or another dataclass, has some.

        Raises:
            OptionError: `given`, the value of the option `name`, is neither, or one is unknown.
        """
        if isinstance(given, cls):
            return given
        if is_dataclass(given) and not isinstance(given, type):
            given = asdict(given)
        if not isinstance(given, Mapping):
            raise OptionError(f"{name} takes VadOptions, or a dictionary, not {given!r}")
        try:
            return with_fields(cls(), given)
        except OptionError as error:
            raise OptionError(f"{name}: {error}") from None

    @property
    def release(self) -> float:
        """neg_threshold, or its default, as in Silero's get_speech_timestamps."""
        if self.neg_threshold is not None:
            return self.neg_threshold
        return max(self.threshold - 0.15, min(self.threshold, 0.01))

    def over(self, defaults: VadOptions) -> VadOptions:
        """Return these options, with `defaults` where they are None."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(defaults, **given)

    def samples(self, name: str) -> int:
        """Return a field in ms as samples at 16 kHz; 0 if it is None."""
        return round(16 * (getattr(self, name) or 0))


def _vad_parameter(name: str) -> tuple[str, Callable[[Any, Any], Any]]:
    """The new place of `vad_NAME`: a field of `vad_parameters`."""

    def convert(value: float | None, given: VadOptions | Mapping[str, Any] | None) -> Any:
        if value is None:
            return given
        known = asdict(given) if isinstance(given, VadOptions) else given or {}
        return {**known, name: value}  # All that are given are checked together.

    return "vad_parameters", convert


@renamed(
    vad_threshold=_vad_parameter("threshold"),
    vad_neg_threshold=_vad_parameter("neg_threshold"),
    vad_min_speech_duration_ms=_vad_parameter("min_speech_duration_ms"),
    vad_max_speech_duration_s=_vad_parameter("max_speech_duration_s"),
    vad_min_silence_duration_ms=_vad_parameter("min_silence_duration_ms"),
    vad_speech_pad_ms=_vad_parameter("speech_pad_ms"),
)
@described
@dataclass(frozen=True)
class TranscribeOptions:
    """How to transcribe. Names are openai-whisper's, and so are defaults, except that a recording
    is decoded in chunks without its silence: `batch_size=1` decodes as openai-whisper.
    """

    language: str | None = option(
        None,
        "Spoken language: a code (de) or an English name (German). None: detected.",
        "Recordings are judged by their first window.",
        group=_LANGUAGES,
        flags=("l", "language"),
        metavar="LANGUAGE|auto",
    )
    task: Literal["transcribe", "translate"] = option(
        "transcribe",
        "translate: into English, by the speech recognition model itself.",
        choices=("transcribe", "translate"),
        group=_LANGUAGES,
    )
    temperature: float | tuple[float, ...] = option(
        (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
        "Sampling temperature; 0 is greedy.",
        "Several are for temperature fallback: the next one is used "
        "when a window's text fails a threshold. If all fail, the best attempt is kept: the "
        "most probable of those that are not repetitive, else of all. Repetitive text that is "
        "probable, and no longer than the sound allows, was said, and does not fail.",
        range=Range(0),
    )
    beam_size: int | None = option(
        None,
        "Number of beams at temperature 0. None: greedy decoding.",
        range=_COUNT,
    )
    best_of: int | None = option(
        None,
        "Number of samples above temperature 0, of which the best is taken. None: 1.",
        range=_COUNT,
    )
    patience: float | None = option(
        None,
        "Beam search stops after this many times `beam_size` finished hypotheses. None: 1.",
        range=Range(above=0),
    )
    length_penalty: float | None = option(
        None,
        "Alpha of the length penalty that ranks beams (Wu et al. 2016), 0 to 1. None: they are "
        "ranked by mean log-probability.",
        range=Range(0, 1),
    )
    compression_ratio_threshold: float | None = option(
        2.4,
        "Text that zlib compresses by more than this factor is repetitive, and the window "
        "fails. None: not checked.",
        range=Range(infinite=True),
    )
    logprob_threshold: float | None = option(
        -1.0,
        "The window fails when the mean log-probability of its tokens is below this. None: "
        "not checked.",
        range=Range(infinite=True),
    )
    no_speech_threshold: float | None = option(
        0.6,
        "A window is skipped as silent when its no-speech probability is above this and its "
        "mean log-probability is not above `logprob_threshold`. None: no window is skipped.",
        range=Range(infinite=True),
        group=_SILENCE,
    )
    condition_on_previous_text: bool = option(
        True,
        "Give the text so far as the prompt of the next window, with a `batch_size` of 1.",
    )
    prompt_reset_on_temperature: float = option(
        0.5,
        "The text of a window that needed a higher temperature than this is no prompt for the "
        "next one.",
        range=Range(0),
        flags=(),
    )
    initial_prompt: str | tuple[int, ...] | None = option(
        None,
        "Text that the model takes for what was said before: names, spelling, style.",
        "It stands before the first window, each chunk, and each live update. Also as token ids.",
    )
    carry_initial_prompt: bool = option(
        False,
        "Give `initial_prompt` before every window: the text so far has what room is left.",
    )
    prefix: str | None = option(
        None,
        "Text with which the first window begins, and the result.",
    )
    hotwords: str | None = option(
        None,
        "Names and terms to prefer.",
        "They are text before every window, besides the text so far, without effect on the window "
        "that `prefix` begins.",
    )
    clip_timestamps: tuple[float, ...] = option(
        (),
        "Seconds of the parts to decode: start, end, start, end …; the last end may be left out.",
        'Also as a text, "0,5". In chunks the rest of the recording is silenced. The language is '
        "detected at the start of the recording, or in its first chunk, or, of two unlike "
        "channels, in the first part.",
        range=_SECONDS,
        metavar="START,END,…",
    )
    multilingual: bool = option(
        False,
        "Detect the language of each window, or of each chunk.",
    )
    language_detection_threshold: float = option(
        0.5,
        "A window whose language is more probable than this decides.",
        range=Range(0, 1),
        flags=(),
    )
    language_detection_segments: int = option(
        1,
        "How many windows, or chunks, the language is looked for in. If none is certain "
        "enough, most of them decide.",
        range=_COUNT,
        flags=(),
    )
    suppress_blank: bool = option(
        True,
        "A window does not begin with a space alone, or with the end of text.",
    )
    suppress_tokens: tuple[int, ...] = option(
        (-1,),
        "Ids of tokens that are never generated; empty: all may be. -1 stands for the symbols that "
        "are written but not spoken.",
        'Also as a text, "-1,50".',
        range=Range(-1, whole=True),
        metavar="ID,ID",
    )
    without_timestamps: bool = option(
        False,
        "One segment a window, without timestamp tokens. A word that the end of a window cuts "
        "is then lost.",
        flags=(),
    )
    max_initial_timestamp: float | None = option(
        1.0,
        "The first segment of a window begins at most this many seconds after the window's "
        "start. None: no limit.",
        range=Range(0, infinite=True, unit="s"),
        flags=(),
    )
    max_new_tokens: int | None = option(
        None,
        "Tokens of a window at most. None: half of the decoder's positions.",
        range=_COUNT,
        flags=(),
    )
    word_timestamps: bool = option(
        False,
        "Also compute the times of each word. The command line does so for shaped subtitles, "
        "unless this is False: it then estimates the times.",
        "Segments then begin with their first word and end with their last.",
        group=_WORDS,
    )
    prepend_punctuations: str = option(
        "\"'“¿([{-",
        "Punctuation that belongs to the word after it.",
        group=_WORDS,
    )
    append_punctuations: str = option(
        "\"'.。,，!！?？:：”)]}、",
        "Punctuation that belongs to the word before it.",
        group=_WORDS,
    )
    hallucination_silence_threshold: float | None = option(
        None,
        "Skip silence longer than this (s) where text next to it was probably made up; needs "
        "`word_timestamps`. None: nothing is skipped.",
        range=_SECONDS,
        group=_SILENCE,
    )
    vad_filter: bool | None = option(
        None,
        "Leave out parts without speech, which Silero's network finds. None: in chunks, which "
        "require it, but not with a `batch_size` of 1.",
        group=_SILENCE,
    )
    vad_parameters: VadOptions | Mapping[str, Any] | None = option(
        None,
        "What counts as speech: `VadOptions`, or a dictionary of its fields.",
        group=_SILENCE,
        nested=("vad_", VadOptions),
    )
    n_best: int = option(
        1,
        "How many hypotheses of a window its segments carry as alternatives, also in JSON; more "
        "than 1 needs as many beams or, above temperature 0, samples.",
        range=_COUNT,
    )
    token_logprobs: bool = option(
        False,
        "Segments carry the log-probability of each token of their text.",
        flags=(),
    )
    repetition_penalty: float = option(
        1.0,
        "Divides the score of tokens that the window's text has already, as in faster-whisper; "
        "1 is none.",
        range=Range(above=0),
    )
    no_repeat_ngram_size: int = option(
        0,
        "No n-gram of this size occurs twice in a window; 0: off.",
        range=Range(0, whole=True),
    )
    suppress_phrases: tuple[str, ...] = option(
        (),
        "Texts that are not written, as the tokenizer spells them.",
        flags=("suppress-phrase",),
    )
    forced_phrases: tuple[str, ...] = option(
        (),
        "Texts that the first window contains, if its length allows.",
        flags=("force-phrase",),
    )
    logit_filters: tuple[OwnLogitFilter, ...] = option(
        (),
        "Your own filters, applied after all others (`pipelines.engine.LogitFilter`).",
        flags=(),
    )
    seed: int | None = option(
        0,
        "Makes sampling above temperature 0 repeatable. None: random.",
        range=Range(whole=True),
    )
    batch_size: int | None = option(
        None,
        "How many chunks, cut at pauses, are decoded in parallel. 1: one window after the other, "
        f"as openai-whisper. None: {_PARALLEL_CHUNKS}, or 1 if `vad_filter` is False.",
        "Each chunk begins with `initial_prompt`, and `condition_on_previous_text` does not reach "
        "into the next one. On a CPU it is encoded with some silence behind it instead of padding "
        "to the window; where its text ends early, the rest is decoded, too, and where the text is "
        "too little for its length, it is padded and decoded again. Parts without speech are left "
        "out. A stream of blocks is read ahead.",
        range=_COUNT,
    )
    chunk_s: float | None = option(
        None,
        "Longest chunk in seconds. None: the model's window.",
        range=Range(_MIN_CHUNK_S, unit="s"),
        flags=(),
    )
    priority: int = option(
        2,
        "Of the requests, on a shared engine: a lower number goes first.",
        range=Range(whole=True),
        flags=(),
    )
    openai_rules: bool = option(
        False,
        "Keep openai-whisper's rules where others serve better. When all temperatures fail, "
        "its text is the last attempt's, not the best one's; repetitive text always fails; "
        "and times may lie after the end of the recording, or before those of the segment "
        "before.",
    )
    languages: tuple[str, ...] = option(
        (),
        "Languages that may be spoken, such as en,de. Detection chooses among them. Default: any.",
        "It chooses for a recording, or for each utterance of live speech. A single one becomes "
        "`language`.",
        group=_LANGUAGES,
        metavar="LANGUAGE,LANGUAGE",
    )

    def __post_init__(self) -> None:
        self._set("clip_timestamps", _numbers("clip_timestamps", self.clip_timestamps, float))
        self._set("suppress_tokens", _numbers("suppress_tokens", self.suppress_tokens, int))
        if isinstance(self.languages, str):
            self._set("languages", tuple(filter(None, map(str.strip, self.languages.split(",")))))
        if self.initial_prompt is not None and not isinstance(self.initial_prompt, str):
            self._set("initial_prompt", _numbers("initial_prompt", self.initial_prompt, int))
        if self.vad_parameters is not None:
            self._set("vad_parameters", VadOptions.of(self.vad_parameters, "vad_parameters"))
        check_fields(self)
        if not self.temperatures:
            raise OptionError("temperature needs at least one value")
        self._check_search()
        self._check_parts()
        self._check_languages()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_languages(self) -> None:
        """Make sorted codes of the languages, and one language of one that may be spoken."""
        if self.language is not None and self.language.strip().lower() == "auto":
            self._set("language", None)
        if self.languages and self.language is not None:
            raise OptionError(
                "language and languages exclude each other: give one language, or those of which "
                "one is detected"
            )
        codes = sorted(set(map(language_code, self.languages)))
        single = codes[0] if len(codes) == 1 else self.language
        self._set("language", single if single is None else language_code(single))
        self._set("languages", tuple(codes) if len(codes) > 1 else ())

    def _check_search(self) -> None:
        if self.patience is not None and not self.beam_size:
            raise OptionError("patience needs a beam_size")
        check_phrases((*self.suppress_phrases, *self.forced_phrases))
        sequences = self.best_of if self.temperatures[0] else self.beam_size
        if self.n_best > (sequences or 1):
            needed = "best_of" if self.temperatures[0] else "beam_size"
            raise OptionError(f"n_best {self.n_best} needs a {needed} of {self.n_best} or more")

    def _check_parts(self) -> None:
        """Check what says which parts of a recording are decoded."""
        starts, ends = self.clip_timestamps[::2], self.clip_timestamps[1::2]
        for start, end in zip(starts, ends, strict=False):
            if end <= start:
                raise OptionError(f"clip_timestamps: the part from {start} to {end} s is empty")
        if self.hallucination_silence_threshold is not None and not self.word_timestamps:
            raise OptionError("hallucination_silence_threshold needs word_timestamps")
        longest_s = self.vad.max_speech_duration_s
        if longest_s is not None and longest_s < _MIN_CHUNK_S:
            raise OptionError(
                f"max_speech_duration_s must be {_MIN_CHUNK_S:g} s or more, not {longest_s}"
            )
        if self.vad_filter and self.clip_timestamps and not self.in_chunks:
            raise OptionError("clip_timestamps and vad_filter exclude each other")
        if self.vad_filter is False and self.in_chunks:
            raise OptionError(
                "vad_filter cannot be off with a batch_size above 1: chunks are cut where nobody "
                "speaks"
            )
        if self.vad_parameters is not None and self.vad_filter is not True and not self.in_chunks:
            raise OptionError("vad_threshold and other vad_parameters need vad_filter")

    @property
    def vad(self) -> VadOptions:
        """What counts as speech: `vad_parameters`, or the defaults."""
        return VadOptions.of(self.vad_parameters or VadOptions(), "vad_parameters")

    @property
    def log_prob_threshold(self) -> float | None:
        """faster-whisper's name of `logprob_threshold`."""
        return self.logprob_threshold

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


def _numbers(name: str, value: object, kind: Callable[[Any], T]) -> tuple[T, ...]:
    """Return numbers of an option: of a text with commas, of an iterable, or a single one.

    Raises:
        OptionError: Something else was given.
    """
    try:
        if isinstance(value, str):
            return tuple(kind(part) for part in value.split(",") if part.strip())
        if value is None:
            return ()
        items = tuple(value) if isinstance(value, Iterable) else (value,)
        if any(isinstance(each, bool) for each in items):
            raise TypeError
        exact: Callable[[Any], T] = index if kind is int else kind  # index refuses 1.5
        return tuple(map(exact, items))
    except (TypeError, ValueError):
        wanted = "token ids" if kind is int else "seconds"
        raise OptionError(
            f"{name} takes {wanted}, or a text of them with commas between, not {value!r}"
        ) from None
