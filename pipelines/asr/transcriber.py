"""Speech to text, the facade: recordings in, segments out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Literal, TypeAlias, Unpack

import torch
from torch import Tensor

from pipelines.asr.audio.decode import AudioSource, is_stream, load_audio
from pipelines.asr.audio.features import FileFeatures, StreamFeatures, WindowFeatures
from pipelines.asr.audio.resample import read_blocks
from pipelines.asr.batched import transcribe_batched
from pipelines.asr.capabilities import Capabilities
from pipelines.asr.decode_tasks import run_one
from pipelines.asr.options import TranscribeOptions, TranscribeOverrides
from pipelines.asr.recognizer import Recognizer
from pipelines.asr.results import TranscriptEvent, Transcription, TranscriptionInfo
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.window import WindowDecoder
from pipelines.engine import EncodedSource, Engine, LoadedModel
from pipelines.errors import AudioError, EngineError, OptionError
from pipelines.hub import folder_or_pull
from pipelines.notices import collect_notices, notice

__all__ = ["Transcriber", "Transcription"]

Recording: TypeAlias = "AudioSource | Tensor | tuple[int, Tensor]"
"""What `load_audio` accepts, or a tensor [samples] or [channels, samples], at 16 kHz or in a pair
(rate in Hz, tensor)."""


class Transcriber:
    """A Whisper model that transcribes recordings.

        with Transcriber("demo") as transcriber:
            for segment in transcriber.transcribe("talk.mp3"):
                print(segment.start, segment.end, segment.text)

    It keeps no state between calls, so several threads can share it.
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
        download: bool = False,
    ) -> None:
        """
        Args:
            model: A folder, or a name that `pipelines.hub` resolves; a Path is always a folder.
            engine: An engine to share with other models. None: an own one, which `close` closes.
            device: Of the own engine: "auto", "cpu", "cuda" or "cuda:N".
            compute_type: Of the own engine: "auto", "float32", "bfloat16", "float16" or "int8".
            threads: CPU threads of the own engine.
            name: The model's name in messages. None: `model`.
            download: Download a model that is not on this machine, see `pipelines.hub.pull`.

        Raises:
            ModelNotFound: There is no such folder, or the model is not on this machine and
                `download` is False, or it cannot be downloaded.
            CheckpointError: The folder is incomplete or damaged.
            ModelError: It holds no speech recognition model.
            OptionError: The engine's options make no sense on this machine.
        """
        folder = folder_or_pull(model, download)
        self._recognizer: Recognizer | None = None
        self._own_engine: Engine | None = None
        if engine is None:
            engine = self._own_engine = Engine(device, compute_type, threads)
        try:
            self._recognizer = Recognizer(folder, engine, name or str(model))
        except BaseException:
            self.close()
            raise

    @property
    def recognizer(self) -> Recognizer:
        """The loaded model with its tokenizer and capabilities.

        Raises:
            EngineError: The transcriber was closed.
        """
        if self._recognizer is None:
            raise EngineError("the transcriber was closed; make a new one")
        return self._recognizer

    @property
    def engine(self) -> Engine:
        """The engine that computes."""
        return self.recognizer.engine

    @property
    def model(self) -> LoadedModel:
        """The model, loaded in the engine."""
        return self.recognizer.model

    @property
    def tokenizer(self) -> WhisperTokenizer:
        """The model's vocabulary."""
        return self.recognizer.tokenizer

    @property
    def capabilities(self) -> Capabilities:
        """Languages and tasks that the model was trained for."""
        return self.recognizer.capabilities

    @property
    def window_s(self) -> float:
        """Length of the model's input window in seconds."""
        return self.recognizer.window_s

    def transcribe(
        self,
        audio: Recording,
        options: TranscribeOptions | None = None,
        **overrides: Unpack[TranscribeOverrides],
    ) -> Transcription:
        """Transcribe a recording. Segments are decoded lazily, as the result is iterated.

        Args:
            audio: What `load_audio` accepts, or a tensor. An iterable of blocks is read only as
                far as needed; its features are normalised by the loudest sound so far instead of
                the loudest of the whole recording.
            options: How to transcribe.
            overrides: Fields of TranscribeOptions that replace those of `options`.

        Returns:
            The segments. `warnings` of the result holds the warnings about the recording.

        Raises:
            AudioError: There is no audio to decode. Raised before decoding starts; for an
                iterable, when the block at fault is reached.
            OptionError: The options make no sense.
            UnsupportedTask: The model lacks the language or the task.
            EngineError: While iterating: a part of the recording could not be recognized. It is a
                NumericalError if the model computed NaN or infinity. With a batch_size above 1
                the other parts are recognized first.

        Warns:
            DamagedAudio: Only a part of a file can be decoded.
        """
        return Transcription(self.stream(audio, options, **overrides))

    def stream(
        self,
        audio: Recording,
        options: TranscribeOptions | None = None,
        **overrides: Unpack[TranscribeOverrides],
    ) -> Generator[TranscriptEvent, None, None]:
        """As `transcribe`, with live text.

        Closing the generator cancels the decoding.

        Yields:
            TranscriptionInfo once, then TextDelta, Retract and SegmentDone.
        """
        try:
            options = replace(options or TranscribeOptions(), **overrides)
        except TypeError as error:
            raise OptionError(f"no such option: {error}") from None
        self.recognizer.check(options)
        source = _without_tensors(audio)
        with collect_notices() as notices:
            if options.batch_size > 1:
                events = transcribe_batched(self.recognizer, source, options)
            else:
                events = _transcribe_sequentially(self.recognizer, self._features(source), options)
        for each in notices:  # as Python warnings too, for callers who do not read the result's
            notice(each.message, each.category)
        return _with_warnings(events, tuple(each.message for each in notices))

    def detect_language(self, audio: Recording) -> dict[str, float]:
        """Detect the language of a recording by its first window.

        Returns:
            Language code → probability, most probable first.

        Raises:
            AudioError: There is no audio to decode.
            NumericalError: The model computed NaN or infinity.
        """
        features = self._features(_without_tensors(audio))
        return self.recognizer.language_probs(features.first_window())

    def top_language(self, encoded: EncodedSource) -> str:
        """The code of the most probable language of an encoded window."""
        return self.recognizer.top_language(encoded)

    def window_decoder(self, language: str, options: TranscribeOptions) -> WindowDecoder:
        """The decoder of single windows for one language, task and set of options."""
        return self.recognizer.window_decoder(language, options)

    def close(self) -> None:
        """Release the model, and the engine unless it was passed in.

        Later use raises EngineError. Transcriptions that still run fail if the engine is closed.
        """
        self._recognizer = None
        if self._own_engine is not None:
            self._own_engine.close()
            self._own_engine = None

    def __enter__(self) -> Transcriber:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _features(self, audio: AudioSource) -> WindowFeatures:
        mels, window = self.model.architecture.num_mel_bins, self.recognizer.window_frames
        if is_stream(audio):
            return StreamFeatures(read_blocks(audio), mels, window)
        samples = load_audio(audio)
        if not len(samples):
            raise AudioError("the audio array is empty")
        return FileFeatures(samples, mels, window)


