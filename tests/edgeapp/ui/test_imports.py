"""The page's modules import only names that exist; otherwise a browser runs none of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgeapp.ui import STATIC

MODULES = sorted(STATIC.rglob("*.js"))
IMPORT = re.compile(r"^import (?:\* as \w+|\{([^}]*)\}) from \"([^\"]+)\";", re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:const|let|class|function\*?) (\w+)", re.MULTILINE)
EXPORTED_AGAIN = re.compile(r"^export \{([^}]*)\}", re.MULTILINE)


def exports(module: Path) -> set[str]:
    text = module.read_text("utf-8")
    names = set(EXPORT.findall(text))
    for listed in EXPORTED_AGAIN.findall(text):
        names |= {name.split(" as ")[-1].strip() for name in listed.split(",") if name.strip()}
    return names


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_imports_exist(module: Path) -> None:
    for listed, source in IMPORT.findall(module.read_text("utf-8")):
        below = source.removeprefix("/edgeapp/static/")
        path = STATIC / below if below != source else (module.parent / source).resolve()
        assert path.is_file(), f"{source} is missing"
        wanted = {name.split(" as ")[0].strip() for name in listed.split(",") if name.strip()}
        assert not wanted - exports(path), f"{source} lacks {wanted - exports(path)}"
