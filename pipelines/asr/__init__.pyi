"""The public names of this package, and where they are imported from."""

from .audio.arrays import (
    SAMPLE_RATE as SAMPLE_RATE,
)
from .audio.arrays import (
    LoudAudio as LoudAudio,
)
from .audio.arrays import (
    Samples as Samples,
)
from .audio.chunks import (
    Chunk as Chunk,
)
from .audio.decode import (
    AudioFile as AudioFile,
)
from .audio.decode import (
    AudioSource as AudioSource,
)
from .audio.decode import (
    DamagedAudio as DamagedAudio,
)
from .audio.decode import (
    load_audio as load_audio,
)
from .audio.decode import (
    open_audio as open_audio,
)
from .audio.features import (
    FRAMES_PER_SECOND as FRAMES_PER_SECOND,
)
from .audio.features import (
    FileFeatures as FileFeatures,
)
from .audio.isolated import (
    DecodingCancelled as DecodingCancelled,
)
from .audio.isolated import (
    load_audio_isolated as load_audio_isolated,
)
from .audio.speech_filter import (
    WINDOW_VAD as WINDOW_VAD,
)
from .live.events import (
    CommittedText as CommittedText,
)
from .live.events import (
    CorrectedText as CorrectedText,
)
from .live.events import (
    CorrectionDue as CorrectionDue,
)
from .live.events import (
    LiveEvent as LiveEvent,
)
from .live.events import (
    OtherLanguage as OtherLanguage,
)
from .live.events import (
    PartialText as PartialText,
)
from .live.events import (
    SpeechEnded as SpeechEnded,
)
from .live.events import (
    SpeechStarted as SpeechStarted,
)
from .live.events import (
    UpdateDecoded as UpdateDecoded,
)
from .live.options import (
    LiveOptions as LiveOptions,
)
from .live.transcriber import (
    LiveTranscriber as LiveTranscriber,
)
from .options import (
    TranscribeOptions as TranscribeOptions,
)
from .options import (
    VadOptions as VadOptions,
)
from .recording_chunks import (
    split_recording as split_recording,
)
from .results import (
    Alternative as Alternative,
)
from .results import (
    Checkpoint as Checkpoint,
)
from .results import (
    LeftOut as LeftOut,
)
from .results import (
    Retract as Retract,
)
from .results import (
    Segment as Segment,
)
from .results import (
    SegmentDone as SegmentDone,
)
from .results import (
    TextDelta as TextDelta,
)
from .results import (
    TokenLogprob as TokenLogprob,
)
from .results import (
    TranscriptEvent as TranscriptEvent,
)
from .results import (
    Transcription as Transcription,
)
from .results import (
    TranscriptionInfo as TranscriptionInfo,
)
from .results import (
    Word as Word,
)
from .transcriber import (
    Transcriber as Transcriber,
)
from .whisper_model import (
    WhisperInfo as WhisperInfo,
)
from .whisper_model import (
    WhisperModel as WhisperModel,
)
