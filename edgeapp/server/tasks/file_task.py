"""Transcription of an uploaded recording, streamed as it is decoded, with its spectrogram."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.batch.recordings.transcription_job import TranscriptionJob
from edgeapp.english_only import english_only_note
from edgeapp.history import TranslatedCue
from edgeapp.live.doubts import doubts_of
from edgeapp.server.page.sounds import media_suffix
from edgeapp.server.recordings import load_recording
from edgeapp.server.sessions import TaskCancelled
from edgeapp.server.tasks.cancellable_task import UploadTask
from edgeapp.server.tasks.spectrogram import spectrogram
from pipelines import InputError
from pipelines.errors import LongAudio
from pipelines.subtitles import Cue

if TYPE_CHECKING:
    from edgeapp.history import History, Journal
    from edgeapp.model_pool import ModelPool
    from edgeapp.server.page.picker_options import ModelChoice
    from edgeapp.server.sessions import Send
    from pipelines import Segment, TranscriptionInfo, Translation, Translator
    from pipelines.asr import Samples

__all__ = ["FileTask"]


class FileTask(UploadTask):
    """Transcribes, and optionally translates, a recording.

    Args:
        pool: The shared models.
        history: Where the transcript is stored.
        choice: Models and languages.
        path: The uploaded file. The task owns it: it moves it into the history, or deletes it.
        name: The file's name on the user's machine, for messages and the history.
        minutes: The longest recording that is accepted.
    """

    kind = "file"

    def __init__(
        self,
        pool: ModelPool,
        history: History,
        choice: ModelChoice,
        path: Path,
        name: str,
        minutes: float,
    ) -> None:
        super().__init__(path)
        self._pool, self._history, self._choice = pool, history, choice
        self._name, self._minutes = name, minutes

    def run(self, send: Send) -> None:
        try:
            samples = self._load(send)
            self.check()
            # In a thread of its own, so that it does not delay the first words.
            drawing = threading.Thread(target=self._draw, args=(samples, send), daemon=True)
            drawing.start()
            self._transcribe(samples, send)
            drawing.join()
        finally:
            self._path.unlink(missing_ok=True)

    def _draw(self, samples: Samples, send: Send) -> None:
        send({"type": "file_sound", **spectrogram(samples)})

    def _transcribe(self, samples: Samples, send: Send) -> None:
        from pipelines import TranscribeOptions

        choice, pool = self._choice, self._pool
        transcriber = pool.transcriber(choice.model, choice.language)
        with ExitStack() as stack:
            stack.enter_context(pool.using(transcriber))
            journal = stack.enter_context(
                self._history.recording(
                    "file",
                    title=self._name,
                    target=choice.target,
                    model=pool.name_of(transcriber),
                )
            )

            view = _PageView(self, send, journal)

            def translator_for(language: str) -> Translator:
                translator = pool.translator(choice.translation_model, language, choice.target)
                stack.enter_context(pool.using(translator))
                view.translator = translator
                return translator

            job = TranscriptionJob(
                transcriber,
                TranscribeOptions(
                    language=choice.language,
                    word_timestamps=transcriber.capabilities.word_timestamps,
                ),
                translator_for if choice.target else None,
                choice.target,
            )
            if note := english_only_note(transcriber, choice.language):
                job.warnings = (note,)
            try:
                job.run(samples, view)
            finally:
                if journal.id is not None and self._path.exists():
                    suffix = media_suffix(self._name)
                    self._history.keep_sound(journal.id, self._path, suffix)
        send({"type": "file_done", "language": job.language})

    def _load(self, send: Send) -> Samples:
        from pipelines.asr import DecodingCancelled

        def warned(message: str, category: type[Warning]) -> None:
            send({"type": "file_warning", "message": message})

        try:
            return load_recording(
                self._path,
                self._name,  # errors do not reveal the path on this machine
                limit=self._pool.memory_limit,
                max_duration_s=60 * self._minutes,
                cancelled=self._cancelled.is_set,
                warned=warned,
                keep_unlike=True,
            )
        except LongAudio as error:
            announced = error.announced_s
            raise self._too_long(
                f"more than {self._minutes:g}" if announced is None else f"{announced / 60:.1f}"
            ) from None
        except DecodingCancelled:
            raise TaskCancelled from None

    def _too_long(self, minutes: str) -> InputError:
        limit = f"the limit is {self._minutes:g} minutes"
        return InputError(f"{self._name} lasts {minutes} minutes; {limit}")


class _PageView:
    """Sends a job's progress to the page and the history; raises TaskCancelled to end the job."""

    def __init__(self, task: FileTask, send: Send, journal: Journal) -> None:
        self._task, self._send_message, self._journal = task, send, journal
        self._began = time.monotonic()
        self._duration: float | None = None  # seconds
        self.translator: Translator | None = None

    def _send(self, message: dict[str, object]) -> None:
        self._task.check()
        self._send_message(message)

    def started(self, info: TranscriptionInfo) -> None:
        self._duration = info.duration
        self._journal.describe(language=info.language, duration_s=info.duration or 0.0)
        self._send(
            {
                "type": "file_started",
                "language": info.language,
                "language_probability": info.language_probability,
                "duration": info.duration,
                "warnings": info.warnings,
            }
        )

    def text_delta(self, text: str) -> None:
        self._send({"type": "file_heard", "text": text})

    def text_retracted(self) -> None:
        self._send({"type": "file_retracted"})

    def segment(self, segment: Segment) -> None:
        self._journal.add(segment)
        elapsed, remaining = time.monotonic() - self._began, None
        if self._duration and segment.end:
            remaining = round(elapsed * max(0.0, self._duration - segment.end) / segment.end, 1)
        record = self._journal.id  # None while nothing is stored
        self._send({
            "type": "file_segment", "segment": asdict(segment), "left": remaining, "record": record,
        })  # fmt: skip

    def translating(self, text: str) -> None:
        self._send({"type": "file_translating", "text": text})

    def translated(self, cue: Cue, translation: Translation | None) -> None:
        if self.translator is not None and translation is not None:
            doubts = doubts_of(translation, self.translator)
            cue = TranslatedCue(cue.start, cue.end, cue.text, doubts)
        self._journal.translate(cue)
        self._send({"type": "file_translated", "cue": asdict(cue)})

    def untranslated(self, cue: Cue) -> None:
        self.translated(cue, None)  # the page and the history show it as its own translation

    def warned(self, message: str) -> None:
        self._send({"type": "file_warning", "message": message})
