"""Speech to text, the facade: recordings in, segments out."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pipelines.asr.audio.arrays import SAMPLE_RATE, Samples
from pipelines.asr.audio.chunks import Chunk
from pipelines.asr.audio.decode import AudioFile, AudioSource, is_stream, load_audio
from pipelines.asr.audio.features import (
    FRAMES_PER_SECOND,
    HOP,
    FileFeatures,
    StreamFeatures,
    WindowFeatures,
)
from pipelines.asr.audio.resample import read_blocks
from pipelines.asr.audio.speech_filter import SpeechMap, keep_speech
from pipelines.asr.batched import SpeechModel, transcribe_batched, transcribe_chunks
from pipelines.asr.capabilities import Capabilities
from pipelines.asr.chunk_recognizer import ChunkRecognizer
from pipelines.asr.options import TranscribeOptions
from pipelines.asr.plain_decoder import PlainDecoder
from pipelines.asr.plain_tokenizer import PlainTokenizer
from pipelines.asr.recognizer import Recognizer
from pipelines.asr.recording_chunks import only_clips, sections_of_chunks
from pipelines.asr.results import (
    Checkpoint,
    SegmentDone,
    TranscriptEvent,
    Transcription,
    TranscriptionInfo,
)
from pipelines.asr.sequential import Clip, DecodeEvent, decode_windows
from pipelines.asr.tokenizer import WhisperTokenizer
from pipelines.asr.two_channels import (
    OneChannel,
    RecordingSection,
    judged_blocks,
    sections_of,
    sections_of_parts,
    transcribe_sections,
)
from pipelines.asr.window import WindowDecoder
from pipelines.engine import (
    DraftReport,
    EncodedSource,
    Engine,
    LoadedModel,
    SourceHandle,
    interleave,
)
from pipelines.errors import AudioError, EngineError, ModelNotFound, OptionError, UnsupportedTask
from pipelines.hub import ResolvedModel, choose_default, folder_or_pull
from pipelines.loading import device_name
from pipelines.notices import collect_notices, notice
from pipelines.options import with_fields

Recording: TypeAlias = "AudioSource | Tensor | tuple[int, Tensor]"
"""What `load_audio` accepts, or a tensor [samples] or [channels, samples], at 16 kHz or in a pair
(rate in Hz, tensor)."""


class Transcriber:
    """A speech recognition model that transcribes recordings: Whisper, Moonshine, or one that
    transformers runs (Speech2Text, SpeechT5).

        with Transcriber("demo") as transcriber:
            for segment in transcriber.transcribe("talk.mp3"):
                print(segment.start, segment.end, segment.text)

    It keeps no state between calls, so several threads can share it.
    """

    def __init__(
        self,
        model: str | PathLike[str] | None = None,
        *,
        engine: Engine | None = None,
        device: str = "auto",
        compute_type: str = "auto",
        threads: int | Literal["auto"] = "auto",
        name: str | None = None,
        download: bool = False,
        draft_model: str | PathLike[str] | None = None,
        draft: Literal["ngram"] | None = None,
        device_index: int | Sequence[int] = 0,
        revision: str | None = None,
        cache_dir: str | PathLike[str] | None = None,
        token: str | bool | None = None,
    ) -> None:
        """
        Args:
            model: A folder, or a name that `pipelines.hub` resolves; a Path is always a folder.
                None: the best one on this machine, as `pipelines.hub.choose_default` chooses.
            engine: An engine to share with other models. None: an own one, which `close` closes.
            device: Of the own engine: "auto", "cpu", "cuda" or "cuda:N".
            compute_type: Of the own engine: "auto", "float32", "bfloat16", "float16" or "int8".
            threads: CPU threads of the own engine.
            name: The model's name in messages. None: `model`.
            download: Download a model that is not on this machine, see `pipelines.hub.pull`.
            draft_model: A smaller model of the same vocabulary, such as the distilled one of a
                larger, that proposes tokens for greedy decoding. The text is the same; drafting
                pauses while it loses time.
            draft: "ngram" proposes what followed the same words before, in all that this object
                has transcribed.
            device_index: The number of the GPU, for the device "cuda".
            revision: Branch, tag or commit of the model's repository.
            cache_dir: Folder in which models are looked for and stored. None: the Hugging Face
                cache.
            token: Token of the hub. True or None: the machine's. False: none.

        Raises:
            ModelNotFound: There is no such folder, or the model is not on this machine and
                `download` is False, or it cannot be downloaded. Without `model`: no recognizer is
                on this machine; the message has the command that downloads one.
            CheckpointError: The folder is incomplete or damaged.
            ModelError: It holds no speech recognition model, or `draft_model` has another
                vocabulary.
            OptionError: The engine's options make no sense on this machine, or both `draft_model`
                and `draft` are given.
        """
        if draft not in (None, "ngram"):
            raise OptionError(f"draft must be 'ngram' or None, not {draft!r}")
        if draft is not None and draft_model is not None:
            raise OptionError("draft with a model or with n-grams, not with both")
        if model is None:
            found = _best_here()
            model, name = found.folder, name or found.name
        folder = folder_or_pull(
            model, download, revision=revision, cache_dir=cache_dir, token=token
        )
        draft_folder = None
        if draft_model is not None:
            draft_folder = folder_or_pull(draft_model, download, cache_dir=cache_dir, token=token)
        self._recognizer: SpeechModel | None = None
        self._own_engine: Engine | None = None
        if engine is None:
            engine = self._own_engine = Engine(
                device_name(device, device_index), compute_type, threads
            )
        try:
            loaded = engine.load(folder).architecture
            untimed = loaded.family == "other" or loaded.source == "waveform"
            self._recognizer = (ChunkRecognizer if untimed else Recognizer)(
                folder,
                engine,
                name or str(model),
                draft_folder=draft_folder,
                ngrams=draft == "ngram",
            )
        except BaseException:
            self.close()
            raise

    @property
    def recognizer(self) -> Recognizer:
        """The loaded Whisper model with its tokenizer and capabilities.

        Raises:
            EngineError: The transcriber was closed.
            UnsupportedTask: It is no Whisper model.
        """
        loaded = self._loaded
        if not isinstance(loaded, Recognizer):
            raise UnsupportedTask(
                f"{loaded.capabilities.name} only transcribes; a Whisper model does the rest"
            )
        return loaded

    @property
    def _loaded(self) -> SpeechModel:
        if self._recognizer is None:
            raise EngineError("the transcriber was closed; make a new one")
        self._recognizer.engine.check_process()  # before torch computes the features
        return self._recognizer

    @property
    def engine(self) -> Engine:
        """The engine that computes."""
        return self._loaded.engine

    @property
    def model(self) -> LoadedModel:
        """The model, loaded in the engine."""
        return self._loaded.model

    @property
    def tokenizer(self) -> WhisperTokenizer | PlainTokenizer:
        """The model's vocabulary. Raises UnsupportedTask for a model that transformers runs."""
        return self._loaded.tokenizer

    @property
    def capabilities(self) -> Capabilities:
        """Languages and tasks that the model was trained for."""
        return self._loaded.capabilities

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that the model recognizes."""
        return self._loaded.capabilities.languages

    @property
    def draft_report(self) -> DraftReport | None:
        """How many tokens were drafted and accepted, and the time saved; None without drafts."""
        drafting = self._loaded.drafting
        return drafting.report if drafting.active else None

    @property
    def window_s(self) -> float:
        """Length of the model's input window in seconds."""
        return self._loaded.window_s

    def transcribe(
        self,
        audio: Recording,
        options: TranscribeOptions | None = None,
        **overrides: Any,
    ) -> Transcription:
        """Transcribe a recording. Segments are decoded lazily, as the result is iterated.

        Args:
            audio: What `load_audio` accepts, or a tensor. An iterable of blocks is read some
                chunks ahead. With a `batch_size` of 1 it is read only as far as needed, and its
                features are normalised by the loudest sound so far instead of the loudest of the
                whole recording.
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
                NumericalError if the model computed NaN or infinity. In chunks the other parts
                are recognized first.

        Warns:
            DamagedAudio: Only a part of a file can be decoded.
        """
        return Transcription(self.stream(audio, options, **overrides))

    def stream(
        self,
        audio: Recording,
        options: TranscribeOptions | None = None,
        *,
        resume_from: Checkpoint | None = None,
        checkpoints: bool = False,
        **overrides: Any,
    ) -> Generator[TranscriptEvent, None, None]:
        """As `transcribe`, with live text.

        Closing the generator cancels the decoding.

        Args:
            audio: As for `transcribe`.
            options: How to transcribe.
            resume_from: The last checkpoint of an earlier run with the same recording, model and
                options. Only what follows it is decoded. In compute types whose results do not
                depend on the batch (int8, bfloat16) it equals what an uninterrupted run gives.
            checkpoints: Yield a Checkpoint wherever a run can be resumed.
            overrides: Fields of TranscribeOptions that replace those of `options`.

        Yields:
            TranscriptionInfo once, then TextDelta, Retract and SegmentDone; with `checkpoints`
            also Checkpoint.
        """
        options = with_fields(options or TranscribeOptions(), overrides)
        loaded = self._loaded
        loaded.check(options)
        source = _without_tensors(audio)
        with collect_notices() as notices:
            if options.clip_timestamps and not options.in_chunks and isinstance(source, AudioFile):
                source = source.path  # the parts may be in any order
            source, blocks = judged_blocks(source)
            sections = None if blocks is None else _sections(blocks, source, options)
            if sections is not None:
                events = self._by_sections(sections, source, options, resume_from, checkpoints)
            elif options.in_chunks or loaded.chunks_only:
                events = transcribe_batched(loaded, source, options, resume_from, checkpoints)
            else:
                events = self._sequential(source, options, resume_from, checkpoints)
        for each in notices:  # as Python warnings too, for callers who do not read the result's
            notice(each.message, each.category)
        return _with_warnings(events, tuple(each.message for each in notices))

    def stream_chunks(
        self,
        chunks: Iterable[Chunk],
        options: TranscribeOptions,
        *,
        resume_from: Checkpoint | None = None,
    ) -> Generator[TranscriptEvent, None, None]:
        """As `stream` with checkpoints, of consecutive chunks: several transcribers, on several
        machines too, can share a recording.

        Args:
            chunks: From `split_recording`.
            options: As for `split_recording`.
            resume_from: What comes before them: `section` is that of the first, `chunks` one less
                than its number, `segments` the number of its first segment, and `language` is
                given.

        Raises:
            OptionError, UnsupportedTask, EngineError: As `transcribe`.
        """
        self._loaded.check(options)
        sections = sections_of_chunks(chunks)
        return self._by_sections(sections, None, options, resume_from, checkpoints=True)

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

    def encode(self, windows: Sequence[Tensor]) -> list[EncodedSource]:
        """Encode windows in one pass, for `window_decoder`: log-mel windows [mels, frames] of equal
        length, or what `live_source` makes."""
        return self._loaded.drafting.encode(windows)

    def live_source(self, samples: Samples, window_s: float) -> Tensor:
        """What the encoder takes of a live buffer.

        Args:
            samples: The buffer, [n] at 16 kHz.
            window_s: Length of the window in seconds, of a model that takes no shorter sound.
        """
        return self._loaded.live_source(samples, window_s)

    def language_probs(self, encoded: EncodedSource) -> dict[str, float]:
        """Return the probability of each language in an encoded window, most probable first."""
        return self._loaded.language_probs(encoded)

    def window_decoder(
        self, language: str, options: TranscribeOptions
    ) -> WindowDecoder | PlainDecoder:
        """The decoder of single windows for one language, task and set of options."""
        return self._loaded.window_decoder(language, options)

    def check(self, options: TranscribeOptions) -> None:
        """Check that the model can do what the options request.

        Raises:
            UnsupportedTask: The model lacks the language, the task or an option.
            OptionError: An option makes no sense with the model's vocabulary.
        """
        self._loaded.check(options)

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

    def _by_sections(
        self,
        sections: Iterable[RecordingSection],
        source: AudioSource | None,
        options: TranscribeOptions,
        resume_from: Checkpoint | None,
        checkpoints: bool,
    ) -> Generator[TranscriptEvent, None, None]:
        """Return the events of the sections of a recording, which clips have been cut out of."""
        first = replace(options, clip_timestamps=())
        later = replace(first, prefix=None, forced_phrases=())  # those are for the beginning

        def transcribe(
            audio: Any, resume_from: Checkpoint | None, checkpoints: bool, begins: bool
        ) -> Generator[TranscriptEvent, None, None]:
            chosen, loaded = first if begins else later, self._loaded
            if not isinstance(audio, np.ndarray | OneChannel):
                return transcribe_chunks(loaded, audio, chosen, resume_from, checkpoints)
            if chosen.in_chunks or loaded.chunks_only:
                return transcribe_batched(loaded, audio, chosen, resume_from, checkpoints)
            if isinstance(audio, OneChannel) and isinstance(source, np.ndarray):
                audio = np.concatenate(list(audio))  # so that its loudness is known
            return self._sequential(audio, chosen, resume_from, checkpoints)

        duration_s = len(source) / SAMPLE_RATE if isinstance(source, np.ndarray) else None
        return transcribe_sections(transcribe, sections, duration_s, resume_from, checkpoints)

    def _sequential(
        self,
        audio: AudioSource,
        options: TranscribeOptions,
        resume_from: Checkpoint | None,
        checkpoints: bool,
    ) -> Generator[TranscriptEvent, None, None]:
        """The events of a recording, decoded window after window."""
        points = options.clip_timestamps
        if is_stream(audio) and list(points) != sorted(points):
            raise OptionError("clip_timestamps of a stream of blocks must ascend")
        if is_stream(audio) and options.language_detection_segments > 1:
            raise OptionError(
                "language_detection_segments above 1 needs a whole recording, or a batch_size "
                "above 1 for a stream of blocks"
            )
        if not options.vad_filter:
            features = self._features(audio)
            return _decode_in_order(self.recognizer, features, options, resume_from, checkpoints)
        if is_stream(audio):
            raise OptionError("vad_filter needs a batch_size above 1 for a stream of blocks")
        samples = _samples(audio)
        speech, times = keep_speech(samples, options.vad)
        events = _decode_in_order(
            self.recognizer, self._file_features(speech), options, resume_from, checkpoints
        )
        return _with_times(events, times, len(samples) / SAMPLE_RATE)

    def _features(self, audio: AudioSource) -> WindowFeatures:
        if is_stream(audio):
            mels, window = self.model.architecture.num_mel_bins, self.recognizer.window_frames
            return StreamFeatures(read_blocks(audio), mels, window)
        return self._file_features(_samples(audio))

    def _file_features(self, samples: Samples) -> FileFeatures:
        mels, window = self.model.architecture.num_mel_bins, self.recognizer.window_frames
        return FileFeatures(samples, mels, window)


