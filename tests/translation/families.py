"""Models for many languages, each with transformers' tokenizer and model as an oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pipelines.translation import Translator
from pipelines.translation.decode import SentenceRequest

__all__ = [
    "CASES",
    "CONTROL_WORDS",
    "Case",
    "generated",
    "oracle_model",
    "oracle_tokenizer",
    "source_ids",
]

CONTROL_WORDS = (
    "</s> <pad> <unk> <s> <mask> eng_Latn deu_Latn __en__ __de__ en_XX de_DE <extra_id_0>"
).split()


@dataclass(frozen=True)
class Case:
    """A shape of many_layout. pairs: (--from, --to) and the codes that they stand for; code None
    where the model has but one target."""

    shape: str
    tokenizer: str
    pairs: tuple[tuple[str, str, str | None, str | None], ...]
    prefix: dict[str, str] = field(default_factory=dict)


CASES = {
    "nllb": Case(
        "nllb-200-distilled-600M",
        "NllbTokenizer",
        (
            ("en", "de", "eng_Latn", "deu_Latn"),
            ("fr", "zh", "fra_Latn", "zho_Hans"),
            ("rus_Cyrl", "pt-BR", "rus_Cyrl", "por_Latn"),
        ),
    ),
    "m2m100": Case(
        "m2m100_418M", "M2M100Tokenizer", (("en", "ru", "en", "ru"), ("deu", "no", "de", "no"))
    ),
    "mbart-50": Case(
        "mbart-large-50-many-to-many-mmt",
        "MBart50Tokenizer",
        (("en", "fr", "en_XX", "fr_XX"), ("ro_RO", "zh", "ro_RO", "zh_CN")),
    ),
    "mbart-50 to one": Case(
        "mbart-large-50-many-to-one-mmt", "MBart50Tokenizer", (("ru", "en", "ru_RU", None),)
    ),
    "mbart": Case("mbart-large-en-ro", "MBartTokenizer", (("en", "ro", "en_XX", None),)),
    "t5": Case(
        "t5-small",
        "T5Tokenizer",
        (("en", "de", None, "de"), ("en", "ro", None, "ro")),
        {"de": "translate English to German: ", "ro": "translate English to Romanian: "},
    ),
    "flan-t5": Case(
        "flan-t5-small",
        "T5Tokenizer",
        (("en", "fr", None, "fr"),),
        {"fr": "translate English to French: "},
    ),
}


def oracle_tokenizer(case: Case, folder: Path, source: str | None, **options: Any) -> Any:
    """transformers' tokenizer of a folder, for texts in a language of the model."""
    import transformers

    named = {} if source is None else {"src_lang": source}
    options = {"split_special_tokens": True} | named | options
    return getattr(transformers, case.tokenizer).from_pretrained(folder, **options)


def oracle_model(folder: Path) -> Any:
    """The folder in transformers, decoding as its generation_config.json says but for beams, and
    for what it forces upon an output that has reached max_length."""
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    config = model.generation_config
    config.num_beams, config.early_stopping = 1, False
    config.forced_eos_token_id = config.max_length = None
    return model


def source_ids(case: Case, tokenizer: Any, text: str, target: str | None) -> list[int]:
    """What transformers' users give to `generate`."""
    ids: list[int] = tokenizer(case.prefix.get(target or "", "") + text)["input_ids"]
    return ids


def generated(translator: Translator, jobs: list[SentenceRequest]) -> list[list[int]]:
    """The ids of the first generation for each job, in one batch, without detection of loops."""
    decoder = translator._decoder
    encoded = decoder.model.encode([job.source_ids for job in jobs])
    running = list(map(decoder.submit, jobs, encoded))
    return [list(each.stream.result().tokens) for each in running if each.stream is not None]
