"""The models that a run of `edgeapp translate` uses."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgeapp.batch.texts.translation_job import LineTranslator
from pipelines import OptionError

if TYPE_CHECKING:
    from edgeapp.model_pool import Drafts, ModelPool
    from pipelines import TranslateOptions, Translator

__all__ = ["TranslationModels"]


@dataclass
class TranslationModels:
    """The model for the language of the inputs; another one where the language changes.

    Attributes:
        stack: Ends worker processes.
        pool: Loads models.
        name: The model that was named, or None.
        target: Language to translate into, as the model names it, or None.
        target_code: The code of that language, or None.
        choices: Options of the translations, apart from languages.
        shortlist, workers: Options of the command line.
        drafts: What drafts for the model.
        used: The translators that were loaded.
    """

    stack: ExitStack
    pool: ModelPool
    name: str | None
    target: str | None
    target_code: str | None
    choices: TranslateOptions
    shortlist: bool
    workers: int
    drafts: Drafts

    def __post_init__(self) -> None:
        self._parallel: dict[int, LineTranslator] = {}
        self.used: list[Translator] = []

    def load(self, source_code: str | None, source: str | None) -> None:
        """Load the model.

        Args:
            source_code: Code of the language of the text, or None.
            source: The same as the model names it, where it was named so.

        Raises:
            EdgeError: As ModelPool.translator, and for languages that the model lacks.
        """
        self.translator = self.pool.translator(
            self.name, source_code, self.target_code, self.shortlist, self.drafts
        )
        if self.translator not in self.used:
            self.used.append(self.translator)
        self.options = replace(
            self.choices,
            target=self.target if self.translator.target_codes else None,
            source_language=source or source_code,
        )
        _check_languages(self.translator, self.options)
        self.line_translator = self._with_workers(self.translator)

    def use_machines(self, machines: LineTranslator) -> None:
        """From now on other machines translate, with the model that is loaded."""
        self.line_translator = machines

    @property
    def source_language(self) -> str | None:
        """Code of the language from which is translated; None if it is not known."""
        return self.options.source_language or self.translator.source_language

    @property
    def suffix(self) -> str:
        """The language in the names of output files."""
        return self.target or self.translator.target_language or "translated"

    def _with_workers(self, translator: Translator) -> LineTranslator:
        """The translator itself, or `workers` processes that share its threads."""
        if self.workers == 1:
            return translator
        if id(translator) not in self._parallel:
            from pipelines.translation import ParallelTranslator

            threads = max(1, translator.engine.threads // self.workers)
            processes = ParallelTranslator(translator, self.workers, threads)
            self._parallel[id(translator)] = self.stack.enter_context(processes)
        return self._parallel[id(translator)]


def _check_languages(translator: Translator, options: TranslateOptions) -> None:
    """Raise for languages that are missing or that the model lacks, before any input is read.

    Raises:
        UnsupportedTask: The model does not translate from or into the language.
        OptionError: The model needs --from.
    """
    source = options.source_language or translator.source or translator.source_language
    if translator.source_codes and not source:
        raise OptionError(
            f"{translator.name} needs the language of the text: name it with --from, such as "
            f"--from en, or --from auto; it has {', '.join(translator.source_codes)}"
        )
    # A missing target is no error yet: each line may name its own (">>deu<< Good morning.").
    translator.translate_lines([], options)