def _best_here() -> ResolvedModel:
    """The best recognizer on this machine.

    Raises:
        ModelNotFound: None is here; the message has the command that downloads one.
    """
    try:
        return choose_default("asr")
    except ModelNotFound as error:
        if error.download is None:
            raise
        command = f"`python -m edgeapp models pull {error.download}`"
        raise ModelNotFound(f"{error}: {command}", download=error.download) from None


def _sections(
    blocks: Iterable[Samples], audio: AudioSource, options: TranscribeOptions
) -> Iterator[RecordingSection] | None:
    """Return the sections of a recording with two channels; None if its mix is to be recognized."""
    if options.in_chunks or not options.clip_timestamps:
        duration_s: float | None = getattr(audio, "duration_s", None)
        if isinstance(audio, np.ndarray):
            duration_s = len(audio) / SAMPLE_RATE
        return sections_of(only_clips(blocks, options), duration_s)
    if not isinstance(audio, np.ndarray):
        return None
    clips = [(begin * HOP, end and end * HOP) for begin, end in _clips(options)]
    parts = [(begin, end) for begin, end in clips if begin < len(audio)]
    return sections_of_parts(audio, parts) if parts else None


def _samples(audio: AudioSource) -> Samples:
    """The samples [n] of a recording at 16 kHz. Raises AudioError if there are none."""
    samples = load_audio(audio)
    if not len(samples):
        raise AudioError("the audio array is empty")
    return samples