def _transcribe_sequentially(
    recognizer: Recognizer, features: WindowFeatures, options: TranscribeOptions
) -> Generator[TranscriptEvent, None, None]:
    """The events of a recording, decoded window after window."""
    first: list[EncodedSource] = []  # the first window, where language detection has encoded it
    language, probability = recognizer.given_language(options), None
    if language is None:
        mel, frames = features.window(0)
        if frames == recognizer.window_frames:
            first = recognizer.model.encode([mel])
        probs = recognizer.language_probs(first[0] if first else features.first_window())
        language, probability = next(iter(probs.items()))
    yield TranscriptionInfo(language, probability, features.duration)

    def encode(windows: Sequence[Tensor]) -> list[EncodedSource]:
        return [first.pop()] if first else recognizer.model.encode(windows)

    yield from run_one(recognizer.decode_task(features, language, options), encode)


def _with_warnings(
    events: Generator[TranscriptEvent, None, None], warnings: tuple[str, ...]
) -> Generator[TranscriptEvent, None, None]:
    """The events, with the warnings in TranscriptionInfo."""
    try:
        for event in events:
            if isinstance(event, TranscriptionInfo):
                yield replace(event, warnings=warnings)
            else:
                yield event
    finally:
        events.close()


def _without_tensors(audio: Recording) -> AudioSource:
    """A tensor, or the tensor of a pair (rate, tensor), as an array; others unchanged."""
    return tuple(map(_as_array, audio)) if isinstance(audio, tuple) else _as_array(audio)


def _as_array(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.dtype == torch.bfloat16:  # NumPy lacks it
        value = value.float()
    return value.detach().cpu().numpy()
