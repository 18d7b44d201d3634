"""The public names of this package, and where they are imported from."""

from .asr.audio.arrays import (
    SAMPLE_RATE as SAMPLE_RATE,
)
from .asr.audio.decode import (
    load_audio as load_audio,
)
from .asr.live.events import (
    CommittedText as CommittedText,
)
from .asr.live.events import (
    PartialText as PartialText,
)
from .asr.live.options import (
    LiveOptions as LiveOptions,
)
from .asr.live.transcriber import (
    LiveTranscriber as LiveTranscriber,
)
from .asr.options import (
    TranscribeOptions as TranscribeOptions,
)
from .asr.options import (
    VadOptions as VadOptions,
)
from .asr.results import (
    Segment as Segment,
)
from .asr.results import (
    SegmentDone as SegmentDone,
)
from .asr.results import (
    TextDelta as TextDelta,
)
from .asr.results import (
    Transcription as Transcription,
)
from .asr.results import (
    TranscriptionInfo as TranscriptionInfo,
)
from .asr.results import (
    Word as Word,
)
from .asr.transcriber import (
    Transcriber as Transcriber,
)
from .asr.whisper_model import (
    WhisperModel as WhisperModel,
)
from .errors import (
    AudioError as AudioError,
)
from .errors import (
    EdgeError as EdgeError,
)
from .errors import (
    EngineError as EngineError,
)
from .errors import (
    InputError as InputError,
)
from .errors import (
    ModelError as ModelError,
)
from .errors import (
    ModelNotFound as ModelNotFound,
)
from .errors import (
    OptionError as OptionError,
)
from .errors import (
    OutputError as OutputError,
)
from .languages import (
    LANGUAGES as LANGUAGES,
)
from .reading.reader import (
    Reader as Reader,
)
from .reading.results import (
    ReadOptions as ReadOptions,
)
from .translation.live import (
    LiveTranslator as LiveTranslator,
)
from .translation.options import (
    TranslateOptions as TranslateOptions,
)
from .translation.results import (
    Translation as Translation,
)
from .translation.results import (
    TranslationDelta as TranslationDelta,
)
from .translation.results import (
    TranslationDone as TranslationDone,
)
from .translation.translator import (
    Translator as Translator,
)

__version__: str
