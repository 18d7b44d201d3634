"""The options of the page's pickers, from the installed models, and what a user chose in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeapp.exit_codes import pull_command
from pipelines import LANGUAGES, EdgeError, OptionError
from pipelines.hub import (
    ModelInfo,
    Stamp,
    choose_default,
    list_models,
    models_stamp,
    read_json,
    recognizer_languages,
    translator_to_download,
)
from pipelines.languages import is_one_language, pair_in_name, two_letter
from pipelines.translation import model_languages

if TYPE_CHECKING:
    from pipelines.text_language import TextLanguage

__all__ = [
    "ModelChoice",
    "PickerOptions",
    "ReaderOption",
    "RecognizerOption",
    "TranslatorOption",
    "language_name",
    "missing_translator",
    "picker_options",
]

_TARGET_TOKEN = re.compile(r">>([A-Za-z_]+)<<")  # of a Marian model with several target languages
_MAX_CHOICE_CHARACTERS = 200


@dataclass(frozen=True)
class RecognizerOption:
    """An installed speech recognizer.

    Attributes:
        name: The model's name.
        languages: Codes of the languages that it recognizes.
        bundled: It came with the program: a demonstration, trained on synthetic voices only.
    """

    name: str
    languages: tuple[str, ...]
    bundled: bool = False


@dataclass(frozen=True)
class TranslatorOption:
    """A language pair of an installed translator.

    Attributes:
        model: The model's name.
        source: The code of the source language, None for a group of languages.
        target: The code of the target language.
    """

    model: str
    source: str | None
    target: str


@dataclass(frozen=True)
class ReaderOption:
    """An installed model that reads pictures.

    Attributes:
        name: The model's name.
        bundled: It came with the program.
    """

    name: str
    bundled: bool = False


@dataclass(frozen=True)
class PickerOptions:
    """What the page offers.

    Attributes:
        recognizers: For speech; the bundled one is the last.
        pairs: Languages of the translators.
        readers: For pictures.
        automatic: Codes of the languages for which a recognizer can be chosen automatically: not
            of those that only the bundled one recognizes.
    """

    recognizers: tuple[RecognizerOption, ...]
    pairs: tuple[TranslatorOption, ...]
    readers: tuple[ReaderOption, ...] = ()
    automatic: tuple[str, ...] = ()

    @property
    def translators(self) -> dict[str, tuple[set[str], set[str]]]:
        """The source and target languages of each translator, by its name.

        It has no source languages if it translates a group of languages that it does not name.
        """
        languages: dict[str, tuple[set[str], set[str]]] = {}
        for pair in self.pairs:
            sources, targets = languages.setdefault(pair.model, (set(), set()))
            targets.add(pair.target)
            if pair.source is not None:
                sources.add(pair.source)
        return languages

    def as_message(self) -> dict[str, Any]:
        """A message for the page, with the name of each language."""
        codes = {code for option in self.recognizers for code in option.languages}
        codes |= {code for pair in self.pairs for code in (pair.source, pair.target) if code}
        return {
            "type": "picker_options",
            "recognizers": [asdict(option) for option in self.recognizers],
            "pairs": [asdict(pair) for pair in self.pairs],
            "readers": [asdict(option) for option in self.readers],
            "automatic": self.automatic,
            "languages": {code: language_name(code) for code in sorted(codes)},
        }


@dataclass(frozen=True)
class ModelChoice:
    """What a user chose on the page. None: choose automatically.

    Attributes:
        model: The name of a recognizer, or of a model that reads pictures.
        language: The code of the language of the input: spoken, or of the text.
        target: The code of the language to translate into.
        translation_model: The name of a translator.
        prompt: Of live captions: text before what is said, with names and in its style.
        hotwords: Of live captions: names and terms to prefer.
        languages: The codes of the languages that may be spoken live, instead of `language`.
        correct: Of live captions: each finished utterance is decoded once more.
    """

    model: str | None = None
    language: str | None = None
    target: str | None = None
    translation_model: str | None = None
    prompt: str | None = None
    hotwords: str | None = None
    languages: tuple[str, ...] = ()
    correct: bool = False

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> ModelChoice:
        """Read a page's message, in which an empty field means None.

        Raises:
            OptionError: A field is not a short string, or `correct` is neither true nor false.
        """
        values: dict[str, Any] = {}
        for name in ("model", "language", "target", "translation_model"):
            value = message.get(name) or None
            if value is not None and (
                not isinstance(value, str) or len(value) > _MAX_CHOICE_CHARACTERS
            ):
                raise OptionError(f"{name}: {value!r} is not a valid choice")
            values[name] = value
        correct = message.get("correct") or False
        if not isinstance(correct, bool):
            raise OptionError(f"correct: {correct!r} is not a valid choice")
        return cls(**values, correct=correct)


def picker_options(preferred: str | None = None) -> PickerOptions:
    """The options that the installed models allow.

    They are remembered until a file of a model changes; to find that out reads the disk, too.

    Args:
        preferred: The recognizer of the user's settings, in place of an automatic choice.
    """
    return _options_of(tuple(list_models()), models_stamp(), preferred)


@lru_cache(maxsize=2)  # with and without the settings' recognizer
def _options_of(models: Sequence[ModelInfo], stamp: Stamp, preferred: str | None) -> PickerOptions:
    recognizers = [
        RecognizerOption(model.name, recognizer_languages(model), model.source == "bundled")
        for model in models
        if model.task == "asr" and model.native
    ]
    recognizers.sort(key=lambda option: option.bundled)  # last: they are not chosen by themselves
    pairs = [
        pair
        for model in models
        if model.task == "translation" and model.native
        for pair in _pairs(model)
    ]
    readers = tuple(
        ReaderOption(model.name, model.source == "bundled")
        for model in models
        if model.task == "reading"
    )
    automatic = _automatic_languages(recognizers, preferred)
    return PickerOptions(tuple(recognizers), tuple(pairs), readers, automatic)


def language_name(code: str) -> str:
    """The English name of a language, "German" for "de"; the code itself if it is unknown."""
    return LANGUAGES[code].title() if code in LANGUAGES else code


def _automatic_languages(
    recognizers: Sequence[RecognizerOption], preferred: str | None
) -> tuple[str, ...]:
    names: dict[str, list[str]] = {}  # by language
    for option in recognizers:
        for code in option.languages:
            names.setdefault(code, []).append(option.name)
    # Languages of the same recognizers have the same choice, which takes 5 ms.
    groups: dict[tuple[str, ...], list[str]] = {}
    for code, of_code in names.items():
        groups.setdefault(tuple(of_code), []).append(code)
    listed, codes = {option.name for option in recognizers}, list[str]()
    for able, group in groups.items():
        with suppress(EdgeError):  # no such recognizer
            chosen = choose_default("asr", group[0], preferred=preferred).name
            # The settings may name a folder that is not listed.
            if chosen in able or chosen not in listed:
                codes += group
    return tuple(sorted(codes))


def _pairs(model: ModelInfo) -> list[TranslatorOption]:
    multilingual = model_languages(model.folder, model.name)
    if multilingual is not None:
        return _multilingual_pairs(model.name, *multilingual)
    config = read_json(model.folder / "tokenizer_config.json")
    named = pair_in_name(model.name) or pair_in_name(model.folder.name) or (None, None)
    source, target = (
        two_letter(code) if isinstance(code := config.get(key), str) else None
        for key in ("source_lang", "target_lang")
    )
    source, target = source or named[0], target or named[1]
    source = two_letter(source) if is_one_language(source) else None
    tokens = _TARGET_TOKEN.findall(" ".join(_vocabulary(model.folder)))
    codes = {two_letter(code) for code in tokens}
    if not codes and target is not None:
        codes = {target}
    return [TranslatorOption(model.name, source, code) for code in sorted(filter(None, codes))]


def _multilingual_pairs(
    name: str, source_codes: Iterable[str], target_codes: Iterable[str]
) -> list[TranslatorOption]:
    """One pair for each source and one for each target; all pairs would be 40,000.

    Only languages with a code of two letters are offered; a model may have none of them.
    """
    sources = [code for code in source_codes if len(code) == 2]
    targets = [code for code in target_codes if len(code) == 2]
    pairs: list[tuple[str | None, str | None]] = [
        (source, next((t for t in targets if t != source), None)) for source in sources
    ]
    only_source = sources[0] if len(sources) == 1 else None
    pairs += [(only_source, target) for target in targets if target != only_source]
    different = dict.fromkeys(pairs)
    return [TranslatorOption(name, source, target) for source, target in different if target]


def _vocabulary(folder: Path) -> dict[str, Any]:
    separate = folder / "target_vocab.json"
    return read_json(separate if separate.is_file() else folder / "vocab.json")


def missing_translator(source: TextLanguage, target: str) -> str:
    """Return what to tell a person whose text is in a language that is not translated here."""
    name = language_name(source.code)
    model = translator_to_download(source.code, target, sure=source.sure)
    message = (
        f"the text {'is' if source.sure else 'may be'} {name}, and no translator from {name} into "
        f"{language_name(target)} is on this server"
    )
    return f"{message}; {pull_command(model)} downloads one" if model else message
