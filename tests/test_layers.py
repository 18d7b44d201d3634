"""The shape of the source tree: imports run one way only, public names are real, and importing a
package costs nothing that was not asked for."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PACKAGES = ("edgeapp", "pipelines")

# What a layer may import of this project, besides itself. The longest prefix of a module's name
# says which layer it is in.
ALLOWED = {
    "edgeapp": {"pipelines"},
    # The package itself only hands out its two classes, when asked for them.
    "pipelines": {"pipelines.asr", "pipelines.translation"},
    "pipelines.errors": set(),
    "pipelines.notices": set(),
    "pipelines.deferred_errors": set(),
    "pipelines.engine": {"pipelines.errors", "pipelines.notices"},
    "pipelines.languages": {"pipelines.errors"},
    "pipelines.language_codes": {"pipelines.language_tokens"},
    "pipelines.language_tokens": set(),
    "pipelines.hub": {"pipelines.errors"},
    # Both resolve the name of a model, and nothing else, through pipelines.hub.
    "pipelines.asr": {
        "pipelines.errors",
        "pipelines.notices",
        "pipelines.deferred_errors",
        "pipelines.engine",
        "pipelines.hub",
        "pipelines.languages",
        "pipelines.language_codes",
        "pipelines.language_tokens",
    },
    "pipelines.translation": {
        "pipelines.errors",
        "pipelines.deferred_errors",
        "pipelines.engine",
        "pipelines.hub",
        "pipelines.languages",
        "pipelines.language_codes",
        "pipelines.language_tokens",
    },
}
FOREIGN = {
    # Oracles of the tests, and what the benchmark compares with.
    "transformers": (),
    "whisper": (),
    "librosa": ("edgeapp.server",),
    # The terminal is the application's.
    "rich": ("edgeapp",),
    "typer": ("edgeapp",),
    "gradio": ("edgeapp",),
    # Ids in, ids out: the engine reads no text and no sound.
    "torch": ("pipelines.engine", "pipelines.asr", "pipelines.translation", "edgeapp.bench"),
    "numba": ("pipelines.engine.kernels",),
    "llvmlite": ("pipelines.engine.kernels",),
    "tokenizers": ("pipelines.asr", "pipelines.translation"),
    "sentencepiece": ("pipelines.translation",),
    "av": ("pipelines.asr", "edgeapp"),
    "huggingface_hub": ("pipelines.hub",),
}


def modules() -> Iterator[tuple[str, Path]]:
    """(dotted name, file) of every module that ships."""
    for package in PACKAGES:
        for file in sorted((REPOSITORY / package).rglob("*.py")):
            parts = file.relative_to(REPOSITORY).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


MODULES = dict(modules())


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of each import in a file, those inside functions and for types included."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute here"
            assert node.module is not None
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield node.lineno, inner if inner in MODULES else node.module


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def layer_of(module: str) -> str:
    return max((layer for layer in ALLOWED if inside(module, layer)), key=len)


def wrong_imports(module: str, file: Path) -> Iterator[str]:
    layer = layer_of(module)
    for line, imported in imports(file):
        where = f"{file.relative_to(REPOSITORY)}:{line} imports {imported}"
        if imported.split(".")[0] in PACKAGES:
            if not any(inside(imported, ok) for ok in (layer, *ALLOWED[layer])):
                yield f"{where}, which {layer} must not know"
            elif layer not in (layer_of(imported), "edgeapp") and imported not in ALLOWED:
                yield f"{where}, of which only {layer_of(imported)} is for other packages"
        elif imported.split(".")[0] == "tests":
            yield f"{where}: tests do not ship"
        else:
            homes = FOREIGN.get(imported.split(".")[0])
            if homes is not None and not any(inside(module, home) for home in homes):
                yield f"{where}, which belongs to {' and '.join(homes) or 'the tests'}"


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_down_only(module: str) -> None:
    assert list(wrong_imports(module, MODULES[module])) == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("pipelines.engine.x", "from pipelines.asr import Segment", "must not know"),
        ("pipelines.engine.x", "import tokenizers", "belongs to"),
        ("pipelines.asr.x", "def f():\n    from pipelines import translation", "must not know"),
        ("pipelines.translation.x", "import pipelines.asr.audio.decode", "must not know"),
        ("pipelines.translation.x", "from pipelines.hub import download", "is for other"),
        ("pipelines.hub.x", "from pipelines.engine import Engine", "must not know"),
        ("pipelines.asr.x", "import rich.progress", "belongs to"),
        ("pipelines.asr.x", "from pipelines.engine.model import cache", "is for other"),
        ("pipelines.x", "import edgeapp", "must not know"),
        ("edgeapp.x", "from transformers import pipeline", "belongs to"),
        ("edgeapp.x", "from tests.fixtures import hub", "do not ship"),
    ],
)
def test_the_check_finds_what_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, source: str, complaint: str
) -> None:
    monkeypatch.setattr(f"{__name__}.REPOSITORY", tmp_path)
    file = tmp_path / "x.py"
    file.write_text(source)
    (found,) = wrong_imports(module, file)
    assert complaint in found


def test_everything_imported_is_a_declared_dependency() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    ours = [*project["dependencies"], *(d for name in extras for d in extras[name])]
    # "torch>=2; python_version > '3'" → "torch"
    declared = {
        "".join(c if c.isalnum() else "-" for c in d.split(";")[0].split(">")[0].split("=")[0])
        for d in ours
    }
    distributions = packages_distributions()
    missing = {}
    for file in MODULES.values():
        for line, imported in imports(file):
            name = imported.split(".")[0]
            if name in sys.stdlib_module_names or name in PACKAGES:
                continue
            dists = {d.lower().replace("_", "-").replace(".", "-") for d in distributions[name]}
            if not dists & {d.lower() for d in declared}:
                missing[name] = f"{file.relative_to(REPOSITORY)}:{line}"
    assert missing == {}


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_there(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    names = next(
        (
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ),
        None,
    )
    defined = [n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
    if names is None:
        assert not [n for n in defined if not n.startswith("_")], "public names, but no __all__"
        return
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith("_")]
    loaded = importlib.import_module(module)
    assert not [name for name in names if not hasattr(loaded, name)]


def test_what_other_modules_import_is_public() -> None:
    hidden = []
    for module, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module not in MODULES:
                continue
            home = importlib.import_module(node.module)
            for name in node.names:
                is_module = f"{node.module}.{name.name}" in MODULES
                if not is_module and name.name not in home.__all__:
                    hidden.append(f"{module} imports {name.name} from {node.module}")
    assert hidden == []


@pytest.mark.parametrize(
    "what",
    [
        "pipelines",
        "pipelines.errors",
        "pipelines.hub",
        "pipelines.asr",
        "edgeapp",
        "edgeapp.cli",
    ],
)
def test_an_import_costs_nothing_heavy(what: str) -> None:
    heavy = ("torch", "transformers", "gradio", "librosa", "numpy", "huggingface_hub", "av")
    code = f"import sys, {what}; print(*(m for m in {heavy!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []
