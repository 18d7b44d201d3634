"""The table of families: what reads it agrees, and the documentation has all of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers as hf

from pipelines.engine import Engine
from pipelines.errors import CheckpointError
from pipelines.families import FAMILIES, Family, architecture_of
from pipelines.hub import list_models
from tests.conftest import REPOSITORY

_PASSES = {"all rows": "", "one row": ", one row a pass", "one token": ", one token a pass"}


def how(family: Family) -> str:
    """Return how a family is run, as families.md says it."""
    native = family.architecture is not None
    return "native" if native else f"through transformers{_PASSES[family.passes]}"


def test_the_document_has_every_family() -> None:
    page = (REPOSITORY / "assets/docs/families.md").read_text("utf-8")
    table = page.partition("| family | model_type | how |")[2].partition("\n\n")[0]
    documented = {}
    for row in table.splitlines()[2:]:
        _, _, model_type, said, *_ = re.split(r"\s*\|\s*", row)
        if not said.startswith("refused"):
            documented[model_type] = said
    assert documented == {family.model_type: how(family) for family in FAMILIES.values()}


def test_the_table_is_free_of_torch() -> None:
    check = "import sys, pipelines.families; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)


_SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48}
_HEADS = {f"{side}_num_attention_heads": 4 for side in ("encoder", "decoder")}
_T5 = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}


def _moonshine(key_heads: int) -> Any:
    heads = _HEADS | {f"{side}_num_key_value_heads": key_heads for side in ("encoder", "decoder")}
    layers = {f"{side}_num_hidden_layers": 1 for side in ("encoder", "decoder")}
    return hf.MoonshineForConditionalGeneration(hf.MoonshineConfig(**_SIZES, **heads, **layers))


@pytest.mark.filterwarnings("ignore:.*run by transformers")
@pytest.mark.parametrize(
    ("make", "native"),
    [
        (lambda: _moonshine(4), True),
        (lambda: _moonshine(2), False),
        (lambda: hf.T5ForConditionalGeneration(hf.T5Config(**_T5)), True),
        (lambda: hf.UMT5ForConditionalGeneration(hf.UMT5Config(**_T5)), False),
    ],
    ids=["moonshine", "moonshine, fewer key heads", "t5", "umt5"],
)
def test_the_list_of_models_says_what_is_native_as_the_engine_does(
    make: Callable[[], Any], native: bool, hub_cache: Path
) -> None:
    folder = hub_cache / "models--some--model" / "snapshots" / ("a" * 40)
    make().save_pretrained(folder)
    (folder / "tokenizer.json").touch()
    (folder / "preprocessor_config.json").touch()
    (listed,) = [model for model in list_models() if model.repository == "some/model"]
    assert listed.native == native
    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        family = engine.load(folder).architecture.family
    assert family == (_type_of(folder) if native else "other")


def _type_of(folder: Path) -> str:
    """Return the model_type of a folder."""
    return str(json.loads((folder / "config.json").read_text("utf-8"))["model_type"])


def test_the_engine_refuses_a_class_that_generates_no_text(tmp_path: Path) -> None:
    hf.T5EncoderModel(hf.T5Config(**_T5)).save_pretrained(tmp_path)
    with (
        Engine(device="cpu", threads=1) as engine,
        pytest.raises(CheckpointError, match="T5EncoderModel, which does not turn a source into"),
    ):
        engine.load(tmp_path)


def test_an_empty_list_of_ends_is_refused() -> None:
    with pytest.raises(CheckpointError, match="eos_token_id is an empty list"):
        architecture_of({"model_type": "moonshine", "eos_token_id": []}, "some/model")
