"""Speech to text: a model, ready to transcribe anything that holds audio."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Literal

from torch import Tensor

from pipelines.asr.audio.arrays import read_blocks
from pipelines.asr.audio.decode import AudioSource, is_stream, load_audio
from pipelines.asr.audio.features import (
    FRAMES_PER_SECOND,
    FileFeatures,
    StreamFeatures,
    WindowFeatures,
)
from pipelines.asr.batched import transcribe_batched
from pipelines.asr.capabilities import Capabilities, alignment_heads, read_generation_config
from pipelines.asr.decode_tasks import DecodeTask, run_one
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.results import TranscriptEvent, Transcription, TranscriptionInfo
from pipelines.asr.sequential import decode_windows
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.window import WindowDecoder
from pipelines.asr.word_timestamps import WordAligner
from pipelines.engine import EncodedSource, Engine
from pipelines.errors import (
    AudioError,
    CheckpointError,
    ModelError,
    NumericalError,
    OptionError,
)
from pipelines.hub import folder_of
from pipelines.notices import collect_notices, notice

__all__ = ["Transcriber", "Transcription"]


class Transcriber:
    """A Whisper-architecture model with its vocabulary.

        for segment in Transcriber("demo").transcribe("talk.mp3"):
            print(segment.start, segment.end, segment.text)

    Holds no state between calls: one may serve several threads.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        engine: Engine | None = None,
        device: str = "auto",
        compute_type: str = "auto",
        threads: int | Literal["auto"] = "auto",
        name: str | None = None,
    ) -> None:
        """model: a name that pipelines.hub knows, or a folder. name: what messages call it.

        engine: one to share with others; device, compute_type (the precision) and threads only
        matter where it is not given. Raises ModelNotFound, CheckpointError, OptionError.
        """
        folder, name = folder_of(model), name or str(model)
        self.engine = engine or Engine(device=device, compute_type=compute_type, threads=threads)
        self.model = self.engine.load(folder)
        architecture = self.model.architecture
        if architecture.source != "audio":
            raise ModelError(f"{name} is a {architecture.family} model for text, no recogniser")
        self.tokenizer = WhisperTokenizer(folder)
        special = self.tokenizer.special
        if special.timestamp_begin >= architecture.vocab_size:
            raise CheckpointError(
                f"{folder}: tokenizer and weights do not belong together: the first timestamp is "
                f"token {special.timestamp_begin} of {architecture.vocab_size}"
            )
        config = read_generation_config(folder)
        self.capabilities = Capabilities.of(name, architecture, special, config)
        self._listed = tuple(config.get("suppress_tokens") or ())
        self._alignment_heads = alignment_heads(config, architecture)
        self._window = 2 * architecture.max_source_positions  # frames of 10 ms

    def transcribe(
        self,
        audio: AudioSource,
        options: TranscribeOptions | None = None,
        **overrides: Any,
    ) -> Transcription:
        """The segments of a recording, found as they are asked for.

        audio: see load_audio; an iterable of blocks is read only as far as needed, and its
        silence is judged by the loudest sound so far instead of that of the whole.
        overrides: fields of TranscribeOptions.

        Warns with DamagedAudio where only a part of a file can be decoded; the result has the same
        in its `warnings`. Raises AudioError, OptionError, UnsupportedTask before anything is
        decoded; of an iterable, AudioError when a block turns out to be none. Raises EngineError
        where a part of the recording could not be recognised: NumericalError if the model computed
        NaN or infinity. With a batch_size above 1 the other parts are recognised first.
        """
        return Transcription(self.stream(audio, options, **overrides))

    def stream(
        self,
        audio: AudioSource,
        options: TranscribeOptions | None = None,
        **overrides: Any,
    ) -> Generator[TranscriptEvent, None, None]:
        """As transcribe, with live text: Info, then TextDelta, Retract, SegmentDone.

        Closing the generator cancels what is being decoded.
        """
        try:
            options = replace(options or TranscribeOptions(), **overrides)
        except TypeError as error:
            raise OptionError(f"no such option: {error}") from None
        self.capabilities.check(options)
        vocab_size = self.model.architecture.vocab_size
        if outside := [i for i in options.suppress_tokens if not -1 <= i < vocab_size]:
            raise OptionError(
                f"suppress_tokens: {outside[0]} is no token of {self.capabilities.name}, "
                f"whose ids end at {vocab_size - 1}"
            )
        with collect_notices() as notices:
            if options.batch_size > 1:
                events = transcribe_batched(self, audio, options)
            else:
                events = self._events(self._features(audio), options)
        for found in notices:  # also for callers who look at no results
            notice(found.message, found.category)
        return _with_warnings(events, tuple(found.message for found in notices))

    def detect_language(self, audio: AudioSource) -> dict[str, float]:
        """Language code → probability, likeliest first, judged by the first window.

        Raises AudioError, and NumericalError if the model computed NaN or infinity.
        """
        return self.language_probs(self._features(audio).opening())

    def _features(self, audio: AudioSource) -> WindowFeatures:
        mels = self.model.architecture.num_mel_bins
        if is_stream(audio):
            return StreamFeatures(read_blocks(audio), mels, self._window)
        samples = load_audio(audio)
        if not len(samples):
            raise AudioError("the audio array is empty")
        return FileFeatures(samples, mels, self._window)

    def language_probs(self, window: Tensor | EncodedSource) -> dict[str, float]:
        """As detect_language, of one window, encoded or not."""
        if not self.capabilities.multilingual:
            return {"en": 1.0}
        encoded = window if isinstance(window, EncodedSource) else self.model.encode([window])[0]
        special = self.tokenizer.special
        ids = list(special.languages.values())
        chances = self.model.score(encoded, [special.sot])[0, ids].softmax(-1).tolist()
        if not math.isfinite(sum(chances)):
            raise NumericalError(
                f"the language could not be detected: {self.capabilities.name} computed NaN: its "
                "numbers overflow in this compute type, or its weights are damaged; try compute "
                "type float32, else get the model anew"
            )
        found = zip(special.languages, chances, strict=True)
        return dict(sorted(found, key=lambda pair: -pair[1]))

    def _events(
        self, features: WindowFeatures, options: TranscribeOptions
    ) -> Generator[TranscriptEvent, None, None]:
        first: list[EncodedSource] = []  # the first window's, when detection has encoded it
        language, chance = self.given_language(options), None  # type: str | None, float | None
        if language is None:
            mel, frames = features.window(0)
            if frames == self._window:
                first = self.model.encode([mel])
            chances = self.language_probs(first[0] if first else features.opening())
            language, chance = next(iter(chances.items()))
        yield TranscriptionInfo(language, chance, features.duration)

        def encode(windows: Sequence[Tensor]) -> list[EncodedSource]:
            return [first.pop()] if first else self.model.encode(windows)

        yield from run_one(self.decode_task(features, language, options), encode)

    def given_language(self, options: TranscribeOptions) -> str | None:
        """The language that need not be detected; None where it must be."""
        return options.language if self.capabilities.multilingual else "en"

    def decode_task(
        self,
        features: WindowFeatures,
        language: str,
        options: TranscribeOptions,
        start: int = 0,
        last_speech: float = 0.0,
    ) -> DecodeTask:
        """The decoding of a recording, or of a piece of one that begins at frame `start`.
        last_speech: seconds at which the speech before it ended."""
        prompt = options.initial_prompt
        aligner = self._aligner(language, options, last_speech) if options.word_timestamps else None
        return decode_windows(
            features,
            self.window_decoder(language, options),
            self.tokenizer,
            initial_prompt=() if prompt is None else self.tokenizer.encode(" " + prompt.strip()),
            condition=options.condition_on_previous_text,
            seed=options.seed,
            aligner=aligner,
            start=start,
        )

    @property
    def window_s(self) -> float:
        """Seconds of audio that the model hears at once."""
        return self._window / FRAMES_PER_SECOND

    def top_language(self, encoded: EncodedSource) -> str:
        """The likeliest language of an encoded window."""
        return next(iter(self.language_probs(encoded)))

    def _aligner(
        self, language: str, options: TranscribeOptions, last_speech: float
    ) -> WordAligner:
        return WordAligner(
            lambda encoded, tokens: self.model.attend(encoded, tokens, self._alignment_heads),
            self.tokenizer,
            self._start(language, options),
            language,
            options.prepend_punctuations,
            options.append_punctuations,
            last_speech,
        )

    def _start(self, language: str, options: TranscribeOptions) -> list[int]:
        """What the decoder's prompt ends with, but for the token against timestamps."""
        special = self.tokenizer.special
        if not self.capabilities.multilingual:
            return [special.sot]
        task = special.translate if options.task == "translate" else special.transcribe
        assert task is not None, "abilities say that the model has this task"
        return [special.sot, special.languages[language], task]

    def window_decoder(self, language: str, options: TranscribeOptions) -> WindowDecoder:
        """What decodes single windows, in one language."""
        special, architecture = self.tokenizer.special, self.model.architecture
        start = self._start(language, options)
        if options.without_timestamps:
            start.append(special.no_timestamps)
        last = special.timestamp_begin + architecture.max_source_positions
        return WindowDecoder(
            self.engine,
            self.tokenizer,
            options,
            start=start,
            suppress=self._suppressed(options, last),
            positions=architecture.max_target_positions,
            last_timestamp=last,
            alignment_heads=self._alignment_heads,
        )

    def _suppressed(self, options: TranscribeOptions, last_timestamp: int) -> list[int]:
        """Ids never chosen: those asked for, control tokens, and ids that stand for nothing.

        -1 means the model's own list, or openai-whisper's rule where it has none.
        """
        ids = set(options.suppress_tokens)
        if -1 in ids:
            ids = ids - {-1} | set(self._listed or self.tokenizer.non_speech)
        ids.update(self.tokenizer.special.control)
        ids.update(range(last_timestamp + 1, self.model.architecture.vocab_size))
        return sorted(ids)


def _with_warnings(
    events: Generator[TranscriptEvent, None, None], warnings: tuple[str, ...]
) -> Generator[TranscriptEvent, None, None]:
    """The events, with the warnings in Info."""
    try:
        for event in events:
            yield (
                replace(event, warnings=warnings) if isinstance(event, TranscriptionInfo) else event
            )
    finally:
        events.close()
