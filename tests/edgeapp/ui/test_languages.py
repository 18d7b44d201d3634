"""The page's texts in other languages: all are translated, with the same values in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from edgeapp.ui import STATIC
from tests.page_texts import (
    TABLES,
    error_texts,
    page_texts,
    placeholders,
    server_texts,
    stray_texts,
)

# Where the server's messages to the page are written.
MESSAGES = (
    "edgeapp/english_only.py", "edgeapp/exit_codes.py", "edgeapp/live", "edgeapp/model_pool.py",
    "edgeapp/server", "pipelines/asr", "pipelines/hub", "pipelines/languages.py",
    "pipelines/reading",
)  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8")))


def test_the_page_offers_the_tables_that_there_are() -> None:
    script = (STATIC / "texts.js").read_text("utf-8")
    (listed,) = re.findall(r"LANGUAGES = \{(.*?)\}", script)
    assert set(re.findall(r"(\w+):", listed)) == {"en", *(path.stem for path in TABLES)}


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_table_has_every_text_of_the_page(path: Path) -> None:
    """What is missing, or not used any more: python -m tests.page_texts."""
    assert read(path)["page"].keys() == page_texts().keys()


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_translation_has_the_same_values(path: Path) -> None:
    table = read(path)
    counted = page_texts()
    for text, translated in (table["page"] | table["server"]).items():
        forms = translated if counted.get(text) else {"": translated}
        for name, form in forms.items():
            assert form.strip(), text
            lacks_count = {*placeholders(form), "count"} == {*placeholders(text)}
            assert placeholders(form) == placeholders(text) or (name == "one" and lacks_count), form


def test_all_tables_have_the_same_messages_of_the_server() -> None:
    first, *rest = (read(path)["server"] for path in TABLES)
    assert all(table.keys() == first.keys() for table in rest)


@pytest.mark.slow
def test_the_server_still_writes_the_translated_messages() -> None:
    written = server_texts(*MESSAGES)
    known = {re.sub(r"\{\w+\}", "{}", text) for text in read(TABLES[0])["server"]}
    assert not known - written


def test_every_reason_why_a_picture_cannot_be_read_is_translated() -> None:
    raised = error_texts("pipelines/reading/pictures.py", "InputError")
    assert len(raised) > 5
    known = {re.sub(r"\{\w+\}", "{}", text) for text in read(TABLES[0])["server"]}
    # The page uploads pictures; paths are of the command line.
    assert {text for text, function in raised.items() if function != "_read"} <= known


def test_no_text_of_the_scripts_is_left_in_english() -> None:
    assert not stray_texts()
