"""The table of families: what reads it agrees, and the documentation has all of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.families import FAMILIES, Family, is_native
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


@pytest.mark.parametrize(
    ("config", "native"),
    [
        ({"model_type": "moonshine"}, True),
        ({"model_type": "moonshine", "decoder_num_key_value_heads": 2}, False),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, True),
        ({"model_type": "umt5", "architectures": ["UMT5ForConditionalGeneration"]}, False),
    ],
)
def test_the_list_of_models_says_what_is_native_as_the_engine_does(
    config: dict[str, Any], native: bool, hub_cache: Path
) -> None:
    folder = hub_cache / "models--some--model" / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "model.safetensors"):
        (folder / name).touch()
    assert is_native(config) == native
    (listed,) = [model for model in list_models() if model.repository == "some/model"]
    assert listed.native == native
