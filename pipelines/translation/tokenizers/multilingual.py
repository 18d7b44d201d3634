"""The tokenizers of NLLB, M2M100, mBART-50 and mBART: one vocabulary for all languages, and a
token for each of them, in front of the source or behind it.

Equal to transformers' NllbTokenizer, M2M100Tokenizer, MBart50Tokenizer and MBartTokenizer, but
that nothing in a text becomes a special token, and that all of them normalise a text as their
sentencepiece model says (transformers 5 no longer does for MBartTokenizer).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines import languages
from pipelines.errors import CheckpointError, OptionError
from pipelines.translation.tokenizers.files import (
    longest_source,
    name_or_none,
    read_json,
    token_content,
)
from pipelines.translation.tokenizers.subword import (
    SentencePieceModel,
    SubwordModel,
    TokenizersModel,
)

__all__ = ["MultilingualTokenizer"]

_SPM, _JSON = "sentencepiece.bpe.model", "tokenizer.json"
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")


@dataclass(frozen=True)
class _TokenLayout:
    """How a kind of model writes languages.

    codes: in the order of their ids. token: how a language's token is spelt.
    behind: the source language stands behind eos, not in front. starts: the decoder starts from
    the target language; else it starts as ever, and says the language first.
    """

    codes: tuple[str, ...]
    token: re.Pattern[str]
    behind: bool = False
    starts: bool = False
    plain_quotes: bool = False


_NLLB = _TokenLayout(languages.NLLB, re.compile(r"([a-z]{2,3}_[A-Z][a-z]{3})"), plain_quotes=True)
_M2M100 = _TokenLayout(languages.M2M100, re.compile(r"__([a-z]{2,3})__"), plain_quotes=True)
_MBART50 = _TokenLayout(languages.MBART50, re.compile(r"([a-z]{2,3}_[A-Z]{2})"))
_MBART = _TokenLayout(languages.MBART, _MBART50.token, behind=True, starts=True)


class MultilingualTokenizer:
    """As TextTokenizer; target_codes and source_codes are those of the model ("deu_Latn").

    family: "m2m_100" or "mbart". begins: what the folder says that a translation starts from and
    is made to begin with; where a language is among that, it is the only target.

    Raises CheckpointError for a folder with missing or damaged files.
    """

    def __init__(self, folder: Path, family: str, begins: tuple[int, ...] = ()) -> None:
        config = read_json(folder / "tokenizer_config.json", optional=True)
        layout = _layout(folder, family, config)
        self._pieces = _open(folder, m2m100=layout.token is _M2M100.token)
        self._languages = _languages(folder, config, layout, self._pieces)
        if not self._languages:
            raise CheckpointError(f"{folder} has no token for any language: it is no translator")
        self._eos = self._pieces.ids["</s>"]
        self._behind, self._starts = layout.behind, layout.starts
        self.plain_quotes = layout.plain_quotes
        self.model_max_length = longest_source(config)
        self.source_language = name_or_none(config.get("src_lang"))
        self.source_codes = tuple(self._languages)
        names = {index: code for code, index in self._languages.items()}
        only = next((names[index] for index in begins if index in names), None)
        self.target_language = only or name_or_none(config.get("tgt_lang"))
        self.target_codes = () if only else tuple(self._languages)

    def encode(self, text: str, code: str | None = None, origin: str | None = None) -> list[int]:
        """Source ids of a sentence in the language `origin`, by default source_language."""
        origin = origin or self.source_language
        if origin not in self._languages:
            raise OptionError(f"this model has no language {origin!r} to read")
        ids, language = self._pieces.encode(text), self._languages[origin]
        return [*ids, self._eos, language] if self._behind else [language, *ids, self._eos]

    def unknown(self, text: str) -> tuple[str, ...]:
        return self._pieces.unknown(text)

    def decode(self, ids: Iterable[int]) -> str:
        return self._pieces.decode(ids)

    def source_text(self, ids: Iterable[int]) -> str:
        return self.decode(ids)

    def start(self, code: str | None) -> int | None:
        return self._languages[code] if code and self._starts else None

    def opening(self, code: str | None) -> tuple[int, ...]:
        return (self._languages[code],) if code and not self._starts else ()


def _layout(folder: Path, family: str, config: Mapping[str, Any]) -> _TokenLayout:
    model = read_json(folder / "config.json")
    named = f"{config.get('tokenizer_class')} {model.get('tokenizer_class')}"
    if family == "m2m_100":
        if not (folder / "vocab.json").is_file() or "Nllb" in named:
            return replace(_NLLB, behind=bool(config.get("legacy_behaviour")))
        if config.get("language_codes") == "wmt21":
            return _TokenLayout(languages.WMT21, _M2M100.token, plain_quotes=True)
        return _M2M100
    fifty = "MBart50" in named or config.get("language_codes") == "ML50"
    return _MBART50 if fifty else _MBART


def _open(folder: Path, m2m100: bool) -> SubwordModel:
    if m2m100:
        return SentencePieceModel(folder / _SPM, _FAIRSEQ, folder / "vocab.json")
    if not (folder / _SPM).is_file() and (folder / _JSON).is_file():
        return TokenizersModel(folder / _JSON)
    return SentencePieceModel(folder / _SPM, _FAIRSEQ)


def _languages(
    folder: Path, config: Mapping[str, Any], layout: _TokenLayout, pieces: SubwordModel
) -> dict[str, int]:
    """The ids of the languages, in the order of the ids."""
    found = {}
    if isinstance(pieces, SentencePieceModel):
        found = {code: pieces.size + i for i, code in enumerate(layout.codes)}
    for token, index in _added(folder, config, pieces):
        match = layout.token.fullmatch(token)
        if match:
            found[match[1]] = index
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _added(
    folder: Path, config: Mapping[str, Any], pieces: SubwordModel
) -> Iterable[tuple[str, int]]:
    """Tokens beyond the model's pieces, as several files may name them."""
    yield from pieces.ids.items()
    yield from read_json(folder / "added_tokens.json", optional=True).items()
    try:
        for index, token in (config.get("added_tokens_decoder") or {}).items():
            yield token_content(token, ""), int(index)
    except (ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder / 'tokenizer_config.json'} makes no sense: {error}"
        ) from error
