"""The loaded models of a process: one engine, each model loaded when first needed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from edgeapp.console import CompileNotes, print_note
from edgeapp.exit_codes import pull_command
from edgeapp.memory_limit import MemoryLimit
from edgeapp.process_memory import memory_in_use
from edgeapp.settings import Settings
from pipelines import EdgeError, ModelError, ModelNotFound, OptionError
from pipelines.errors import UnsupportedTask

if TYPE_CHECKING:
    from pipelines import Reader, Transcriber, Translator
    from pipelines.engine import CompileProgress, Engine, LoadedModel
    from pipelines.hub import ResolvedModel, Stamp

__all__ = ["Drafts", "ModelPool", "NO_DRAFTS", "language_code_of"]

T = TypeVar("T")


@dataclass(frozen=True)
class Drafts:
    """What proposes tokens to a model, which verifies them.

    Attributes:
        model: Name of a smaller model with the same vocabulary, or None.
        kind: "ngram": n-grams of what was decoded before; or None.
    """

    model: str | None = None
    kind: Literal["ngram"] | None = None


NO_DRAFTS = Drafts()


def language_code_of(text: str) -> str:
    """The code of a language, "de" for "German", "DE" or "deu".

    Args:
        text: A code of two or three letters or an English name, in any case.

    Returns:
        The code. A text that is neither is returned unchanged; the model rejects it.
    """
    from pipelines.languages import language_code, two_letter

    try:
        return language_code(text)
    except OptionError:
        return two_letter(text) or text


class ModelPool:
    """Loads each model once and shares it. All methods may be called from any thread.

    Notes about automatic choices are printed on stderr.

    Args:
        settings: Device, compute type, threads, and the default models.
        listed_only: Accept only the names of installed models and of the settings' models. A
            server sets it, so that a page cannot name a folder of this machine.
        memory_limit: Of the process. Models that are not in use make room for others.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        listed_only: bool = False,
        memory_limit: MemoryLimit | None = None,
    ) -> None:
        self.settings = settings
        self.memory_limit = memory_limit or MemoryLimit()
        self._listed_only = listed_only
        self._lock = threading.Lock()  # of the dictionaries: no model is loaded under it
        self._loading = threading.Lock()  # held while a model is loaded or unloaded
        self._starting = threading.Lock()  # held while the engine is made
        self._loads: dict[tuple[object, ...], threading.Event] = {}  # set at the end of each
        self._unloading: set[LoadedModel] = set()
        self._engine: Engine | None = None
        self._transcribers: dict[tuple[Path, Drafts], Transcriber] = {}  # by folder and drafter
        # By folder, source language (None where the model needs none), use of the shortlist, and
        # drafter.
        self._translators: dict[tuple[Path, str | None, bool, Drafts], Translator] = {}
        self._readers: dict[Path, Reader] = {}  # by folder
        # The models that were there at the last check, and its error.
        self._recognizer_check: tuple[Stamp | None, ModelNotFound | None] = (None, None)
        self._noted: set[tuple[Path, bool]] = set()  # folder, whether it was chosen automatically
        self.compiling = False  # for the first time on this CPU, which takes a while
        self.compile_progress: CompileProgress | None = None  # of the compiler, once it has begun
        self._compile_notes = CompileNotes()
        self._use_counts: Counter[Path] = Counter()  # folder → running tasks
        self._memory: dict[Path, int] = {}  # folder → bytes

    @property
    def engine(self) -> Engine:
        """The engine of all models, which computes for one of them at a time."""
        with self._starting:
            if self._engine is None:
                from pipelines.engine import Engine

                s = self.settings
                self._engine = Engine(
                    device=s.device,
                    compute_type=s.compute_type,
                    threads=s.threads,
                    cache_budget_bytes=self.memory_limit.cache_bytes,
                )
                if self._engine.needs_compiling:
                    once = ", this once" if self._engine.kernel_cache_is_writable else ""
                    time = "20 seconds, minutes beside other work"
                    print_note(f"compiling kernels for this CPU: {time}{once}")
                    self._engine.report_compiling_to(self._on_compiled)
            return self._engine

    def transcriber(
        self,
        name: str | None,
        language: str | None,
        task: str = "transcribe",
        drafts: Drafts = NO_DRAFTS,
    ) -> Transcriber:
        """A speech recognizer.

        Args:
            name: A model. None: the settings' model, else the best installed one that is not
                bundled.
            language: The code of the spoken language, None if unknown.
            task: "transcribe" or "translate" (into English).
            drafts: What drafts for it.

        Raises:
            ModelError: The model is not installed, recognizes no speech, or has another
                vocabulary than the draft model.
        """
        resolved = self.find_recognizer(name, language, task, drafts)
        key = (resolved.folder.resolve(), drafts)

        def load() -> Transcriber:
            made = self._load_transcriber(resolved, drafts)
            with self._lock:
                self._transcribers[key] = made
            return made

        return self._once(("asr", *key), lambda: self._transcribers.get(key), load)

    def translator(
        self,
        name: str | None,
        source: str | None,
        target: str | None,
        shortlist: bool = False,
        drafts: Drafts = NO_DRAFTS,
    ) -> Translator:
        """A translator.

        Args:
            name: A model. None: the settings' model, else the best installed one.
            source: The code of the source language, None if unknown.
            target: The code of the target language, None for the model's own.
            shortlist: Restrict the output vocabulary to the model's shortlist.
            drafts: What drafts for it.

        Raises:
            ModelError: The model is not installed, translates no text, or has another vocabulary
                than the draft model.
            UnsupportedTask: It translates from or into another language.
            OptionError: It has no shortlist.
        """
        resolved = self.find_translator(name, source, target, drafts)
        folder = resolved.folder.resolve()

        def find() -> Translator | None:
            found = self._translators.get((folder, None, shortlist, drafts))
            # A model whose input names its language has one translator for each.
            if found is None or (source and found.source_codes):
                found = self._translators.get((folder, source, shortlist, drafts))
            return found

        def load() -> Translator:
            made = self._load_translator(resolved, source, shortlist, drafts)
            _check_translator(made, resolved.name, source, target)
            key = (folder, source if made.source_codes else None, shortlist, drafts)
            with self._lock:
                self._translators[key] = made  # only a source language that the model has
            return made

        translator = self._once(("translation", folder, shortlist, drafts), find, load)
        _check_translator(translator, resolved.name, source, target)
        return translator

    def reader(self, name: str | None) -> Reader:
        """A model that reads pictures.

        Args:
            name: A model. None: a downloaded one, else the bundled one.

        Raises:
            ModelError: The model is not installed, or reads no pictures.
        """
        resolved = self.find_reader(name)
        folder = resolved.folder.resolve()

        def load() -> Reader:
            from pipelines import Reader

            self._make_room(resolved)
            with self._measured():
                made = Reader(resolved.folder, engine=self.engine, name=resolved.name)
            with self._lock:
                self._readers[folder] = made
            return made

        return self._once(("reading", folder), lambda: self._readers.get(folder), load)

    def find_recognizer(
        self,
        name: str | None,
        language: str | None,
        task: str = "transcribe",
        drafts: Drafts = NO_DRAFTS,
    ) -> ResolvedModel:
        """Find the model of `transcriber` and check its name, task and, if its files tell them,
        languages, without importing torch.

        A command finds all its models before it loads one, so that a wrong name is an error at
        once. The arguments and errors are those of `transcriber`.
        """
        from pipelines.hub import check_recognizer_language, choose_default, resolve

        self._check_listed(name)
        # At each call: a better model may have been downloaded since the last one.
        if name is not None:
            resolved = resolve(name)
        else:
            target = "en" if task == "translate" else None
            resolved = choose_default("asr", language, target, preferred=self.settings.model)
        self._print_note_once(resolved, automatic=name is None)
        _check_task(resolved, "asr", "recognize speech")
        check_recognizer_language(resolved, language)
        _draft_folder(drafts, "asr", "recognize speech")
        return resolved

    def check_recognizer(self) -> None:
        """Check that there is a recognizer unless one is named.

        Each request of a server asks: the answer is kept until the models on this machine change.

        Raises:
            ModelNotFound: There is none.
        """
        from pipelines.hub import choose_default, models_stamp

        if self.settings.model:
            return
        stamp = models_stamp()
        known, missing = self._recognizer_check
        if stamp != known:
            try:
                choose_default("asr")
                missing = None
            except ModelNotFound as error:
                missing = error
            self._recognizer_check = stamp, missing
        if missing is not None:
            raise ModelNotFound(str(missing), download=missing.download)

    def lacks_recognizer(self) -> bool:
        """Return whether no recognizer for people's voices is here.

        The settings may name the bundled one, which is not, or one that is not in the cache.
        """
        from pipelines.hub import choose_default, resolve

        try:
            if self.settings.model and resolve(self.settings.model).source != "bundled":
                return False
        except EdgeError:
            return False  # Another one is missing, which the error of the work names.
        try:
            choose_default("asr")
        except ModelNotFound:
            return True
        return False

    def find_translator(
        self,
        name: str | None,
        source: str | None,
        target: str | None,
        drafts: Drafts = NO_DRAFTS,
    ) -> ResolvedModel:
        """Find the model of `translator` and check its name, task and, if its files or its name
        tell them, its languages, without importing torch.

        The arguments and errors are those of `translator`.
        """
        from pipelines.hub import choose_default, resolve

        self._check_listed(name)
        if name is not None:
            resolved = resolve(name)
        else:
            preferred = self.settings.translation_model
            resolved = choose_default("translation", source, target, preferred=preferred)
        self._print_note_once(resolved, automatic=name is None)
        _check_task(resolved, "translation", "translate text")
        if resolved.source in ("bundled", "cache"):  # the name of a folder may be anything
            own = _languages_before_loading(resolved)
            single = own[1] is not None and len(own[1]) == 2
            _check_languages(resolved.name, own, source, target if single else None)
        _draft_folder(drafts, "translation", "translate text")
        return resolved

    def find_reader(self, name: str | None) -> ResolvedModel:
        """Find the model of `reader` and check its name and task, without importing torch.

        The arguments and errors are those of `reader`.
        """
        from pipelines.hub import choose_default, resolve

        self._check_listed(name)
        resolved = choose_default("reading") if name is None else resolve(name)
        self._print_note_once(resolved, automatic=name is None)
        _check_task(resolved, "reading", "read pictures")
        return resolved

    def load(self, name: str, task: str) -> None:
        """Load a model before it is needed.

        Args:
            name: A model.
            task: "asr", "translation" or "reading".

        Raises:
            ModelError: The model is not installed, or is for another task.
        """
        if task == "asr":
            self.transcriber(name, None)
        elif task == "reading":
            self.reader(name)
        else:
            self.translator(name, None, None)

    def unload(self, folder: Path) -> None:
        """Free the memory of the model in a folder.

        Raises:
            ModelError: The model is not loaded, or is in use.
        """
        with self._loading:
            self._unload(folder)

    def _unload(self, folder: Path) -> None:
        """`unload`, by a thread that may load and unload models."""
        with self._lock:
            model = next((m for m in self.loaded if m.folder == folder), None)
            if model is None:
                raise ModelError(f"{folder.name} is not loaded")
            if self._use_counts[folder]:
                raise ModelError(f"{folder.name} is in use: end what runs on it first")
            self._unloading.add(model)
            self._transcribers = {
                key: made for key, made in self._transcribers.items() if made.model is not model
            }
            self._translators = {
                key: made for key, made in self._translators.items() if made.model is not model
            }
            self._readers = {
                key: made for key, made in self._readers.items() if made.model is not model
            }
        try:
            self.engine.unload(model)
        finally:
            with self._lock:
                self._unloading.discard(model)

    @contextmanager
    def using(self, *models: Transcriber | Translator | Reader) -> Iterator[None]:
        """A context in which these models cannot be unloaded.

        Raises:
            ModelError: A model was unloaded since `transcriber` or `translator` returned it.
        """
        folders = [each.model.folder for each in models]
        with self._lock:
            usable = set(self.loaded) - self._unloading
            for each in models:
                if each.model not in usable:
                    raise ModelError(f"{self.name_of(each)} was unloaded meanwhile: try again")
            self._use_counts.update(folders)
        try:
            yield
        finally:
            with self._lock:
                self._use_counts.subtract(folders)

    @property
    def loaded(self) -> tuple[LoadedModel, ...]:
        """The models in memory."""
        return () if self._engine is None else self._engine.models

    @property
    def cache_bytes(self) -> int:
        """Bytes that the caches of all models hold."""
        return 0 if self._engine is None else self._engine.cache_bytes

    def use_count(self, folder: Path) -> int:
        """The number of running tasks that use the model in a folder."""
        return self._use_counts[folder]

    def memory_of(self, folder: Path) -> int:
        """The bytes of the weights of the model in a folder; of a native one, those by which the
        process grew when it was loaded."""
        return self._memory.get(folder, 0)

    def name_of(self, model: Transcriber | Translator | Reader) -> str:
        """The name of a model in the list of installed models, else the name of its folder."""
        from pipelines.hub import list_models

        folder = model.model.folder
        return next((m.name for m in list_models() if m.folder.resolve() == folder), folder.name)

    def warm_up(self) -> None:
        """Load the default recognizer and run it on noise, so that the first caption comes soon."""
        self.compiling = self.engine.needs_compiling
        try:
            self._run_on_noise()
        finally:
            self.compiling = False

    def _on_compiled(self, progress: CompileProgress) -> None:
        self.compile_progress = progress
        self._compile_notes(progress)

    def _run_on_noise(self) -> None:
        import numpy as np

        from pipelines import SAMPLE_RATE, LiveTranscriber

        noise = np.random.default_rng(0).normal(0, 0.1, SAMPLE_RATE).astype(np.float32)
        recognizer = self.transcriber(None, None)
        LiveTranscriber(recognizer).feed(noise)
        next(iter(recognizer.stream(noise)))

    def _once(
        self, key: tuple[object, ...], find: Callable[[], T | None], load: Callable[[], T]
    ) -> T:
        """What is loaded, or is loaded now.

        Args:
            key: While one thread loads, others with the same key wait for it. If it fails, the
                next one tries again.
            find: Looks for it in the dictionaries.
            load: Loads it and stores it there. One thread at a time: it makes room first.
        """
        while True:
            with self._lock:
                if (found := find()) is not None:
                    return found
                if (ended := self._loads.get(key)) is None:
                    self._loads[key] = ended = threading.Event()
                    break
            ended.wait()
        try:
            with self._loading:
                return load()
        finally:
            with self._lock:
                del self._loads[key]
            ended.set()

    def _load_transcriber(self, resolved: ResolvedModel, drafts: Drafts) -> Transcriber:
        from pipelines import Transcriber

        self._make_room(resolved)
        with self._measured():
            return Transcriber(
                resolved.folder,
                engine=self.engine,
                name=resolved.name,
                draft_model=_draft_folder(drafts, "asr", "recognize speech"),
                draft=drafts.kind,
            )

    def _load_translator(
        self, resolved: ResolvedModel, source: str | None, shortlist: bool, drafts: Drafts
    ) -> Translator:
        from pipelines import Translator

        self._make_room(resolved)
        with self._measured():
            return Translator(
                resolved.folder,
                engine=self.engine,
                name=resolved.name,
                source=source,
                shortlist=shortlist,
                draft_model=_draft_folder(drafts, "translation", "translate text"),
                draft=drafts.kind,
            )

    def _make_room(self, resolved: ResolvedModel) -> None:
        """Unload models that no task uses until another one fits into the memory limit.

        Raises:
            MemoryLimitReached: It does not fit beside those that are in use.
        """
        limit = self.memory_limit
        folder = resolved.folder.resolve()
        if limit.limit is None or any(model.folder == folder for model in self.loaded):
            return
        need = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        for model in self.loaded:
            # A model that is larger than the limit is refused, and the others stay.
            if limit.free_bytes >= need or need > limit.limit:
                break
            with suppress(ModelError):  # it is in use
                self._unload(model.folder)
        limit.check(need, resolved.name)

    def _print_note_once(self, resolved: ResolvedModel, *, automatic: bool) -> None:
        choice = (resolved.folder.resolve(), automatic)
        with self._lock:
            noted = choice in self._noted
            self._noted.add(choice)
        if resolved.note and not noted:
            command = f": {pull_command(resolved.better)}" if resolved.better else ""
            print_note(resolved.note + command)

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Measure the memory of the models that are loaded in this context."""
        loaded_before, bytes_before = set(self.engine.models), memory_in_use()
        yield
        for model in set(self.engine.models) - loaded_before:
            grown = max(0, memory_in_use() - bytes_before)
            # transformers and its class of the model may have been imported meanwhile.
            weights = model.weight_bytes
            self._memory[model.folder] = grown if weights is None else weights

    def _check_listed(self, name: str | None) -> None:
        from pipelines.hub import list_models

        if not self._listed_only or name is None:
            return
        if name in (self.settings.model, self.settings.translation_model):
            return
        if name not in {model.name for model in list_models()}:
            raise ModelError(f"{name!r} is not among the models on this machine")


def _draft_folder(drafts: Drafts, task: str, ability: str) -> Path | None:
    from pipelines.hub import resolve

    if drafts.model is None:
        return None
    resolved = resolve(drafts.model)
    _check_task(resolved, task, ability)
    return resolved.folder


def _check_task(resolved: ResolvedModel, task: str, ability: str) -> None:
    if resolved.task != task:
        from pipelines.hub import list_models

        able = [model.name for model in list_models() if model.task == task]
        raise ModelError(
            f"{resolved.name} is a model for {resolved.task}, it cannot {ability}; "
            f"on this machine {', '.join(able) or 'none'} can"
        )


def _check_translator(
    translator: Translator, name: str, source: str | None, target: str | None
) -> None:
    """Raise UnsupportedTask for a language pair that a loaded model was not trained for."""
    if source and translator.source_codes:
        translator.translate_lines([], source_language=source)  # checks the language at once
    own = translator.source_language, translator.target_language
    _check_languages(name, own, source, None if translator.target_codes else target)


def _languages_before_loading(resolved: ResolvedModel) -> tuple[str | None, str | None]:
    """The languages of a translator as it tells them once it is loaded: by its files, then by its
    name, which may only look like a pair ("…-en-to-fr")."""
    from pipelines.hub import read_json
    from pipelines.languages import pair_in_name

    config = read_json(resolved.folder / "tokenizer_config.json")
    told = (config.get(key) for key in ("source_lang", "target_lang"))
    source, target = (code if isinstance(code, str) and code else None for code in told)
    named = pair_in_name(resolved.name) or (None, None)
    return source or named[0], target or named[1]


def _check_languages(
    name: str, own: tuple[str | None, str | None], source: str | None, target: str | None
) -> None:
    """Raise UnsupportedTask for a language pair that the model was not trained for.

    Args:
        name: The model.
        own: The languages from and into which it translates, as far as they are known.
        source: The language of the text, or None.
        target: The wanted language, or None, also for a model with several.
    """
    own_source, own_target = own
    # A group such as "mul" or "ROMANCE" may contain the source language.
    single = own_source is not None and len(own_source) == 2
    if source and single and own_source != source:
        raise UnsupportedTask(
            f"{name} translates from {own_source}, not from {source}; "
            f"a model such as opus-mt-{source}-{target or own_target} does"
        )
    if target and own_target and own_target != target:
        raise UnsupportedTask(
            f"{name} translates into {own_target}, not into {target}; "
            f"a model such as opus-mt-{source or own_source}-{target} does"
        )
