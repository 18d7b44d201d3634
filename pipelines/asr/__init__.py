"""Speech to text with Whisper models: cached, streaming decoding with openai-whisper's results.

    for segment in Transcriber("demo").transcribe("talk.mp3"):
        print(segment.start, segment.end, segment.text)

Names are imported when they are first used, so options and results are available without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.asr.audio.arrays import LoudAudio
    from pipelines.asr.audio.decode import AudioSource, DamagedAudio, load_audio
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

_HOMES = {
    "AudioSource": "audio.decode",
    "DamagedAudio": "audio.decode",
    "LoudAudio": "audio.arrays",
    "Retract": "results",
    "Segment": "results",
    "SegmentDone": "results",
    "TextDelta": "results",
    "TranscribeOptions": "options",
    "TranscribeOverrides": "options",
    "Transcriber": "transcriber",
    "TranscriptEvent": "results",
    "Transcription": "results",
    "TranscriptionInfo": "results",
    "Word": "results",
    "load_audio": "audio.decode",
}

__all__ = [
    "AudioSource",
    "DamagedAudio",
    "LoudAudio",
    "Retract",
    "Segment",
    "SegmentDone",
    "TextDelta",
    "TranscribeOptions",
    "TranscribeOverrides",
    "Transcriber",
    "TranscriptEvent",
    "Transcription",
    "TranscriptionInfo",
    "Word",
    "load_audio",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
