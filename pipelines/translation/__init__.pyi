"""The public names of this package, and where they are imported from."""

from .live import (
    LiveTranslation as LiveTranslation,
)
from .live import (
    LiveTranslator as LiveTranslator,
)
from .options import (
    TranslateOptions as TranslateOptions,
)
from .pair import (
    PairTranslator as PairTranslator,
)
from .parallel import (
    ParallelTranslator as ParallelTranslator,
)
from .results import (
    Alignment as Alignment,
)
from .results import (
    Alternative as Alternative,
)
from .results import (
    SentenceDone as SentenceDone,
)
from .results import (
    SentenceTranslation as SentenceTranslation,
)
from .results import (
    Span as Span,
)
from .results import (
    Translation as Translation,
)
from .results import (
    TranslationDelta as TranslationDelta,
)
from .results import (
    TranslationDone as TranslationDone,
)
from .results import (
    TranslationEvent as TranslationEvent,
)
from .tokenizers.auto import (
    model_languages as model_languages,
)
from .translator import (
    Translator as Translator,
)
