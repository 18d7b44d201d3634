"""Recognition one window after the other, as openai-whisper and transformers do it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pipelines.asr import TranscribeOptions, Transcriber, TranscriptEvent

__all__ = ["ByWindow"]


class ByWindow(Transcriber):
    """A transcriber whose `batch_size` is 1 unless a test says otherwise.

    For what only windows have, for comparisons with programs that have only windows, and for
    sounds that are not speech, which chunks leave out.
    """

    def stream(
        self, audio: Any, options: TranscribeOptions | None = None, **others: Any
    ) -> Generator[TranscriptEvent, None, None]:
        return super().stream(audio, options or TranscribeOptions(batch_size=1), **others)
