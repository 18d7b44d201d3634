"""A recording on its way to segments and their translation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from edgeapp.batch.recordings.progress import LiveTextView, ProgressBarView
from edgeapp.batch.recordings.transcription_job import TranscriptionJob
from edgeapp.batch.run_progress import RunProgress
from pipelines import Translation
from pipelines.asr import (
    LeftOut,
    Segment,
    SegmentDone,
    TextDelta,
    TranscribeOptions,
    TranscriptionInfo,
)
from pipelines.asr.capabilities import Capabilities
from pipelines.errors import NumericalError
from pipelines.subtitles import Cue


class FakeTranscriber:
    """Yields the given texts: each as a delta and as a segment of one second."""

    def __init__(self, language: str, *texts: str) -> None:
        self._language, self._texts = language, texts
        self.capabilities = Capabilities("whisper-small", True, True, ("en", "de"))

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


@pytest.mark.parametrize("texts", [(), ("", " ")])
def test_it_is_said_that_nothing_was_heard(texts: tuple[str, ...]) -> None:
    transcriber: Any = FakeTranscriber("en", *texts)
    view = RecordingView()
    TranscriptionJob(transcriber, TranscribeOptions(batch_size=1)).run("talk.wav", view)
    assert view.calls[-1] == ("warned", ("no speech was found",))
    again = RecordingView()
    TranscriptionJob(transcriber, TranscribeOptions()).run("talk.wav", again)
    message = "no speech was found; with a batch size of 1 no part is left out as silence"
    assert again.calls[-1] == ("warned", (message,))


@pytest.mark.parametrize(
    ("logprobs", "tokens", "language", "said"),
    [
        ((-0.95, -1.4), 12, None, True),  # as of tiny.en and a German recording
        ((-0.4, -1.0), 12, None, False),
        ((-1.2, -1.4), 12, "en", False),  # the person knows it
        ((-1.2, -1.4), 5, None, False),  # too few words to tell
    ],
)
def test_an_english_only_model_says_that_it_heard_another_language(
    logprobs: tuple[float, ...], tokens: int, language: str | None, said: bool
) -> None:
    class EnglishOnly(FakeTranscriber):
        capabilities = Capabilities("tiny.en", False, False, ("en",))

        def __init__(self) -> None: ...

        def stream(self, *arguments: Any, **options: Any) -> Iterator[Any]:
            yield TranscriptionInfo("en", None, 2.0)
            for at, logprob in enumerate(logprobs):
                ids = (1,) * tokens
                yield SegmentDone(Segment(at, 0, at, at + 1.0, "was", ids, 0.0, logprob, 1.0, 0.0))

    transcriber: Any = EnglishOnly()
    view = RecordingView()
    TranscriptionJob(transcriber, TranscribeOptions(language=language)).run("talk.wav", view)
    message = (
        "this sounds like another language than English, which is all that tiny.en understands"
    )
    assert (("warned", (message,)) in view.calls) is said


def test_it_is_said_that_speech_was_taken_for_silence() -> None:
    class Partly(FakeTranscriber):
        def stream(self, *arguments: Any, **options: Any) -> Iterator[Any]:
            yield from super().stream(*arguments, **options)
            yield LeftOut(12.2, 18.0)

    transcriber: Any = Partly("en", " Good.")
    view = RecordingView()
    TranscriptionJob(transcriber, TranscribeOptions()).run("talk.wav", view)
    message = (
        "12 of 18 s sound like speech and were taken for silence; with a batch size of 1 no part "
        "is left out as silence"
    )
    assert view.calls[-1] == ("warned", (message,))


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


class FakeTranslator:
    """Translates into capitals; waits until something else has happened."""

    target_codes = ()

    def __init__(self, may_go_on: threading.Event, fails: bool = False) -> None:
        self._may_go_on, self._fails = may_go_on, fails
        self.batches: list[int] = []

    def translate_lines(self, lines: Any, options: object) -> Iterator[Translation]:
        texts: list[str] = []
        for line in lines:
            if line is not None:
                texts.append(line)
                continue
            if texts:
                assert self._may_go_on.wait(60)
                self.batches.append(len(texts))
            if texts and self._fails:
                raise NumericalError("NaN")
            yield from (Translation(text, text.upper()) for text in texts)
            texts.clear()


def test_sentences_are_translated_while_the_next_are_recognized() -> None:
    texts = (" One.", " Two,", " two.", " Three.")
    all_recognized = threading.Event()

    class Waiting(FakeTranscriber):
        def stream(self, *arguments: Any, **named: Any) -> Iterator[Any]:
            yield from super().stream(*arguments, **named)
            all_recognized.set()

    translator: Any = FakeTranslator(all_recognized)
    transcriber: Any = Waiting("en", *texts)
    job = TranscriptionJob(
        transcriber, TranscribeOptions(), lambda spoken: translator, "de", overlap=True
    )
    result = job.run("talk.wav", RecordingView())
    assert result.translation == (
        Cue(0, 1.0, "ONE."), Cue(1, 3.0, "TWO, TWO."), Cue(3, 4.0, "THREE."),
    )  # fmt: skip
    assert sum(translator.batches) == 3


def test_a_translation_that_fails_behind_the_recognition_ends_the_job() -> None:
    may_go_on = threading.Event()
    may_go_on.set()
    translator: Any = FakeTranslator(may_go_on, fails=True)
    transcriber: Any = FakeTranscriber("en", " One.", " Two.")
    job = TranscriptionJob(
        transcriber, TranscribeOptions(), lambda spoken: translator, "de", overlap=True
    )
    with pytest.raises(NumericalError):
        job.run("talk.wav", RecordingView())
    assert not [thread for thread in threading.enumerate() if thread.name == "translation"]
