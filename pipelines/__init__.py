"""Speech to text and text to text on one generation engine.

    from pipelines import Transcriber, Translator

    with Transcriber("demo") as transcriber:
        for segment in transcriber.transcribe("talk.mp3"):
            print(segment.start, segment.end, segment.text)
    with Translator("demo-en-de") as translator:
        print(translator.translate("Where is the station?").text)

This package exports the public API: recognition, translation, live recognition and translation,
reading of pictures, options, results and errors. `pipelines.hub` finds, lists and downloads models;
`pipelines.engine` generates token ids. Names are imported when they are first used: `import
pipelines` does not load torch.

The calls block. With asyncio, run them in threads; several threads can share one transcriber:

    def transcribe(path):
        return list(transcriber.transcribe(path))

    first, second = await asyncio.gather(
        asyncio.to_thread(transcribe, "talk.mp3"), asyncio.to_thread(transcribe, "call.mp3")
    )
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

from pipelines import asr
from pipelines.openmp import wait_passively

if TYPE_CHECKING:
    from pipelines.asr import (
        FRAMES_PER_SECOND,
        SAMPLE_RATE,
        AudioFile,
        AudioSource,
        Checkpoint,
        CommittedText,
        CorrectedText,
        CorrectionDue,
        DamagedAudio,
        DecodingCancelled,
        FileFeatures,
        LeftOut,
        LiveEvent,
        LiveOptions,
        LiveTranscriber,
        LoudAudio,
        OtherLanguage,
        PartialText,
        RecordingChunk,
        Retract,
        Samples,
        Segment,
        SegmentDone,
        SpeechEnded,
        SpeechStarted,
        TextDelta,
        TokenLogprob,
        TranscribeOptions,
        TranscribeOverrides,
        Transcriber,
        TranscriptEvent,
        Transcription,
        TranscriptionInfo,
        UpdateDecoded,
        VadOptions,
        WhisperModel,
        Word,
        load_audio,
        load_audio_isolated,
        open_audio,
        split_recording,
    )
    from pipelines.decoding_choices import Alternative
    from pipelines.languages import (
        LANGUAGES,
        PIVOT,
        is_one_language,
        language_code,
        language_in_name,
        pair_in_name,
        pairs_through_english,
        two_letter,
    )
    from pipelines.notices import Notice, collect_notices
    from pipelines.reading.reader import Reader
    from pipelines.reading.results import (
        LineDelta,
        LineDone,
        LinesFound,
        PictureText,
        ReadEvent,
        ReadLine,
        ReadOptions,
    )
    from pipelines.text_language import (
        TextLanguage,
        detect_text_language,
        rank_text_languages,
        text_language_other_than,
    )
    from pipelines.translation.live import LiveTranslation, LiveTranslator
    from pipelines.translation.options import TranslateOptions, TranslateOverrides
    from pipelines.translation.pair import PairTranslator
    from pipelines.translation.parallel import ParallelTranslator
    from pipelines.translation.results import (
        Alignment,
        SentenceDone,
        SentenceTranslation,
        Span,
        Translation,
        TranslationDelta,
        TranslationDone,
        TranslationEvent,
    )
    from pipelines.translation.tokenizers.auto import model_languages
    from pipelines.translation.translator import Translator

from pipelines.errors import (
    AudioError,
    CheckpointError,
    DeviceError,
    DeviceLost,
    EdgeError,
    EngineError,
    InputError,
    LongAudio,
    ModelError,
    ModelNotFound,
    NumericalError,
    OptionError,
    OutputError,
    RequestError,
    UnsupportedTask,
)

# Public name → module that has it; pipelines.asr is such a table itself.
_HOMES = dict.fromkeys(asr.__all__, "pipelines.asr") | {
    "LANGUAGES": "pipelines.languages",
    "PIVOT": "pipelines.languages",
    "pairs_through_english": "pipelines.languages",
    "PairTranslator": "pipelines.translation.pair",
    "is_one_language": "pipelines.languages",
    "language_code": "pipelines.languages",
    "language_in_name": "pipelines.languages",
    "pair_in_name": "pipelines.languages",
    "two_letter": "pipelines.languages",
    "Notice": "pipelines.notices",
    "collect_notices": "pipelines.notices",
    "LineDelta": "pipelines.reading.results",
    "LineDone": "pipelines.reading.results",
    "LinesFound": "pipelines.reading.results",
    "PictureText": "pipelines.reading.results",
    "ReadEvent": "pipelines.reading.results",
    "ReadLine": "pipelines.reading.results",
    "ReadOptions": "pipelines.reading.results",
    "Reader": "pipelines.reading.reader",
    "TextLanguage": "pipelines.text_language",
    "detect_text_language": "pipelines.text_language",
    "rank_text_languages": "pipelines.text_language",
    "text_language_other_than": "pipelines.text_language",
    "LiveTranslation": "pipelines.translation.live",
    "LiveTranslator": "pipelines.translation.live",
    "TranslateOptions": "pipelines.translation.options",
    "TranslateOverrides": "pipelines.translation.options",
    "ParallelTranslator": "pipelines.translation.parallel",
    "Alignment": "pipelines.translation.results",
    "Alternative": "pipelines.decoding_choices",
    "SentenceDone": "pipelines.translation.results",
    "SentenceTranslation": "pipelines.translation.results",
    "Span": "pipelines.translation.results",
    "Translation": "pipelines.translation.results",
    "TranslationDelta": "pipelines.translation.results",
    "TranslationDone": "pipelines.translation.results",
    "TranslationEvent": "pipelines.translation.results",
    "model_languages": "pipelines.translation.tokenizers.auto",
    "Translator": "pipelines.translation.translator",
}

__all__ = [
    "Alignment",
    "Alternative",
    "AudioError",
    "AudioFile",
    "AudioSource",
    "Checkpoint",
    "CheckpointError",
    "CommittedText",
    "CorrectedText",
    "CorrectionDue",
    "DamagedAudio",
    "DecodingCancelled",
    "DeviceError",
    "DeviceLost",
    "EdgeError",
    "EngineError",
    "FRAMES_PER_SECOND",
    "FileFeatures",
    "InputError",
    "LANGUAGES",
    "LeftOut",
    "LineDelta",
    "LineDone",
    "LinesFound",
    "LiveEvent",
    "LiveOptions",
    "LiveTranscriber",
    "LiveTranslation",
    "LiveTranslator",
    "LongAudio",
    "LoudAudio",
    "ModelError",
    "ModelNotFound",
    "Notice",
    "NumericalError",
    "OptionError",
    "OtherLanguage",
    "OutputError",
    "PIVOT",
    "PairTranslator",
    "ParallelTranslator",
    "PartialText",
    "PictureText",
    "ReadEvent",
    "ReadLine",
    "ReadOptions",
    "Reader",
    "RecordingChunk",
    "RequestError",
    "Retract",
    "SAMPLE_RATE",
    "Samples",
    "Segment",
    "SegmentDone",
    "SentenceDone",
    "SentenceTranslation",
    "Span",
    "SpeechEnded",
    "SpeechStarted",
    "TextDelta",
    "TextLanguage",
    "TokenLogprob",
    "TranscribeOptions",
    "TranscribeOverrides",
    "Transcriber",
    "TranscriptEvent",
    "Transcription",
    "TranscriptionInfo",
    "TranslateOptions",
    "TranslateOverrides",
    "Translation",
    "TranslationDelta",
    "TranslationDone",
    "TranslationEvent",
    "Translator",
    "UnsupportedTask",
    "UpdateDecoded",
    "VadOptions",
    "WhisperModel",
    "Word",
    "__version__",
    "collect_notices",
    "detect_text_language",
    "is_one_language",
    "language_code",
    "language_in_name",
    "load_audio",
    "load_audio_isolated",
    "model_languages",
    "open_audio",
    "pair_in_name",
    "pairs_through_english",
    "rank_text_languages",
    "split_recording",
    "text_language_other_than",
    "two_letter",
]

# Former names, which warn for one version.
_RENAMED = {"VoiceOptions": "VadOptions"}

wait_passively()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("edgeapp")
    if name in _RENAMED:
        warn(
            f"pipelines.{name} is now pipelines.{_RENAMED[name]}", DeprecationWarning, stacklevel=2
        )
        name = _RENAMED[name]
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
