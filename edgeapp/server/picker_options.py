"""What the pickers offer: the models on this machine and the languages that they know."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines import LANGUAGES, is_one_language, model_languages, pair_in_name, two_letter
from pipelines.hub import ModelInfo, list_models

__all__ = [
    "PickerOptions",
    "TranslatorOption",
    "RecognizerOption",
    "picker_options",
    "language_name",
]

_TARGET = re.compile(r">>([A-Za-z_]+)<<")


@dataclass(frozen=True)
class RecognizerOption:
    """name: the model's. languages: codes that it listens for."""

    name: str
    languages: tuple[str, ...]


@dataclass(frozen=True)
class TranslatorOption:
    """A translator's languages; source None: a group of them."""

    model: str
    source: str | None
    target: str


@dataclass(frozen=True)
class PickerOptions:
    recognisers: tuple[RecognizerOption, ...]
    pairs: tuple[TranslatorOption, ...]

    def as_message(self) -> dict[str, Any]:
        """For the page, with a name for each language."""
        codes = {code for one in self.recognisers for code in one.languages}
        codes |= {code for pair in self.pairs for code in (pair.source, pair.target) if code}
        return {
            "type": "picker_options",
            "recognisers": [asdict(one) for one in self.recognisers],
            "pairs": [asdict(pair) for pair in self.pairs],
            "languages": {code: language_name(code) for code in sorted(codes)},
        }


def picker_options() -> PickerOptions:
    """What is on this machine now."""
    models = list_models()
    recognisers = tuple(
        RecognizerOption(model.name, _languages(model.folder))
        for model in models
        if model.task == "asr"
    )
    pairs = [pair for model in models if model.task == "translation" for pair in _pairs(model)]
    return PickerOptions(recognisers, tuple(pairs))


def language_name(code: str) -> str:
    """ "German" for "de"; the code itself where no name is known."""
    return LANGUAGES.get(code, code).title() if code in LANGUAGES else code


def _languages(folder: Path) -> tuple[str, ...]:
    known = _read(folder / "generation_config.json").get("lang_to_id")
    if not isinstance(known, dict) or not known:
        return ("en",)
    return tuple(token.strip("<|>") for token in known)


def _pairs(model: ModelInfo) -> list[TranslatorOption]:
    many = model_languages(model.folder, model.name)
    if many is not None:
        sources, targets = ([code for code in codes if len(code) == 2] for codes in many)
        # Not all with all, which would be 40,000: each source and each target stands for itself.
        known = [(source, next((t for t in targets if t != source), None)) for source in sources]
        known += [(None if len(sources) > 1 else sources[0], target) for target in targets]
        return [TranslatorOption(model.name, source, target) for source, target in known if target]
    config = _read(model.folder / "tokenizer_config.json")
    named = pair_in_name(model.name) or pair_in_name(model.folder.name) or (None, None)
    source = two_letter(config.get("source_lang")) or named[0]
    target = two_letter(config.get("target_lang")) or named[1]
    source = two_letter(source) if is_one_language(source) else None
    codes = {two_letter(code) for code in _TARGET.findall(" ".join(_vocabulary(model.folder)))}
    if not codes and target is not None:
        codes = {target}
    return [TranslatorOption(model.name, source, code) for code in sorted(filter(None, codes))]


def _vocabulary(folder: Path) -> dict[str, Any]:
    separate = folder / "target_vocab.json"
    return _read(separate if separate.is_file() else folder / "vocab.json")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
