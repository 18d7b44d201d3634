"""Speech → text and text → text on one generation engine.

from pipelines import Transcriber, Translator
for segment in Transcriber("demo").transcribe("talk.mp3"):
    print(segment.start, segment.end, segment.text)
Translator("demo-en-de").translate(["Where is the station?"])
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.asr import Transcriber
    from pipelines.translation import Translator

__all__ = ["Transcriber", "Translator"]

_HOMES = {"Transcriber": "pipelines.asr", "Translator": "pipelines.translation"}


def __getattr__(name: str) -> object:
    """Import on first use: `import pipelines` itself must not cost a torch import."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
