"""Speech to text: a model, ready to transcribe anything that holds audio."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from pipelines.asr.abilities import Abilities, read_generation_config
from pipelines.asr.arrays import read_blocks
from pipelines.asr.audio import AudioSource, is_stream, load_audio
from pipelines.asr.features import (
    FRAMES_PER_SECOND,
    FileFeatures,
    StreamFeatures,
    WindowFeatures,
)
from pipelines.asr.longform import follow
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.results import Info, Segment, SegmentDone, TranscriptEvent
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.window import WindowDecoder
from pipelines.asr.words import WordAligner
from pipelines.engine import Architecture, Engine, Memory
from pipelines.errors import AudioError, CheckpointError, ModelError, OptionError

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
        """model: a name that pipelines.models knows, or a folder. name: what messages call it.

        engine: one to share with others; device, compute_type (the precision) and threads only
        matter where it is not given. Raises ModelNotFound, CheckpointError, OptionError.
        """
        folder, name = _folder(model), name or str(model)
        self.engine = engine or Engine(device=device, precision=compute_type, threads=threads)
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
        self.abilities = Abilities.of(name, architecture, special, config)
        self._listed = tuple(config.get("suppress_tokens") or ())
        self._alignment_heads = _alignment_heads(config, architecture)
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

        Raises AudioError, OptionError, UnsupportedTask before anything is decoded; of an iterable,
        AudioError when a block turns out to be none.
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
        self.abilities.check(options)
        vocab_size = self.model.architecture.vocab_size
        if outside := [i for i in options.suppress_tokens if not -1 <= i < vocab_size]:
            raise OptionError(
                f"suppress_tokens: {outside[0]} is no token of {self.abilities.name}, "
                f"whose ids end at {vocab_size - 1}"
            )
        return self._events(self._features(audio), options)

    def detect_language(self, audio: AudioSource) -> dict[str, float]:
        """Language code → probability, likeliest first, judged by the first window."""
        return self._languages(self._features(audio).opening())

    def _features(self, audio: AudioSource) -> WindowFeatures:
        mels = self.model.architecture.num_mel_bins
        if is_stream(audio):
            return StreamFeatures(read_blocks(audio), mels, self._window)
        samples = load_audio(audio)
        if not len(samples):
            raise AudioError("the audio array is empty")
        return FileFeatures(samples, mels, self._window)

    def _encode(self, mel: Tensor) -> Memory:
        return self.model.encode([mel])[0]

    def _languages(self, window: Tensor | Memory) -> dict[str, float]:
        if not self.abilities.multilingual:
            return {"en": 1.0}
        memory = window if isinstance(window, Memory) else self._encode(window)
        special = self.tokenizer.special
        ids = list(special.languages.values())
        chances = self.model.score(memory, [special.sot])[0, ids].softmax(-1).tolist()
        found = zip(special.languages, chances, strict=True)
        return dict(sorted(found, key=lambda pair: -pair[1]))

    def _events(
        self, features: WindowFeatures, options: TranscribeOptions
    ) -> Generator[TranscriptEvent, None, None]:
        first: list[Memory] = []  # the first window's, when detection has encoded it
        language, chance = options.language, None  # type: str | None, float | None
        if not self.abilities.multilingual:
            language = "en"
        if language is None:
            mel, frames = features.window(0)
            if frames == self._window:
                first.append(self._encode(mel))
            chances = self._languages(first[0] if first else features.opening())
            language, chance = next(iter(chances.items()))
        yield Info(language, chance, features.duration)

        def encode(mel: Tensor, seek: int) -> Memory:
            return first.pop() if first and seek == 0 else self._encode(mel)

        prompt = options.initial_prompt
        recording = follow(
            features,
            encode,
            self.window_decoder(language, options),
            self.tokenizer,
            initial_prompt=() if prompt is None else self.tokenizer.encode(" " + prompt.strip()),
            condition=options.condition_on_previous_text,
            seed=options.seed,
            aligner=self._aligner(language, options) if options.word_timestamps else None,
        )
        yield from recording

    @property
    def window_s(self) -> float:
        """Seconds of audio that the model hears at once."""
        return self._window / FRAMES_PER_SECOND

    def language_of(self, memory: Memory) -> str:
        """The likeliest language of an encoded window."""
        return next(iter(self._languages(memory)))

    def _aligner(self, language: str, options: TranscribeOptions) -> WordAligner:
        return WordAligner(
            lambda memory, tokens: self.model.attend(memory, tokens, self._alignment_heads),
            self.tokenizer,
            self._start(language, options),
            language,
            options.prepend_punctuations,
            options.append_punctuations,
        )

    def _start(self, language: str, options: TranscribeOptions) -> list[int]:
        """What the decoder's prompt ends with, but for the token against timestamps."""
        special = self.tokenizer.special
        if not self.abilities.multilingual:
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


class Transcription(Iterator[Segment]):
    """The segments of one recording, decoded as they are asked for; can be gone through once.

    Closing it, or leaving it as a context manager, cancels what is being decoded.
    """

    def __init__(self, events: Generator[TranscriptEvent, None, None]) -> None:
        self._events = events
        self._info: Info | None = None

    @property
    def info(self) -> Info:
        """What is known from the start. Detects the language, if it is to be."""
        if self._info is None:
            first = next(self._events)
            assert isinstance(first, Info), "Info is the first event"
            self._info = first
        return self._info

    @property
    def language(self) -> str:
        """The code of the language, given or detected."""
        return self.info.language

    @property
    def duration(self) -> float | None:
        """Seconds of audio; None for a stream."""
        return self.info.duration

    def __next__(self) -> Segment:
        self._info = self.info
        for event in self._events:
            if isinstance(event, SegmentDone):
                return event.segment
        raise StopIteration

    def close(self) -> None:
        """Stop decoding; there are no further segments."""
        self._events.close()

    def __enter__(self) -> Transcription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _alignment_heads(config: dict[str, Any], architecture: Architecture) -> list[tuple[int, int]]:
    """Those that the model's files name, else all of the upper half of the decoder, as
    openai-whisper does."""
    layers, heads = architecture.decoder_layers, architecture.decoder_heads
    named = config.get("alignment_heads") or ()
    found = [(int(layer), int(head)) for layer, head in named]
    if found and all(layer < layers and head < heads for layer, head in found):
        return found
    return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]


def _folder(model: str | PathLike[str]) -> Path:
    if not isinstance(model, str):
        return Path(model)
    from pipelines.models import resolve

    return resolve(model).folder
