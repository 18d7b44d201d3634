"""Cached encoder-decoder generation: token ids in, token ids out.

engine = Engine(device="auto", precision="auto")
model = engine.load(folder)
memory, = model.encode([source])
for event in engine.stream(Request(memory, prompt, GenerationOptions(max_new_tokens=50))):
    event.tokens
"""

from pipelines.engine.decoding.request import (
    Event,
    FinishReason,
    GenerationOptions,
    Priority,
    Request,
    Result,
)
from pipelines.engine.decoding.rules import (
    BadWords,
    ForcedPrefix,
    MinNewTokens,
    NoRepeatNgram,
    OnlyTokens,
    RepetitionPenalty,
    Rule,
    Suppress,
    SuppressAtBegin,
    WhisperTimestamps,
    apply_rules,
)
from pipelines.engine.engine import Engine
from pipelines.engine.loaded import Model
from pipelines.engine.model.families import Architecture
from pipelines.engine.model.memory import Memory
from pipelines.engine.stream import Stream

__all__ = [
    "Architecture",
    "BadWords",
    "Engine",
    "Event",
    "FinishReason",
    "ForcedPrefix",
    "GenerationOptions",
    "Memory",
    "MinNewTokens",
    "Model",
    "NoRepeatNgram",
    "OnlyTokens",
    "Priority",
    "RepetitionPenalty",
    "Request",
    "Result",
    "Rule",
    "Stream",
    "Suppress",
    "SuppressAtBegin",
    "WhisperTimestamps",
    "apply_rules",
]