def _decode_in_order(
    recognizer: Recognizer,
    features: WindowFeatures,
    options: TranscribeOptions,
    resume_from: Checkpoint | None,
    checkpoints: bool,
) -> Generator[TranscriptEvent, None, None]:
    """The events of a recording, decoded window after window."""
    clips = _clips(options)
    first: SourceHandle | None = None  # the first window, where language detection has read it
    language, probability, probs = recognizer.given_language(options), None, None
    if resume_from is not None:
        language = resume_from.language
    if language is None:
        mel, frames = features.window(0)
        begin, end = clips[0]
        if frames == recognizer.window_frames and begin == 0 and (end is None or end >= frames):
            first = recognizer.drafting.source(mel)
        later = range(1, options.language_detection_segments)
        windows = (features.window(number * recognizer.window_frames) for number in later)
        language, probability, probs = recognizer.detect_language(
            chain(
                [first.encoded if first else features.first_window()],
                (mel for mel, frames in windows if frames),
            ),
            options,
        )
    yield TranscriptionInfo(
        language,
        probability,
        features.duration,
        duration_after_vad=features.duration,
        all_language_probs=None if probs is None else tuple(probs.items()),
    )

    task = decode_windows(
        recognizer,
        features,
        language,
        options,
        clips=clips,
        first_window=first,
        resume_from=resume_from,
        checkpoints=checkpoints,
    )
    events: Generator[DecodeEvent, None, None] = interleave([task])
    with closing(events):
        for event in events:
            yield replace(event, language=language) if isinstance(event, Checkpoint) else event


