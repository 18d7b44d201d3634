"""Speech to text and text to text on one generation engine.

    from pipelines import Transcriber, Translator

    with Transcriber("demo") as transcriber:
        for segment in transcriber.transcribe("talk.mp3"):
            print(segment.start, segment.end, segment.text)
    with Translator("demo-en-de") as translator:
        print(translator.translate("Where is the station?").text)

This package exports the public API: recognition, translation, live recognition and translation,
options, results and errors. `pipelines.hub` finds, lists and downloads models; `pipelines.engine`
generates token ids. Names are imported when they are first used: `import pipelines` does not load
torch.

The calls block. With asyncio, run them in threads; several threads can share one transcriber:

    def transcribe(path):
        return list(transcriber.transcribe(path))

    first, second = await asyncio.gather(
        asyncio.to_thread(transcribe, "talk.mp3"), asyncio.to_thread(transcribe, "call.mp3")
    )
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipelines.openmp import wait_passively

if TYPE_CHECKING:
    from pipelines.asr.audio.arrays import SAMPLE_RATE, LoudAudio, Samples
    from pipelines.asr.audio.decode import AudioSource, DamagedAudio, load_audio
    from pipelines.asr.audio.features import FRAMES_PER_SECOND, FileFeatures
    from pipelines.asr.audio.isolated import DecodingCancelled, load_audio_isolated
    from pipelines.asr.audio.vad import VoiceOptions
    from pipelines.asr.live.events import (
        CommittedText,
        LiveEvent,
        PartialText,
        SpeechEnded,
        SpeechStarted,
        UpdateDecoded,
    )
    from pipelines.asr.live.options import LiveOptions
    from pipelines.asr.live.transcriber import LiveTranscriber
    from pipelines.asr.options import TranscribeOptions, TranscribeOverrides
    from pipelines.asr.results import (
        Retract,
        Segment,
        SegmentDone,
        TextDelta,
        TranscriptEvent,
        Transcription,
        TranscriptionInfo,
        Word,
    )
    from pipelines.asr.transcriber import Transcriber
    from pipelines.languages import (
        LANGUAGES,
        is_one_language,
        language_code,
        pair_in_name,
        two_letter,
    )
    from pipelines.notices import Notice, collect_notices
    from pipelines.text_language import TextLanguage, detect_text_language, text_language_other_than
    from pipelines.translation.live import LiveTranslation, LiveTranslator
    from pipelines.translation.options import TranslateOptions, TranslateOverrides
    from pipelines.translation.parallel import ParallelTranslator
    from pipelines.translation.results import (
        Alignment,
        SentenceDone,
        SentenceTranslation,
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

_HOMES = {
    "SAMPLE_RATE": "pipelines.asr.audio.arrays",
    "LoudAudio": "pipelines.asr.audio.arrays",
    "Samples": "pipelines.asr.audio.arrays",
    "AudioSource": "pipelines.asr.audio.decode",
    "DamagedAudio": "pipelines.asr.audio.decode",
    "load_audio": "pipelines.asr.audio.decode",
    "FRAMES_PER_SECOND": "pipelines.asr.audio.features",
    "FileFeatures": "pipelines.asr.audio.features",
    "DecodingCancelled": "pipelines.asr.audio.isolated",
    "load_audio_isolated": "pipelines.asr.audio.isolated",
    "VoiceOptions": "pipelines.asr.audio.vad",
    "CommittedText": "pipelines.asr.live.events",
    "LiveEvent": "pipelines.asr.live.events",
    "PartialText": "pipelines.asr.live.events",
    "SpeechEnded": "pipelines.asr.live.events",
    "SpeechStarted": "pipelines.asr.live.events",
    "UpdateDecoded": "pipelines.asr.live.events",
    "LiveOptions": "pipelines.asr.live.options",
    "LiveTranscriber": "pipelines.asr.live.transcriber",
    "TranscribeOptions": "pipelines.asr.options",
    "TranscribeOverrides": "pipelines.asr.options",
    "Retract": "pipelines.asr.results",
    "Segment": "pipelines.asr.results",
    "SegmentDone": "pipelines.asr.results",
    "TextDelta": "pipelines.asr.results",
    "TranscriptEvent": "pipelines.asr.results",
    "TranscriptionInfo": "pipelines.asr.results",
    "Word": "pipelines.asr.results",
    "Transcriber": "pipelines.asr.transcriber",
    "Transcription": "pipelines.asr.results",
    "LANGUAGES": "pipelines.languages",
    "is_one_language": "pipelines.languages",
    "language_code": "pipelines.languages",
    "pair_in_name": "pipelines.languages",
    "two_letter": "pipelines.languages",
    "Notice": "pipelines.notices",
    "collect_notices": "pipelines.notices",
    "TextLanguage": "pipelines.text_language",
    "detect_text_language": "pipelines.text_language",
    "text_language_other_than": "pipelines.text_language",
    "LiveTranslation": "pipelines.translation.live",
    "LiveTranslator": "pipelines.translation.live",
    "TranslateOptions": "pipelines.translation.options",
    "TranslateOverrides": "pipelines.translation.options",
    "ParallelTranslator": "pipelines.translation.parallel",
    "Alignment": "pipelines.translation.results",
    "SentenceDone": "pipelines.translation.results",
    "SentenceTranslation": "pipelines.translation.results",
    "Translation": "pipelines.translation.results",
    "TranslationDelta": "pipelines.translation.results",
    "TranslationDone": "pipelines.translation.results",
    "TranslationEvent": "pipelines.translation.results",
    "model_languages": "pipelines.translation.tokenizers.auto",
    "Translator": "pipelines.translation.translator",
}

__all__ = [
    "Alignment",
    "AudioError",
    "AudioSource",
    "CheckpointError",
    "CommittedText",
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
    "OutputError",
    "ParallelTranslator",
    "PartialText",
    "RequestError",
    "Retract",
    "SAMPLE_RATE",
    "Samples",
    "Segment",
    "SegmentDone",
    "SentenceDone",
    "SentenceTranslation",
    "SpeechEnded",
    "SpeechStarted",
    "TextDelta",
    "TextLanguage",
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
    "VoiceOptions",
    "Word",
    "__version__",
    "collect_notices",
    "detect_text_language",
    "is_one_language",
    "language_code",
    "load_audio",
    "load_audio_isolated",
    "model_languages",
    "pair_in_name",
    "text_language_other_than",
    "two_letter",
]

wait_passively()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("edgeapp")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
