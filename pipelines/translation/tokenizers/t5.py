"""T5's tokenizer: the task is a prefix of the text, "translate English to German: ", or the target
is a token before it, "<2de>" (MADLAD). Models of mT5 and UMT5 may have neither.

Equal to transformers' T5Tokenizer, except that nothing in a text becomes a special token.
"""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.errors import CheckpointError, OptionError, UnsupportedTask
from pipelines.json_files import read_model_json
from pipelines.translation.tokenizers.files import read_model_max_length
from pipelines.translation.tokenizers.subword import (
    SentencePieceModel,
    SubwordModel,
    SubwordTokenizer,
    TokenizersModel,
)

_SPM, _JSON = "spiece.model", "tokenizer.json"
_TASK = re.compile(r"translation_([a-z]{2,3})_to_([a-z]{2,3})")
_TARGET = re.compile(r"<2([a-z]{2,3}(?:_[A-Z][A-Za-z]+)?)>")
# The training prefixes of T5 and Flan-T5, for exports of Flan-T5 that omit them.
_FLAN = {
    ("en", code): f"translate English to {name}: "
    for code, name in (("de", "German"), ("fr", "French"), ("ro", "Romanian"))
}


class T5Tokenizer(SubwordTokenizer):
    """Tokenizer of T5; codes are the two letters of config.json's tasks.

    Args:
        folder: The model folder.
        name: The model's name: it tells Flan-T5 from other T5 models.
        needs_task: Refuse a model whose files name no task. mT5 and UMT5 are trained for their task
            by others, mostly without a prefix: their texts are given to the model as they are.

    Raises:
        CheckpointError: A file is missing or damaged.
        UnsupportedTask: The model was not trained for translation.
    """

    plain_quotes = False

    def __init__(self, folder: Path, name: str, needs_task: bool = True) -> None:
        self._subwords = _open(folder)
        self._eos = self._subwords.ids["</s>"]
        self._targets = _target_tokens(self._subwords)
        self._prefixes = {} if self._targets else _prefixes(folder, name)
        if needs_task and not (self._targets or self._prefixes):
            raise UnsupportedTask(
                f"{name} is a T5 model whose config.json names no translation task"
            )
        self.model_max_length = read_model_max_length(
            read_model_json(folder / "tokenizer_config.json", optional=True)
        )
        self.source_codes = tuple(dict.fromkeys(source for source, _ in self._prefixes))
        targets = self._targets or [target for _, target in self._prefixes]
        self.target_codes = tuple(dict.fromkeys(targets))
        self.source_language = self.source_codes[0] if len(self.source_codes) == 1 else None
        self.target_language = self.target_codes[0] if len(self.target_codes) == 1 else None

    def encode(
        self, text: str, target_language: str | None = None, source_language: str | None = None
    ) -> list[int]:
        """Source ids: the task's prefix, the sentence, eos.

        Raises:
            OptionError: The model was not trained for this pair of languages.
        """
        if self._targets:
            token = self._targets.get(target_language or "")
            if token is None:
                raise OptionError(f"this model does not translate into {target_language!r}")
            return [token, *self._subwords.encode(text), self._eos]
        if not self._prefixes:
            return [*self._subwords.encode(text), self._eos]
        source = source_language or self.source_language or "?"
        target = target_language or self.target_language or "?"
        prefix = self._prefixes.get((source, target))
        if prefix is None:
            pairs = ", ".join(f"{source} to {target}" for source, target in self._prefixes)
            raise OptionError(f"this model does not translate {source} to {target}, but {pairs}")
        return [*self._subwords.encode(prefix + text), self._eos]


def _open(folder: Path) -> SubwordModel:
    if not (folder / _SPM).is_file() and (folder / _JSON).is_file():
        return TokenizersModel(folder / _JSON)
    return SentencePieceModel(folder / _SPM)


def _prefixes(folder: Path, name: str) -> dict[tuple[str, str], str]:
    """(source, target) → the prefix of its task."""
    config = read_model_json(folder / "config.json")
    prefixes: dict[tuple[str, str], str] = {}
    try:
        for task, values in (config.get("task_specific_params") or {}).items():
            match = _TASK.fullmatch(task)
            if match:
                prefixes[match[1], match[2]] = str(values["prefix"])
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / 'config.json'} is invalid: {error!r}") from error
    if not prefixes and "flan" in f"{name} {config.get('_name_or_path')}".lower():
        prefixes |= _FLAN
    return prefixes


def _target_tokens(subwords: SubwordModel) -> dict[str, int]:
    """Target language → its token, of models that have such."""
    found = ((_TARGET.fullmatch(piece), index) for piece, index in subwords.vocabulary().items())
    return {match[1]: index for match, index in found if match}