def _clips(options: TranscribeOptions) -> list[Clip]:
    """The parts to decode, in frames of 10 ms."""
    points = [round(seconds * FRAMES_PER_SECOND) for seconds in options.clip_timestamps]
    ends: list[int | None] = [*points[1::2], *([None] if len(points) % 2 else [])]
    return list(zip(points[::2], ends, strict=True)) or [(0, None)]


def _with_times(
    events: Generator[TranscriptEvent, None, None], times: SpeechMap, duration: float
) -> Generator[TranscriptEvent, None, None]:
    """The events of a recording's speech, with their times in the recording."""
    try:
        for event in events:
            if isinstance(event, TranscriptionInfo):
                yield replace(event, duration=duration)
            elif isinstance(event, SegmentDone):
                yield SegmentDone(times.restore(event.segment))
            else:
                yield event
    finally:
        events.close()


def _with_warnings(
    events: Generator[TranscriptEvent, None, None], warnings: tuple[str, ...]
) -> Generator[TranscriptEvent, None, None]:
    """Yield the events, the first of which is TranscriptionInfo, with the warnings in that."""
    with closing(events):
        for event in events:
            assert isinstance(event, TranscriptionInfo), "TranscriptionInfo is the first event"
            yield replace(event, warnings=warnings)
            break
        yield from events


def _without_tensors(audio: Recording) -> AudioSource:
    """A tensor, or the tensor of a pair (rate, tensor), as an array; others unchanged."""
    return tuple(map(_as_array, audio)) if isinstance(audio, tuple) else _as_array(audio)


def _as_array(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.dtype == torch.bfloat16:  # NumPy lacks it
        value = value.float()
    return value.detach().cpu().numpy()
