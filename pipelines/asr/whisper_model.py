"""`WhisperModel`, with faster-whisper's signatures: a program changes one line, the import."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Literal

from pipelines.asr.audio.chunks import CHUNK_VAD
from pipelines.asr.audio.speech_filter import WINDOW_VAD
from pipelines.asr.options import TranscribeOptions, VadOptions
from pipelines.asr.results import Segment, Transcription, TranscriptionInfo
from pipelines.asr.transcriber import Recording, Transcriber
from pipelines.errors import OptionError
from pipelines.languages import language_code
from pipelines.notices import notice

_NO_CLIPS = "0"  # faster-whisper's default: all of the recording
_WINDOW_S = 30
_CHUNK_VAD = replace(CHUNK_VAD, max_speech_duration_s=_WINDOW_S)


@dataclass(frozen=True)
class WhisperInfo(TranscriptionInfo):
    """What is known of a recording before it is decoded.

    Attributes:
        duration_after_vad: Seconds of audio that are decoded; in chunks, whose speech is not known
            before, `duration`.
        transcription_options: How it is transcribed.
        vad_options: What counts as speech, without None where a default is meant; None without
            `vad_filter`.
    """

    transcription_options: TranscribeOptions = field(
        default_factory=TranscribeOptions, kw_only=True, repr=False
    )
    vad_options: VadOptions | None = field(default=None, kw_only=True)


class WhisperModel:
    """A speech recognition model that is used as faster-whisper's.

        model = WhisperModel("base")
        segments, info = model.transcribe("talk.mp3", beam_size=5)
        for segment in segments:
            print(segment.start, segment.end, segment.text)

    Recordings are decoded window by window, as in faster-whisper; `Transcriber`, with which it can
    be mixed, has other defaults: chunks, whose silence is left out.

    Attributes:
        transcriber: The model, for live captions and for all that faster-whisper lacks.
    """

    def __init__(
        self,
        model_size_or_path: str,
        device: str = "auto",
        device_index: int | Sequence[int] = 0,
        compute_type: str = "default",
        cpu_threads: int = 0,
        num_workers: int = 1,
        download_root: str | None = None,
        local_files_only: bool = False,
        files: Mapping[str, bytes | IO[bytes]] | None = None,
        revision: str | None = None,
        use_auth_token: str | bool | None = None,
    ) -> None:
        """
        Args:
            model_size_or_path: A name that `pipelines.hub` resolves, or a folder. A model that is
                not on this machine is downloaded; faster-whisper's repositories stand for OpenAI's.
            device: "auto", "cpu" or "cuda".
            device_index: The number of the GPU; of a list only one.
            compute_type: "default", "auto", "float32", "bfloat16", "float16", "int8", or one of
                CTranslate2's kinds of int8, which mean int8.
            cpu_threads: 0: all cores.
            num_workers: Without effect: the engine decodes the requests of all threads in one
                batch.
            download_root: Folder in which models are looked for and stored. None: the Hugging Face
                cache.
            local_files_only: Do not use the network.
            files: File name → content of a model in memory.
            revision: Branch, tag or commit of the model's repository.
            use_auth_token: Token of the hub. True or None: the machine's. False: none.

        Raises:
            ModelNotFound, ModelError, OptionError: As Transcriber.
        """
        with ExitStack() as opened:
            model: str | Path = _published(model_size_or_path)
            if files is not None:
                folder = opened.enter_context(TemporaryDirectory(prefix="edgeapp-"))
                model = _write(files, Path(folder))
            self.transcriber = Transcriber(
                model,
                device=device,
                device_index=device_index,
                compute_type=_compute_type(compute_type),
                threads=cpu_threads or "auto",
                name=model_size_or_path,
                download=not local_files_only,
                revision=revision,
                cache_dir=download_root,
                token=use_auth_token,
            )
            self._opened = opened.pop_all()

    @property
    def supported_languages(self) -> list[str]:
        """The codes of the languages that the model recognizes."""
        return list(self.transcriber.languages)

    def transcribe(
        self,
        audio: Recording,
        language: str | None = None,
        task: Literal["transcribe", "translate"] = "transcribe",
        log_progress: bool = False,
        beam_size: int = 5,
        best_of: int = 5,
        patience: float = 1,
        length_penalty: float = 1,
        repetition_penalty: float = 1,
        no_repeat_ngram_size: int = 0,
        temperature: float | Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
        compression_ratio_threshold: float | None = 2.4,
        log_prob_threshold: float | None = -1.0,
        no_speech_threshold: float | None = 0.6,
        condition_on_previous_text: bool = True,
        prompt_reset_on_temperature: float = 0.5,
        initial_prompt: str | Iterable[int] | None = None,
        prefix: str | None = None,
        suppress_blank: bool = True,
        suppress_tokens: Sequence[int] | str | None = (-1,),
        without_timestamps: bool = False,
        max_initial_timestamp: float = 1.0,
        word_timestamps: bool = False,
        prepend_punctuations: str = TranscribeOptions.prepend_punctuations,
        append_punctuations: str = TranscribeOptions.append_punctuations,
        multilingual: bool = False,
        vad_filter: bool = False,
        vad_parameters: Mapping[str, Any] | VadOptions | None = None,
        max_new_tokens: int | None = None,
        chunk_length: int | None = None,
        clip_timestamps: str | Sequence[float] = _NO_CLIPS,
        hallucination_silence_threshold: float | None = None,
        hotwords: str | None = None,
        language_detection_threshold: float | None = 0.5,
        language_detection_segments: int = 1,
        *,
        batch_size: int = 1,
    ) -> tuple[Iterator[Segment], WhisperInfo]:
        """Transcribe a recording; the arguments are those of `TranscribeOptions`, but for these.

        Args:
            audio: As for `Transcriber.transcribe`.
            log_progress: Show a progress bar.
            length_penalty: 1 ranks hypotheses by mean log-probability, as in faster-whisper. Other
                values are those of `TranscribeOptions`.
            log_prob_threshold: `logprob_threshold`.
            chunk_length: `chunk_s`; other than 30 with a `batch_size` above 1.
            batch_size: Above 1: decode in chunks, as BatchedInferencePipeline does.

        Returns:
            The segments, which are decoded as they are iterated, and what is known before. Those
            without duration or text are left out, and the others are numbered from 1.
        """
        chunks = batch_size > 1
        clips = clip_timestamps if isinstance(clip_timestamps, str) else tuple(clip_timestamps)
        if clips == _NO_CLIPS:
            clips = ()
        if chunk_length not in (None, _WINDOW_S) and not chunks:
            raise OptionError("chunk_length needs a batch_size above 1")
        if self.supported_languages == ["en"]:
            if language is not None and language_code(language) != "en":
                notice(
                    f"{self.transcriber.capabilities.name} recognizes only English, not {language}"
                )
                language = "en"
            multilingual = False
        filtered = chunks or (vad_filter and not clips)  # parts are decoded as they are
        given: dict[str, Any] = {
            "temperature": temperature,
            "initial_prompt": initial_prompt,
            "suppress_tokens": suppress_tokens,
            "clip_timestamps": clips,
        }
        options = TranscribeOptions(
            language=language,
            task=task,
            beam_size=beam_size,
            best_of=best_of,
            patience=patience,
            length_penalty=None if length_penalty == 1 else length_penalty,
            repetition_penalty=repetition_penalty,
            no_repeat_ngram_size=no_repeat_ngram_size,
            compression_ratio_threshold=compression_ratio_threshold,
            logprob_threshold=log_prob_threshold,
            no_speech_threshold=no_speech_threshold,
            condition_on_previous_text=condition_on_previous_text,
            prompt_reset_on_temperature=prompt_reset_on_temperature,
            prefix=prefix,
            suppress_blank=suppress_blank,
            without_timestamps=without_timestamps,
            max_initial_timestamp=max_initial_timestamp,
            word_timestamps=word_timestamps,
            prepend_punctuations=prepend_punctuations,
            append_punctuations=append_punctuations,
            multilingual=multilingual,
            vad_filter=filtered or None,
            vad_parameters=vad_parameters if filtered else None,
            max_new_tokens=max_new_tokens,
            hallucination_silence_threshold=(
                hallucination_silence_threshold if word_timestamps else None
            ),
            hotwords=hotwords,
            # None accepts the first window's, which the lowest threshold does.
            language_detection_threshold=language_detection_threshold or 0.0,
            language_detection_segments=language_detection_segments,
            batch_size=batch_size,
            chunk_s=chunk_length if chunks else None,
            **given,
        )
        result = self.transcriber.transcribe(audio, options)
        found = asdict(result.info)
        if found["language_probability"] is None:
            found["language_probability"] = 1.0
        if found["duration_after_vad"] is None:
            found["duration_after_vad"] = found["duration"]
        vad = None
        if filtered:
            vad = options.vad.over(_CHUNK_VAD if chunks else WINDOW_VAD)
            vad = replace(vad, neg_threshold=vad.release)
        info = WhisperInfo(**found, transcription_options=options, vad_options=vad)
        segments = _numbered(result)
        return (_with_progress(segments, info.duration) if log_progress else segments), info

    def detect_language(
        self,
        audio: Recording | None = None,
        features: None = None,
        vad_filter: bool = False,
        vad_parameters: Mapping[str, Any] | VadOptions | None = None,
        language_detection_segments: int = 1,
        language_detection_threshold: float = 0.5,
    ) -> tuple[str, float, list[tuple[str, float]]]:
        """Detect the language of a recording; `features` are not accepted in its place.

        Returns:
            Language code, its probability, and (code, probability) of all, most probable first.
        """
        if audio is None or features is not None:
            raise OptionError("detect_language takes a recording, not its features")
        options = TranscribeOptions(
            batch_size=1,
            vad_filter=vad_filter or None,
            vad_parameters=vad_parameters if vad_filter else None,
            language_detection_segments=language_detection_segments,
            language_detection_threshold=language_detection_threshold,
        )
        with closing(self.transcriber.transcribe(audio, options)) as result:
            info = result.info
        probs = info.all_language_probs or ((info.language, 1.0),)
        return info.language, info.language_probability or 1.0, list(probs)

    def close(self) -> None:
        """Release the model."""
        self.transcriber.close()
        self._opened.close()

    def __enter__(self) -> WhisperModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _published(model: str) -> str:
    """Return the size of OpenAI's model that a repository of faster-whisper's converts."""
    converted = re.fullmatch(r"(?:Systran|mobiuslabsgmbh)/faster-whisper-([\w.-]+)", model)
    return converted[1] if converted and not Path(model).is_dir() else model


def _compute_type(name: str) -> str:
    """Return our name of one of CTranslate2's compute types."""
    if name == "default":
        return "auto"
    return "int8" if name.startswith("int8_") else name


def _write(files: Mapping[str, bytes | IO[bytes]], folder: Path) -> Path:
    """Write the files of a model into a folder. Raises OptionError for a name with a path."""
    for name, content in files.items():
        if Path(name).name != name:
            raise OptionError(f"files: {name!r} is not the name of a file")
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.read())
    return folder


def _numbered(segments: Transcription) -> Generator[Segment, None, None]:
    """Return the segments with duration and text, numbered from 1, as faster-whisper's are."""
    with closing(segments):
        spoken = (each for each in segments if each.end > each.start and each.text.strip())
        for number, segment in enumerate(spoken, 1):
            yield replace(segment, id=number)


def _with_progress(
    segments: Generator[Segment, None, None], duration_s: float | None
) -> Iterator[Segment]:
    """Return the segments, and show how far they have come."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    with closing(segments), tqdm(total=duration_s, unit="seconds") as bar:
        for segment in segments:
            bar.update(segment.end - bar.n)
            yield segment
        bar.update((duration_s or bar.n) - bar.n)
