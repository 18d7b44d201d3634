"""The models that all sessions of the page share, and what can be done with them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeapp.model_pool import ModelPool
from edgeapp.process_memory import memory_in_use, release_memory
from edgeapp.settings import Settings
from pipelines import ModelError, OptionError

if TYPE_CHECKING:
    from edgeapp.live.session import LiveSession
    from pipelines import Transcriber, Translator
    from pipelines.engine import Engine, LoadedModel

__all__ = ["LiveSetup", "SharedModelPool", "ModelChoice"]


@dataclass(frozen=True)
class ModelChoice:
    """What somebody chose on the page; None: whatever fits best.

    model, translation_model: names. language: what is spoken. target: translate into this.
    """

    model: str | None = None
    language: str | None = None
    target: str | None = None
    translation_model: str | None = None

    @classmethod
    def of(cls, message: dict[str, Any]) -> ModelChoice:
        """From a page's message; an empty field is no choice. Raises OptionError."""
        values = {}
        for name in ("model", "language", "target", "translation_model"):
            value = message.get(name) or None
            if value is not None and (not isinstance(value, str) or len(value) > 200):
                raise OptionError(f"{name}: {value!r} is no choice")
            values[name] = value
        return cls(**values)


@dataclass(frozen=True)
class LiveSetup:
    """Somebody's live session. name: of the recogniser. language: what it listens for, where that
    is known. models: whoever works in it."""

    session: LiveSession
    name: str
    language: str | None
    models: Sequence[Transcriber | Translator]


class SharedModelPool(ModelPool):
    """A workshop that many threads use at once, whose models can be put back."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._lock = threading.RLock()
        self._transcribers: dict[tuple[str | None, str | None, str], Transcriber] = {}
        self._users: Counter[Path] = Counter()  # folder → tasks that work with its model
        self._held: dict[Path, int] = {}

    @property
    def engine(self) -> Engine:
        with self._lock:
            return super().engine

    def transcriber(
        self, name: str | None, language: str | None, task: str = "transcribe"
    ) -> Transcriber:
        self._check_listed(name)
        with self._lock:
            key = (name, language, task)
            if key not in self._transcribers:
                with self._measured():
                    self._transcribers[key] = super().transcriber(name, language, task)
            return self._transcribers[key]

    def translator(
        self, name: str | None, source: str | None, target: str | None, shortlist: bool = False
    ) -> Translator:
        self._check_listed(name)
        with self._lock, self._measured():
            return super().translator(name, source, target, shortlist)

    @contextmanager
    def using(self, *users: Transcriber | Translator) -> Iterator[None]:
        """Nobody unloads these meanwhile."""
        folders = [user.model.folder for user in users]
        with self._lock:
            self._users.update(folders)
        try:
            yield
        finally:
            with self._lock:
                self._users.subtract(folders)

    def users(self, folder: Path) -> int:
        """How many tasks work with the model in a folder now."""
        return self._users[folder]

    def live(self, wanted: ModelChoice) -> LiveSetup:
        """Somebody's own session on the shared models. Raises ModelError, OptionError."""
        from edgeapp.live.session import LiveSession
        from pipelines import (
            LiveOptions,
            LiveTranscriber,
            LiveTranslator,
            TranscribeOptions,
            TranslateOptions,
        )
        from pipelines.engine import Priority

        recogniser = self.transcriber(wanted.model, wanted.language)
        spoken = wanted.language if recogniser.capabilities.multilingual else "en"
        translator: LiveTranslator | None = None
        models: list[Transcriber | Translator] = [recogniser]
        if wanted.target is not None:
            if spoken is None:
                raise OptionError("choose what is spoken: the translator is chosen by it")
            found = self.translator(wanted.translation_model, spoken, wanted.target)
            several = wanted.target if found.target_codes else None
            options = TranslateOptions(target=several, priority=Priority.LIVE_TRANSLATION)
            translator = LiveTranslator(found, options)
            models.append(found)
        live_options = LiveOptions(transcribe=TranscribeOptions(language=wanted.language))
        session = LiveSession(LiveTranscriber(recogniser, live_options), translator)
        return LiveSetup(session, self.name_of(recogniser), spoken, models)

    def name_of(self, user: Transcriber | Translator) -> str:
        """What a model is called in the list of models."""
        from pipelines.hub import list_models

        folder = user.model.folder
        return next((m.name for m in list_models() if m.folder.resolve() == folder), folder.name)

    @property
    def loaded(self) -> tuple[LoadedModel, ...]:
        """Models in memory; none while nobody has needed one."""
        return () if self._engine is None else self._engine.models

    def held(self, folder: Path) -> int:
        """Bytes by which memory grew when the model in a folder was loaded."""
        return self._held.get(folder, 0)

    @contextmanager
    def _measured(self) -> Iterator[None]:
        before, memory = set(self.engine.models), memory_in_use()
        yield
        for model in set(self.engine.models) - before:
            self._held[model.folder] = max(0, memory_in_use() - memory)

    def load(self, name: str, task: str) -> None:
        """Load a model before anybody needs it. Raises ModelError."""
        if task == "asr":
            self.transcriber(name, None)
        else:
            self.translator(name, None, None)

    def unload(self, folder: Path) -> None:
        """Give a model's memory back. Raises ModelError where it is not loaded, or in use."""
        with self._lock:
            model = next((m for m in self.loaded if m.folder == folder), None)
            if model is None:
                raise ModelError(f"{folder.name} is not loaded")
            if self._users[folder]:
                raise ModelError(f"{folder.name} is in use: end what runs on it first")
            for made in (self._transcribers, self._translators):
                for key in [key for key, user in made.items() if user.model is model]:
                    del made[key]
            self.engine.unload(model)
            release_memory()

    def warm(self) -> None:
        """Load what most people start with and run it once, so that the first word comes soon."""
        import numpy as np

        from pipelines import SAMPLE_RATE, LiveTranscriber

        noise = np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE).astype(np.float32)
        recogniser = self.transcriber(None, None)
        LiveTranscriber(recogniser).feed(noise)
        next(iter(recogniser.stream(noise)))

    def _check_listed(self, name: str | None) -> None:
        """A page chooses among the models that are here; it names no folder of this machine."""
        from pipelines.hub import list_models

        if name is None or name in (self.settings.model, self.settings.translation_model):
            return
        if name not in {model.name for model in list_models()}:
            raise ModelError(f"{name!r} is not among the models on this machine")
