"""The tokenizers of NLLB, M2M100, mBART-50 and mBART: one vocabulary for all languages, with a
token for each language, before or after the source.

Equal to transformers' NllbTokenizer, M2M100Tokenizer, MBart50Tokenizer and MBartTokenizer, with
two exceptions: nothing in a text becomes a special token, and all of them normalise a text as their
sentencepiece model prescribes (transformers 5 no longer does for MBartTokenizer).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines import languages
from pipelines.errors import CheckpointError, OptionError
from pipelines.json_files import read_model_json
from pipelines.translation.tokenizers.files import (
    name_or_none,
    read_model_max_length,
    token_content,
)
from pipelines.translation.tokenizers.subword import (
    SentencePieceModel,
    SubwordModel,
    SubwordTokenizer,
    TokenizersModel,
)

_SPM, _JSON = "sentencepiece.bpe.model", "tokenizer.json"
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")


@dataclass(frozen=True)
class _TokenLayout:
    """How a family spells and places its language tokens.

    Attributes:
        codes: The languages, in the order of their ids.
        token: Matches a language token; group 1 is the code.
        source_token_last: The source language follows eos; otherwise it precedes the text.
        target_starts_decoder: The target language is the decoder's start token; otherwise it is
            the first generated token.
        plain_quotes: As in TextTokenizer.
    """

    codes: tuple[str, ...]
    token: re.Pattern[str]
    source_token_last: bool = False
    target_starts_decoder: bool = False
    plain_quotes: bool = False


_NLLB = _TokenLayout(languages.NLLB, re.compile(r"([a-z]{2,3}_[A-Z][a-z]{3})"), plain_quotes=True)
_M2M100 = _TokenLayout(languages.M2M100, re.compile(r"__([a-z]{2,3})__"), plain_quotes=True)
_MBART50 = _TokenLayout(languages.MBART50, re.compile(r"([a-z]{2,3}_[A-Z]{2})"))
_MBART = _TokenLayout(
    languages.MBART, _MBART50.token, source_token_last=True, target_starts_decoder=True
)


class MultilingualTokenizer(SubwordTokenizer):
    """Tokenizer of NLLB, M2M100 and mBART; the codes are those of the model ("deu_Latn").

    Args:
        folder: The model folder.
        family: "m2m_100" or "mbart".
        start_ids: forced_bos_token_id and decoder_start_token_id of the folder. Where one of them
            is a language, that is the only target.

    Raises:
        CheckpointError: A file is missing or damaged.
    """

    def __init__(self, folder: Path, family: str, start_ids: tuple[int, ...] = ()) -> None:
        config = read_model_json(folder / "tokenizer_config.json", optional=True)
        layout = _layout(folder, family, config)
        self._subwords = _open(folder, m2m100=layout.token is _M2M100.token)
        self._languages = _languages(folder, config, layout, self._subwords)
        if not self._languages:
            raise CheckpointError(f"{folder} has no language tokens: it is not a translation model")
        self._eos = self._subwords.ids["</s>"]
        self._layout = layout
        self.plain_quotes = layout.plain_quotes
        self.model_max_length = read_model_max_length(config)
        self.source_language = name_or_none(config.get("src_lang"))
        self.source_codes = tuple(self._languages)
        codes = {index: code for code, index in self._languages.items()}
        only_target = next((codes[index] for index in start_ids if index in codes), None)
        self.target_language = only_target or name_or_none(config.get("tgt_lang"))
        self.target_codes = () if only_target else tuple(self._languages)

    def encode(
        self, text: str, target_language: str | None = None, source_language: str | None = None
    ) -> list[int]:
        """Source ids: the sentence and eos, with the source language's token before or after.

        Raises:
            OptionError: Neither the argument nor the model's files name a source language.
        """
        source_language = source_language or self.source_language
        if source_language not in self._languages:
            raise OptionError(f"this model has no source language {source_language!r}")
        ids, language = self._subwords.encode(text), self._languages[source_language]
        if self._layout.source_token_last:
            return [*ids, self._eos, language]
        return [language, *ids, self._eos]

    def decoder_start_id(self, target_language: str | None) -> int | None:
        if not target_language or not self._layout.target_starts_decoder:
            return None
        return self._languages[target_language]

    def forced_prefix(self, target_language: str | None) -> tuple[int, ...]:
        if not target_language or self._layout.target_starts_decoder:
            return ()
        return (self._languages[target_language],)


def _layout(folder: Path, family: str, config: Mapping[str, Any]) -> _TokenLayout:
    model = read_model_json(folder / "config.json")
    named = f"{config.get('tokenizer_class')} {model.get('tokenizer_class')}"
    if family == "m2m_100":
        if not (folder / "vocab.json").is_file() or "Nllb" in named:
            return replace(_NLLB, source_token_last=bool(config.get("legacy_behaviour")))
        if config.get("language_codes") == "wmt21":
            return _TokenLayout(languages.WMT21, _M2M100.token, plain_quotes=True)
        return _M2M100
    is_mbart50 = "MBart50" in named or config.get("language_codes") == "ML50"
    return _MBART50 if is_mbart50 else _MBART


def _open(folder: Path, m2m100: bool) -> SubwordModel:
    if m2m100:
        return SentencePieceModel(folder / _SPM, _FAIRSEQ, folder / "vocab.json")
    if not (folder / _SPM).is_file() and (folder / _JSON).is_file():
        return TokenizersModel(folder / _JSON)
    return SentencePieceModel(folder / _SPM, _FAIRSEQ)


def _languages(
    folder: Path, config: Mapping[str, Any], layout: _TokenLayout, subwords: SubwordModel
) -> dict[str, int]:
    """Code → id of its token, in the order of the ids."""
    ids = {}
    if isinstance(subwords, SentencePieceModel):
        ids = {code: subwords.size + i for i, code in enumerate(layout.codes)}
    for token, index in _added_tokens(folder, config, subwords):
        match = layout.token.fullmatch(token)
        if match:
            ids[match[1]] = index
    return dict(sorted(ids.items(), key=lambda item: item[1]))


def _added_tokens(
    folder: Path, config: Mapping[str, Any], subwords: SubwordModel
) -> Iterable[tuple[str, int]]:
    """Special and added tokens with their ids, from all files that may list them."""
    yield from subwords.ids.items()
    yield from read_model_json(folder / "added_tokens.json", optional=True).items()
    try:
        for index, token in (config.get("added_tokens_decoder") or {}).items():
            yield token_content(token, ""), int(index)
    except (ValueError, AttributeError) as error:
        raise CheckpointError(f"{folder / 'tokenizer_config.json'} is invalid: {error}") from error
