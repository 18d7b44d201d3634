"""What users of other libraries type: the tables of assets/docs/python.md, row by row."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipelines
from pipelines.hub import assets_folder, list_models

PAGE = Path(__file__).parents[1] / "assets/docs/python.md"
_ROW = re.compile(r"^\| `(.*?)` \| `(.*?)` \|$")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# Models of the tables → bundled ones.
BUNDLED = {'"base"': '"demo"', '"opus-mt-en-de"': '"demo-en-de"'}


def tables() -> dict[str, list[tuple[str, str]]]:
    """Return heading of a table's first column → what was typed, and what is typed now."""
    found: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| you typed"):
            heading = line.split("|")[1].strip()
        elif row := _ROW.match(line):
            found.setdefault(heading, []).append((row[1], row[2]))
        elif not line.startswith("|"):
            heading = ""
    return {name: rows for name, rows in found.items() if name}


@pytest.mark.parametrize("heading", sorted(tables()))
def test_each_row_runs(heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(assets_folder() / "samples" / "talk.flac", tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {name: getattr(pipelines, name) for name in dir(pipelines)}
    names["list_models"] = list_models
    for typed, code in tables()[heading]:
        compile(typed, heading, "exec")
        for name, bundled in BUNDLED.items():
            code = code.replace(name, bundled)
        if isinstance(ast.parse(code).body[0], ast.Expr):
            assert eval(code, names) is not None, code
        else:
            exec(code, names)


def test_there_is_a_table_for_each_library() -> None:
    assert len(tables()) == 4
    assert all(len(rows) >= 2 for rows in tables().values())


def spans() -> Iterator[str]:
    """What the page says in backticks outside of code blocks, and of what was typed elsewhere."""
    for line in _FENCE.sub("", PAGE.read_text("utf-8")).splitlines():
        row = _ROW.match(line)
        yield from [row[2]] if row else re.findall(r"`([^`]+)`", line)


def test_names_of_types_and_options_in_prose_exist() -> None:
    from pipelines import asr, engine, errors, hub, subtitles, translation

    homes = (pipelines, asr, translation, engine, hub, errors, subtitles)

    def find(name: str) -> Any:
        return next((getattr(home, name) for home in homes if name in home.__all__), None)

    checked = 0
    for span in spans():
        try:
            tree = ast.parse(span.replace("…", "..."), mode="eval")
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and re.match(r"[A-Z][a-z]+[A-Z]?\w*$", node.id):
                known = find(node.id)
                known = known or getattr(builtins, node.id, None)
                assert known is not None, f"python.md: `{span}`: {node.id} does not exist"
                checked += 1
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                function = find(node.func.id)
                if function is None:
                    continue
                known = inspect.signature(function).parameters
                for keyword in node.keywords:
                    assert keyword.arg in known, f"python.md: `{span}`: no {keyword.arg}"
                    checked += 1
    assert checked > 40
