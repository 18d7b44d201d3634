"""The kinds of sources: each file checks, divides and encodes those of one kind.

A new kind is a file here, with a `Source`, and its name in SOURCES.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.engine.model.sources.audio import AudioSource
from pipelines.engine.model.sources.base import (
    EncoderLayers,
    NoSource,
    Source,
    SourceSpan,
    Stem,
    TensorSource,
)
from pipelines.engine.model.sources.tokens import TokenSource
from pipelines.engine.model.sources.waveform import WaveformSource
from pipelines.families.architecture import Architecture

__all__ = ["SOURCES", "EncoderLayers", "NoSource", "Source", "SourceSpan", "Stem", "source_of"]

SOURCES: Mapping[str, type[Source]] = {
    "audio": AudioSource,
    "waveform": WaveformSource,
    "tokens": TokenSource,
    "other": TensorSource,
    "none": NoSource,
}
"""Architecture.source → the kind."""


def source_of(architecture: Architecture) -> Source:
    """Return the kind of source that a model's encoder reads."""
    return SOURCES[architecture.source](architecture)
