"""A recording at work for the page: the text as it is decoded, and a picture of the sound."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from edgeapp.batch.transcription_job import BATCH_SIZE, TranscriptionJob
from edgeapp.server.sessions import SessionAbandoned
from edgeapp.server.tasks.spectrogram import spectrogram
from edgeapp.subtitles.formats import Cue
from pipelines import InputError, LongAudio

if TYPE_CHECKING:
    from edgeapp.history import History, Journal
    from edgeapp.server.sessions import Send
    from edgeapp.server.shared_models import ModelChoice, SharedModelPool
    from pipelines import Samples, Segment, TranscriptionInfo, Translator

__all__ = ["FileTask"]

_DECODING_BYTES = 1 << 30  # address space of the decoder, whose libraries take 200 MB
_DECODING_S = 600.0  # three hours of FLAC take about 15 s on two cores


class FileTask:
    """Takes the file at `path` over, and deletes it. minutes: the longest recording worked on.
    name: what it is called where it came from. history: where its text is kept."""

    kind = "file"

    def __init__(
        self,
        pool: SharedModelPool,
        history: History,
        wanted: ModelChoice,
        path: Path,
        name: str,
        minutes: float,
    ) -> None:
        self._pool, self._history, self._wanted = pool, history, wanted
        self._path, self._name, self._minutes = path, name, minutes
        self._abandoned = threading.Event()

    def run(self, send: Send) -> None:
        try:
            samples = self._load(send)
        finally:
            self._path.unlink(missing_ok=True)
        self.check()
        # Beside the work, not before it: whoever waits for words does not wait for a picture.
        picture = threading.Thread(target=self._draw, args=(samples, send), daemon=True)
        picture.start()
        self._caption(samples, send)
        picture.join()

    def _draw(self, samples: Samples, send: Send) -> None:
        send({"type": "file_sound", **spectrogram(samples)})

    def _caption(self, samples: Samples, send: Send) -> None:
        from pipelines import TranscribeOptions

        wanted, pool = self._wanted, self._pool
        transcriber = pool.transcriber(wanted.model, wanted.language)
        with ExitStack() as stack:
            stack.enter_context(pool.using(transcriber))
            journal = stack.enter_context(
                self._history.recording(
                    "file",
                    title=self._name,
                    target=wanted.target,
                    model=pool.name_of(transcriber),
                )
            )

            def translator_for(spoken: str) -> Translator:
                found = pool.translator(wanted.translation_model, spoken, wanted.target)
                stack.enter_context(pool.using(found))
                return found

            captions = TranscriptionJob(
                transcriber,
                TranscribeOptions(language=wanted.language, batch_size=BATCH_SIZE),
                translator_for if wanted.target else None,
                wanted.target,
            )
            captions.run(samples, _PageView(self, send, journal))
        send({"type": "file_done", "language": captions.language})

    def take(self, audio: bytes) -> None:
        """A recording comes as a file."""

    def stop(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self._abandoned.set()
        self._path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raises Abandoned when nobody waits any more."""
        if self._abandoned.is_set():
            raise SessionAbandoned

    def _load(self, send: Send) -> Samples:
        from pipelines import DecodingCancelled, load_audio_isolated

        def warned(message: str, category: type[Warning]) -> None:
            send({"type": "warning", "message": message})

        try:
            return load_audio_isolated(
                self._path,
                name=self._name,  # the folder and the name that it has here are not told
                longest_s=60 * self._minutes,
                memory_bytes=_DECODING_BYTES,
                time_s=_DECODING_S,
                cancelled=self._abandoned.is_set,
                warned=warned,
            )
        except LongAudio as error:
            announced = error.announced_s
            raise self._too_long(
                f"more than {self._minutes:g}" if announced is None else f"{announced / 60:.1f}"
            ) from None
        except DecodingCancelled:
            raise SessionAbandoned from None

    def _too_long(self, minutes: str) -> InputError:
        taken = f"{self._minutes:g} are taken here (--max-minutes)"
        return InputError(f"{self._name} lasts {minutes} minutes; {taken}")


class _PageView:
    """Tells the page and the history; where nobody waits any more, it ends the work."""

    def __init__(self, task: FileTask, send: Send, journal: Journal) -> None:
        self._task, self._tell, self._journal = task, send, journal
        self._began = time.monotonic()
        self._duration: float | None = None

    def _send(self, message: dict[str, object]) -> None:
        self._task.check()
        self._tell(message)

    def started(self, info: TranscriptionInfo) -> None:
        self._duration = info.duration
        self._journal.describe(language=info.language, duration_s=info.duration or 0.0)
        self._send({"type": "file_started", **asdict(info)})

    def heard(self, text: str) -> None:
        self._send({"type": "file_heard", "text": text})

    def retracted(self) -> None:
        self._send({"type": "file_retracted"})

    def segment(self, segment: Segment) -> None:
        self._journal.add(segment)
        spent, left = time.monotonic() - self._began, None
        if self._duration and segment.end:
            left = round(spent * max(0.0, self._duration - segment.end) / segment.end, 1)
        self._send({"type": "file_segment", "segment": asdict(segment), "left": left})

    def translating(self, text: str) -> None:
        self._send({"type": "file_translating", "text": text})

    def translated(self, cue: Cue) -> None:
        self._journal.translate(cue)
        self._send({"type": "file_translated", "cue": asdict(cue)})

    def warned(self, message: str) -> None:
        self._send({"type": "warning", "message": message})
