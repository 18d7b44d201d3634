"""Speech to text with Whisper models: cached, streaming decoding with openai-whisper's results.

    for segment in Transcriber("demo").transcribe("talk.mp3"):
        print(segment.start, segment.end, segment.text)

Names are imported when they are first used, so options and results are available without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.asr.audio.arrays import SAMPLE_RATE, LoudAudio, Samples
    from pipelines.asr.audio.decode import (
        AudioFile,
        AudioSource,
        DamagedAudio,
        load_audio,
        open_audio,
    )
    from pipelines.asr.audio.features import FRAMES_PER_SECOND, FileFeatures
    from pipelines.asr.audio.isolated import DecodingCancelled, load_audio_isolated
    from pipelines.asr.live.events import (
        CommittedText,
        CorrectedText,
        CorrectionDue,
        LiveEvent,
        OtherLanguage,
        PartialText,
        SpeechEnded,
        SpeechStarted,
        UpdateDecoded,
    )
    from pipelines.asr.live.options import LiveOptions
    from pipelines.asr.live.transcriber import LiveTranscriber
    from pipelines.asr.options import TranscribeOptions, TranscribeOverrides, VadOptions
    from pipelines.asr.recording_chunks import RecordingChunk, split_recording
    from pipelines.asr.results import (
        Checkpoint,
        LeftOut,
        Retract,
        Segment,
        SegmentDone,
        TextDelta,
        TokenLogprob,
        TranscriptEvent,
        Transcription,
        TranscriptionInfo,
        Word,
    )
    from pipelines.asr.transcriber import Transcriber
    from pipelines.asr.whisper_model import WhisperModel

# Public name → module.
_HOMES = {
    "AudioFile": "audio.decode",
    "AudioSource": "audio.decode",
    "Checkpoint": "results",
    "CommittedText": "live.events",
    "CorrectedText": "live.events",
    "CorrectionDue": "live.events",
    "DamagedAudio": "audio.decode",
    "DecodingCancelled": "audio.isolated",
    "FRAMES_PER_SECOND": "audio.features",
    "FileFeatures": "audio.features",
    "LeftOut": "results",
    "LiveEvent": "live.events",
    "LiveOptions": "live.options",
    "LiveTranscriber": "live.transcriber",
    "LoudAudio": "audio.arrays",
    "OtherLanguage": "live.events",
    "PartialText": "live.events",
    "RecordingChunk": "recording_chunks",
    "Retract": "results",
    "SAMPLE_RATE": "audio.arrays",
    "Samples": "audio.arrays",
    "Segment": "results",
    "SegmentDone": "results",
    "SpeechEnded": "live.events",
    "SpeechStarted": "live.events",
    "TextDelta": "results",
    "TokenLogprob": "results",
    "TranscribeOptions": "options",
    "TranscribeOverrides": "options",
    "Transcriber": "transcriber",
    "TranscriptEvent": "results",
    "Transcription": "results",
    "TranscriptionInfo": "results",
    "UpdateDecoded": "live.events",
    "VadOptions": "options",
    "WhisperModel": "whisper_model",
    "Word": "results",
    "load_audio": "audio.decode",
    "load_audio_isolated": "audio.isolated",
    "open_audio": "audio.decode",
    "split_recording": "recording_chunks",
}

__all__ = [
    "AudioFile",
    "AudioSource",
    "Checkpoint",
    "CommittedText",
    "CorrectedText",
    "CorrectionDue",
    "DamagedAudio",
    "DecodingCancelled",
    "FRAMES_PER_SECOND",
    "FileFeatures",
    "LeftOut",
    "LiveEvent",
    "LiveOptions",
    "LiveTranscriber",
    "LoudAudio",
    "OtherLanguage",
    "PartialText",
    "RecordingChunk",
    "Retract",
    "SAMPLE_RATE",
    "Samples",
    "Segment",
    "SegmentDone",
    "SpeechEnded",
    "SpeechStarted",
    "TextDelta",
    "TokenLogprob",
    "TranscribeOptions",
    "TranscribeOverrides",
    "Transcriber",
    "TranscriptEvent",
    "Transcription",
    "TranscriptionInfo",
    "UpdateDecoded",
    "VadOptions",
    "WhisperModel",
    "Word",
    "load_audio",
    "load_audio_isolated",
    "open_audio",
    "split_recording",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
