"""What the program knows about a family of models, as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.families.architecture import Architecture

Task = Literal["asr", "translation", "reading"]
TokenizerKind = Literal["marian", "m2m_100", "mbart", "t5", "mt5", "transformers"]
FileGroups = tuple[tuple[str, ...], ...]

LAYER_TENSOR = re.compile(r"model\.(encoder|decoder)\.layers\.(\d+)\.(.*)\.(weight|bias)")
"""The native model's name of a tensor in a layer: side, index, block, kind."""

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm_char.model",
    "vocab-src.json",
    "prophetnet.tokenizer",
)
"""The files from which AutoTokenizer makes a tokenizer: a folder needs one of them."""


def _always(config: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True)
class Family:
    """A family of models: how its config.json is recognized, and how its models are run.

    Attributes:
        model_type: The model_type in the config.json of its models.
        task: What its models are used for; None: they run in the engine only.
        classes: The classes of transformers that run it, by `architectures` of config.json; empty
            for a native family, which takes all classes that generate text.
        files: Beside config and weights, a complete folder has one file of each group.
        tokenizer: How a translator's text becomes ids. "mt5" is T5's without a task in the files;
            "transformers" is AutoTokenizer.
        whole_lines: Its models write a text about another one, such as a summary, unless they are
            known to translate into a language. They are given lines whole, not sentence by
            sentence, and keep the lengths and the repetition limit of their files.
        architecture: config.json → Architecture. It raises KeyError for a missing value, ValueError
            or TypeError for an impossible one. None: transformers runs the family.
        tensor_name: The native model's name of a tensor → the checkpoint's. The native model uses
            the names of BART, Marian and M2M100 checkpoints in transformers.
        native_variant: Whether the native model runs the variant that a config.json describes;
            transformers runs the others.
        passes: What a decoder pass of transformers takes: the rows of all requests, one row (its
            experts have a capacity, which the tokens of other rows would use up), or one token of
            one row (once it has a cache).
    """

    model_type: str
    task: Task | None
    classes: tuple[str, ...] = ()
    files: FileGroups = ()
    tokenizer: TokenizerKind = "transformers"
    whole_lines: bool = False
    architecture: Callable[[Mapping[str, Any]], Architecture] | None = None
    tensor_name: Callable[[str], str] = str
    native_variant: Callable[[Mapping[str, Any]], bool] = _always
    passes: Literal["all rows", "one row", "one token"] = "all rows"
