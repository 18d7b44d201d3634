"""Speech to text and text to text on one generation engine.

    from pipelines import Transcriber, Translator

    with Transcriber("demo") as transcriber:
        for segment in transcriber.transcribe("talk.mp3"):
            print(segment.start, segment.end, segment.text)
    with Translator("demo-en-de") as translator:
        print(translator.translate("Where is the station?").text)

This package exports what most programs use. The rest is in `pipelines.asr` (recognition),
`pipelines.translation`, `pipelines.reading` (of pictures), `pipelines.hub` (finds, lists and
downloads models), `pipelines.engine` (generates token ids), `pipelines.subtitles` (writes cues),
`pipelines.errors`, `pipelines.languages`, `pipelines.text_language` and `pipelines.notices`. Names
are imported when they are first used, from where `__init__.pyi` says: `import pipelines` does not
load torch.

The calls block. With asyncio, run them in threads; several threads can share one transcriber:

    def transcribe(path):
        return list(transcriber.transcribe(path))

    first, second = await asyncio.gather(
        asyncio.to_thread(transcribe, "talk.mp3"), asyncio.to_thread(transcribe, "call.mp3")
    )
"""

from importlib import import_module
from typing import Any
from warnings import warn

import lazy_loader

from pipelines.openmp import wait_passively

_import, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# Where names are that this package exported before; each warns for one version.
_HOMES = ("asr", "translation", "reading", "errors", "languages", "notices", "text_language")
_RENAMED = {"VoiceOptions": "VadOptions"}

wait_passively()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("edgeapp")
    if name in __all__:
        return _import(name)
    package, new = __name__, _RENAMED.get(name)
    for home in _HOMES if new is None and not name.startswith("_") else ():
        if name in import_module(f"{__name__}.{home}").__all__:
            package, new = f"{__name__}.{home}", name
            break
    if new is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn(f"pipelines.{name} is now {package}.{new}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(package), new)
