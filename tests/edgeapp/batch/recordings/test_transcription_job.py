"""A recording on its way to segments and their translation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edgeapp.batch.recordings.progress import LiveTextView, ProgressBarView
from edgeapp.batch.recordings.transcription_job import TranscriptionJob
from edgeapp.batch.run_progress import RunProgress
from edgeapp.subtitles.formats import Cue
from pipelines.asr import Segment, SegmentDone, TextDelta, TranscribeOptions, TranscriptionInfo


class FakeTranscriber:
    """Yields the given texts: each as a delta and as a segment of one second."""

    def __init__(self, language: str, *texts: str) -> None:
        self._language, self._texts = language, texts

    def stream(
        self, audio: object, options: object, *, resume_from: object, checkpoints: bool
    ) -> Iterator[TranscriptionInfo | TextDelta | SegmentDone]:
        yield TranscriptionInfo(self._language, 0.9, float(len(self._texts)))
        for at, text in enumerate(self._texts):
            yield TextDelta(text)
            yield SegmentDone(Segment(at, 0, at, at + 1.0, text, (), 0.0, 0.0, 1.0, 0.0))


class RecordingView:
    """A view that stores the calls of its methods: (method name, arguments)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, arguments))


def test_text_is_shown_as_it_is_decoded() -> None:
    transcriber: Any = FakeTranscriber("en", " Good", " morning.")
    view = RecordingView()
    TranscriptionJob(transcriber, TranscribeOptions()).run("talk.wav", view)
    assert [name for name, _ in view.calls] == ["started", *2 * ["text_delta", "segment"]]
    assert [arguments for name, arguments in view.calls if name == "text_delta"] == [
        (" Good",), (" morning.",),
    ]  # fmt: skip


def test_speech_in_the_target_language_needs_no_translator() -> None:
    """One of a folder of recordings in several languages."""

    def translator_for(spoken: str) -> Any:
        pytest.fail(f"a translator from {spoken} was loaded")

    transcriber: Any = FakeTranscriber("en", " Good", " morning.", " Good night")
    job = TranscriptionJob(transcriber, TranscribeOptions(), translator_for, "en")
    view = RecordingView()
    transcript = job.run("talk.wav", view)
    assert transcript.translation_language == "en"
    assert transcript.translation == (Cue(0, 2.0, "Good morning."), Cue(2, 3.0, "Good night"))
    said = [arguments for name, arguments in view.calls if name == "untranslated"]
    assert said == [(cue,) for cue in transcript.translation]
    assert "translated" not in [name for name, _ in view.calls]


def test_views_print_no_cue_that_needs_no_translation(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveTextView(timed=False) as live, ProgressBarView("talk", RunProgress()) as bar:
        for view in (live, bar):
            view.untranslated(Cue(0, 2.0, "Good morning."))
    captured = capsys.readouterr()
    assert "Good morning." not in captured.out + captured.err
