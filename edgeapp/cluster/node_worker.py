"""What runs on a machine of the cluster: one process with the models, for all its work."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from edgeapp.model_pool import ModelPool
from edgeapp.settings import Settings
from pipelines import EdgeError

if TYPE_CHECKING:
    from pipelines import Checkpoint, TranscribeOptions, TranslateOptions, Translation

__all__ = ["Failure", "ModelChoice", "NodeWorker"]


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
    """

    error: type[EdgeError]
    message: str


class NodeWorker:
    """Loads models once, and recognizes and translates for the driver.

    Args:
        settings: Compute type and threads of this machine.
        choice: The model.
    """

    def __init__(self, settings: Settings, choice: ModelChoice) -> None:
        self._pool = ModelPool(settings)
        self._choice = choice

    def load(self) -> tuple[str, str, str] | Failure:
        """Load the model; returns its name, its folder's name, and the compute type."""
        try:
            loaded = getattr(self._pool, self._choice.kind)(*self._choice.arguments)
        except EdgeError as error:
            return Failure(type(error), str(error))
        described = loaded.capabilities if self._choice.kind == "transcriber" else loaded
        return described.name, loaded.model.folder.name, loaded.model.compute_type

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
        from pipelines import Checkpoint, Retract, TextDelta

        file = io.BytesIO(content)
        file.name = name
        group: list[Any] = []
        try:
            events = self._pool.transcriber(*self._choice.arguments).stream(
                file, options, resume_from=resume_from, checkpoints=True
            )
            for event in events:
                if isinstance(event, TextDelta | Retract):  # only for people who watch
                    continue
                group.append(event)
                if isinstance(event, Checkpoint):
                    yield group
                    group = []
        except EdgeError as error:
            yield group
            yield Failure(type(error), str(error))
        else:
            yield group

    def translator(
        self, name: str | None, spoken: str, target: str
    ) -> tuple[str, tuple[str, ...]] | Failure:
        """Load a translator; returns its folder, and its target codes."""
        try:
            translator = self._pool.translator(name, spoken, target)
        except EdgeError as error:
            return Failure(type(error), str(error))
        return str(translator.model.folder.resolve()), tuple(translator.target_codes)

    def translate(
        self, name: str | None, spoken: str, target: str, text: str, options: TranslateOptions
    ) -> Translation | Failure:
        """Translate a text."""
        try:
            return self._pool.translator(name, spoken, target).translate(text, options)
        except EdgeError as error:
            return Failure(type(error), str(error))

    def translate_lines(
        self, texts: Sequence[str], options: TranslateOptions
    ) -> list[Translation] | Failure:
        """Translate texts with the model that was loaded at the start."""
        try:
            translator = self._pool.translator(*self._choice.arguments)
            return list(translator.translate_lines(texts, options))
        except EdgeError as error:
            return Failure(type(error), str(error))
