"""What runs on a machine of the cluster: one process with the models, for all its work."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from edgeapp.model_pool import ModelPool
from edgeapp.settings import Settings
from pipelines import EdgeError, ModelNotFound

if TYPE_CHECKING:
    from pipelines import TranscribeOptions, TranscriptionInfo, TranslateOptions, Translation
    from pipelines.asr import Checkpoint, Chunk, TranscriptEvent

__all__ = ["Described", "Failure", "ModelChoice", "NodeWorker"]


@dataclass(frozen=True)
class ModelChoice:
    """The model that each machine loads at the start.

    Attributes:
        kind: The method of ModelPool that loads it.
        arguments: Of that method.
    """

    kind: Literal["transcriber", "translator"]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Failure:
    """An error of the library, which the driver raises again.

    Attributes:
        error: Its class.
        message: Its message.
        download: Name of the model to download, where that would help.
    """

    error: type[EdgeError]
    message: str
    download: str | None = None

    @classmethod
    def of(cls, error: EdgeError) -> Failure:
        """Describe an error; not all errors can be sent as they are."""
        download = error.download if isinstance(error, ModelNotFound) else None
        return cls(type(error), str(error), download)

    def as_error(self) -> EdgeError:
        """The error again."""
        if issubclass(self.error, ModelNotFound):
            return self.error(self.message, download=self.download)
        return self.error(self.message)


@dataclass(frozen=True)
class Described:
    """A model that is loaded.

    Attributes:
        name: For messages and the journal.
        folder: The name of its folder.
        compute_type: What it computes in.
        window_s: Longest chunk of a recording in seconds; 0 for a translator.
        word_timestamps: It gives the times of words.
        multilingual: It recognizes several languages.
    """

    name: str
    folder: str
    compute_type: str
    window_s: float
    word_timestamps: bool
    multilingual: bool


class NodeWorker:
    """Loads models once, and recognizes and translates for the driver.

    Args:
        settings: Compute type and threads of this machine.
        choice: The model.
    """

    def __init__(self, settings: Settings, choice: ModelChoice) -> None:
        self._pool = ModelPool(settings)
        self._choice = choice

    def load(self) -> Described | Failure:
        """Load the model."""
        try:
            loaded = getattr(self._pool, self._choice.kind)(*self._choice.arguments)
        except EdgeError as error:
            return Failure.of(error)
        listens = self._choice.kind == "transcriber"
        name = loaded.capabilities.name if listens else loaded.name
        window_s = loaded.window_s if listens else 0.0
        return Described(
            name,
            loaded.model.folder.name,
            loaded.model.compute_type,
            window_s,
            listens and loaded.capabilities.word_timestamps,
            listens and loaded.capabilities.multilingual,
        )

    def stream(
        self,
        name: str,
        content: bytes,
        options: TranscribeOptions,
        resume_from: Checkpoint | None,
    ) -> Iterator[list[Any] | Failure]:
        """Recognize a recording.

        Args:
            name: Of the file, for messages.
            content: The file.
            options: How to transcribe.
            resume_from: The last checkpoint that the driver has.

        Yields:
            The events of Transcriber.stream, in groups that end with a checkpoint.
        """
        from pipelines.asr import Checkpoint

        file = io.BytesIO(content)
        file.name = name
        group: list[Any] = []
        try:
            events = self._pool.transcriber(*self._choice.arguments).stream(
                file, options, resume_from=resume_from, checkpoints=True
            )
            for event in events:
                if _is_provisional(event):
                    continue
                group.append(event)
                if isinstance(event, Checkpoint):
                    yield group
                    group = []
        except EdgeError as error:
            yield group
            yield Failure.of(error)
        else:
            yield group

    def translator(
        self, name: str | None, spoken: str, target: str
    ) -> tuple[str, tuple[str, ...]] | Failure:
        """Load a translator; returns its folder, and its target codes."""
        try:
            translator = self._pool.translator(name, spoken, target)
        except EdgeError as error:
            return Failure.of(error)
        return str(translator.model.folder.resolve()), tuple(translator.target_codes)

    def begin(
        self,
        chunks: Sequence[Chunk],
        options: TranscribeOptions,
        resume_from: Checkpoint | None,
    ) -> TranscriptionInfo | Failure:
        """The language of a recording, told from its first chunk where it is not known.

        Args:
            chunks: The first one, if there is one.
            options: How to transcribe.
            resume_from: The last checkpoint that the driver has.
        """
        from pipelines import TranscriptionInfo

        try:
            with closing(self._chunk_events(chunks, options, resume_from)) as events:
                info = next(events)
        except EdgeError as error:
            return Failure.of(error)
        assert isinstance(info, TranscriptionInfo), "TranscriptionInfo is the first event"
        return info

    def recognize(
        self, piece: Sequence[Chunk], options: TranscribeOptions, before: Checkpoint
    ) -> tuple[list[Any], Failure | None]:
        """Recognize a piece of a recording.

        Args:
            piece: Consecutive chunks.
            options: How to transcribe.
            before: What comes before the piece.

        Returns:
            Segments, numbered from 0, and checkpoints; and why the rest is missing.
        """
        found: list[Any] = []
        try:
            events = self._chunk_events(piece, options, before)
            next(events)  # the language, which is known
            for event in events:
                if not _is_provisional(event):
                    found.append(event)
        except EdgeError as error:
            return found, Failure.of(error)
        return found, None

    def _chunk_events(
        self,
        chunks: Sequence[Chunk],
        options: TranscribeOptions,
        resume_from: Checkpoint | None,
    ) -> Generator[TranscriptEvent, None, None]:
        transcriber = self._pool.transcriber(*self._choice.arguments)
        return transcriber.stream_chunks(chunks, options, resume_from=resume_from)

    def translate_lines(
        self,
        texts: Sequence[str],
        options: TranslateOptions,
        pair: tuple[str | None, str, str] | None = None,
    ) -> list[Translation] | Failure:
        """Translate texts.

        Args:
            texts: The texts.
            options: How to translate.
            pair: Name of the model or None, source and target language; None: the model that was
                loaded at the start.
        """
        try:
            translator = self._pool.translator(*(pair or self._choice.arguments))
            return list(translator.translate_lines(texts, options))
        except EdgeError as error:
            return Failure.of(error)


def _is_provisional(event: TranscriptEvent) -> bool:
    """Whether an event is only for people who watch."""
    from pipelines import TextDelta
    from pipelines.asr import Retract

    return isinstance(event, TextDelta | Retract)
