"""What the bundled translator writes in float32 and in `auto`, for runs under other CPUs.

Imports no pytest: arm_check.py and the processes of test_portable.py run it.
"""

from __future__ import annotations

from pipelines.engine import Engine
from pipelines.hub import bundled_folder
from pipelines.translation import Translator

__all__ = ["SENTENCES", "translations"]

SENTENCES = [
    "Where is the station?",
    "I would like a cup of tea.",
    "My brother lives in Berlin.",
    "It is raining again today.",
    "She reads a book every week.",
    "Can you help me, please?",
    "The children are playing in the garden.",
    "We have no time.",
]


def translations(engine: Engine) -> tuple[str, list[str]]:
    """The kernels that the engine's translator runs on, and SENTENCES in German."""
    translator = Translator(bundled_folder("demo-en-de"), engine=engine)
    return translator.model.backend.kernels, [r.text for r in translator.translate(SENTENCES)]
