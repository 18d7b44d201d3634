"""A recording on its way to segments and their translation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edgeapp.batch.transcription_job import TranscriptionJob
from edgeapp.subtitles.formats import Cue
from pipelines.asr import Segment, SegmentDone, TranscribeOptions, TranscriptionInfo


class Heard:
    """A recogniser that says what it was made with."""

    def __init__(self, language: str, *texts: str) -> None:
        self._language, self._texts = language, texts

    def stream(self, audio: object, options: object) -> Iterator[TranscriptionInfo | SegmentDone]:
        yield TranscriptionInfo(self._language, 0.9, float(len(self._texts)))
        for at, text in enumerate(self._texts):
            yield SegmentDone(Segment(at, 0, at, at + 1.0, text, (), 0.0, 0.0, 1.0, 0.0))


class Nobody:
    """A view without a window."""

    def __getattr__(self, name: str) -> Any:
        return lambda *told: None


def test_what_is_in_the_wanted_language_already_needs_no_translator() -> None:
    """One of a folder of recordings in several languages."""

    def translator_for(spoken: str) -> Any:
        pytest.fail(f"asked for a translator from {spoken}")

    heard: Any = Heard("en", " Good", " morning.", " Good night")
    captions = TranscriptionJob(heard, TranscribeOptions(), translator_for, "en")
    transcript = captions.run("talk.wav", Nobody())
    assert transcript.translation_language == "en"
    assert transcript.translation == (Cue(0, 2.0, "Good morning."), Cue(2, 3.0, "Good night"))
