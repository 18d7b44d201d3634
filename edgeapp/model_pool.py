"""One engine and the models that a command needs on it, loaded when first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeapp.console import print_note
from edgeapp.settings import Settings
from pipelines import ModelError, OptionError, UnsupportedTask

if TYPE_CHECKING:
    from pipelines import Transcriber, Translator
    from pipelines.engine import Engine
    from pipelines.hub import ResolvedModel

__all__ = ["ModelPool", "language_code_of"]


def language_code_of(text: str) -> str:
    """The code of a language ("de") given as a code of two or three letters or an English name,
    in any case; what is neither stays as it is, for the model to judge."""
    from pipelines import language_code, two_letter

    try:
        return language_code(text)
    except OptionError:
        return two_letter(text) or text


class ModelPool:
    """Loads each model once; says on stderr what it chose where nobody named one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._engine: Engine | None = None
        self._translators: dict[tuple[str | None, str | None, str | None, bool], Translator] = {}

    @property
    def engine(self) -> Engine:
        """Shared by all models, so that they never compute at the same time."""
        if self._engine is None:
            from pipelines.engine import Engine

            s = self.settings
            self._engine = Engine(device=s.device, compute_type=s.compute_type, threads=s.threads)
            if self._engine.needs_compiling:
                once = ", this once" if self._engine.kernel_cache_is_writable else ""
                print_note(f"compiling kernels for this CPU: some 15 seconds{once}")
        return self._engine

    def transcriber(self, name: str | None, language: str | None, task: str) -> Transcriber:
        """The recogniser named, else the setting's, else the best there is."""
        from pipelines.hub import choose_default, resolve

        if name is not None:
            found = resolve(name)
        else:
            target = "en" if task == "translate" else None
            found = choose_default("asr", language, target, preferred=self.settings.model)
        self._say(found)
        self._check(found, "asr", "recognise speech")
        from pipelines import Transcriber

        return Transcriber(found.folder, engine=self.engine, name=found.name)

    def translator(
        self, name: str | None, source: str | None, target: str | None, shortlist: bool = False
    ) -> Translator:
        """The translator named, else the setting's, else the best from source to target.

        Raises UnsupportedTask when it translates from or into another language, OptionError where
        it has no shortlist.
        """
        key = (name, source, target, shortlist)
        if key not in self._translators:
            from pipelines.hub import choose_default, resolve

            if name is not None:
                found = resolve(name)
            else:
                preferred = self.settings.translation_model
                found = choose_default("translation", source, target, preferred=preferred)
            self._say(found)
            self._check(found, "translation", "translate text")
            from pipelines import Translator

            made = Translator(
                found.folder, engine=self.engine, name=found.name, source=source,
                shortlist=shortlist,
            )  # fmt: skip
            _check_languages(found.name, made, source, target)
            self._translators[key] = made
        return self._translators[key]

    def _say(self, found: ResolvedModel) -> None:
        if found.note:
            print_note(found.note)

    def _check(self, found: ResolvedModel, task: str, what: str) -> None:
        if found.task != task:
            raise ModelError(
                f"{found.name} is a model for {found.task}, it cannot {what}; "
                "`edgeapp models list` shows which can"
            )


def _check_languages(
    name: str, translator: Translator, source: str | None, target: str | None
) -> None:
    """A pair that the model was not made for is said, not ignored."""
    own_source, own_target = translator.source_language, translator.target_language
    # A group such as "mul" or "ROMANCE" may well hold the source.
    one = own_source is not None and len(own_source) == 2
    if source and one and own_source != source:
        raise UnsupportedTask(
            f"{name} translates from {own_source}, not from {source}; "
            f"try -m opus-mt-{source}-{target or own_target}"
        )
    if target and own_target and not translator.target_codes and own_target != target:
        raise UnsupportedTask(
            f"{name} translates into {own_target}, not into {target}; "
            f"try -m opus-mt-{source or own_source}-{target}"
        )
