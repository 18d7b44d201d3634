"""Imports run one way and without circles, public names exist, and an import loads only what it
needs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.architecture import Tree, circles, drawing, syntax_of
from tests.call_path import CallPath, recording, sentence
from tests.conftest import REPOSITORY

PACKAGES = ("edgeapp", "pipelines")

TREE = Tree()
MODULES = TREE.modules


def test_no_rule_is_broken() -> None:
    assert TREE.broken() == []


def test_the_library_quotes_no_command_of_the_application() -> None:
    """Its errors are shown on the page and to programs too."""
    quoting = [
        path.relative_to(REPOSITORY)
        for path in (REPOSITORY / "pipelines").rglob("*.py")
        if "`edgeapp " in path.read_text(encoding="utf-8")
    ]
    assert quoting == []


def test_no_circles() -> None:
    assert TREE.circles() == []


def test_the_drawing_is_up_to_date() -> None:
    """`python -m tests.architecture --markdown` makes it anew."""
    page = (REPOSITORY / "assets/docs/architecture.md").read_text(encoding="utf-8")
    assert drawing(TREE) in page


@pytest.mark.slow
@pytest.mark.parametrize(("title", "call"), [("sentence", sentence), ("recording", recording)])
def test_the_call_paths_are_up_to_date(title: str, call: Callable[[], CallPath]) -> None:
    """`python -m tests.call_path --markdown` prints them anew. Those of the engine depend on the
    CPU and on its threads."""
    page = (REPOSITORY / "assets/docs/architecture.md").read_text(encoding="utf-8")
    block = page.partition(f"**One {title}")[2].split("```")[1]
    documented = {file for file in block.split() if file.endswith(".py")}
    gone_through = {file.removeprefix("pipelines/") for file in call().files}
    assert {file for file in documented ^ gone_through if not file.startswith("engine/")} == set()


def test_no_fixture_is_imported() -> None:
    """An imported fixture is a second one: it is set up once more, over what the first has set."""
    trees = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts): syntax_of(path)
        for path in sorted((REPOSITORY / "tests").rglob("*.py"))
    }
    fixtures = {
        (module, node.name)
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    imported = {
        f"{module} imports {name.name}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if (node.module, name.name) in fixtures
    }
    assert fixtures
    assert imported == set()


def test_circles_are_found() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c"]]


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
        ("pipelines.asr.x", "from pipelines.engine.model import kv_cache", "must not know"),
        ("pipelines.x", "import edgeapp", "must not know"),
        ("edgeapp.x", "from transformers import pipeline", "belongs to"),
        ("edgeapp.x", "from tests.fixtures import hub", "do not ship"),
    ],
)
def test_the_check_finds_what_it_should(
    tmp_path: Path, module: str, source: str, complaint: str
) -> None:
    file = tmp_path / "x.py"
    file.write_text(source)
    (found,) = TREE.wrong_imports(module, file)
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
        for line, imported in TREE.imports(file):
            name = imported.split(".")[0]
            if name in sys.stdlib_module_names or name in PACKAGES:
                continue
            # An extra that is not installed has the name of its module.
            found = distributions.get(name, [name])
            dists = {d.lower().replace("_", "-").replace(".", "-") for d in found}
            if not dists & {d.lower() for d in declared}:
                missing[name] = f"{file.relative_to(REPOSITORY)}:{line}"
    assert missing == {}


def test_public_names_are_there() -> None:
    wrong = []
    for module, file in MODULES.items():
        tree = syntax_of(file)
        defined = [n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
        names = public_names(file)
        if names is None:
            # A module inside a package says by underscores what is its own.
            inside = module not in TREE.packages
            public = [name for name in defined if not (inside or name.startswith("_"))]
            wrong += [f"{module}: {name} is public, but there is no __all__" for name in public]
            continue
        wrong += [f"{module}: {name} twice" for name in set(names) if names.count(name) > 1]
        private = [name for name in names if name.startswith("_") and not name.endswith("__")]
        wrong += [f"{module}: {name} is private" for name in private]
        # A package that imports its names when they are asked for has to be asked.
        if "__getattr__" in defined or file.with_suffix(".pyi").exists():
            names = [name for name in names if name != "__version__"]
            loaded = importlib.import_module(module)
            wrong += [f"{module}: no {name}" for name in names if not hasattr(loaded, name)]
        else:
            there = set(bound(tree.body))
            wrong += [f"{module}: no {name}" for name in names if name not in there]
    assert wrong == []


def public_names(file: Path) -> list[str] | None:
    """`__all__` of a module, None where it has none; of a lazy package the names in its stub."""
    stub = file.with_suffix(".pyi")
    if stub.exists():
        imports = (node for node in syntax_of(stub).body if isinstance(node, ast.ImportFrom))
        return [name.name for node in imports for name in node.names] + ["__version__"]
    lists = [
        ast.literal_eval(node.value)
        for node in syntax_of(file).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    if not lists:
        return None
    (names,) = lists
    return list(names)


def bound(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements of a module bind, also inside `if`, `try` and `with`.

    Read, not imported: the kernels' files compile when they are imported.
    """
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (name.asname or name.name.split(".")[0] for name in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            stored = (n for n in ast.walk(node) if isinstance(n, ast.Name))
            yield from (n.id for n in stored if isinstance(n.ctx, ast.Store))
        else:
            for inner in ("body", "orelse", "finalbody"):
                yield from bound(getattr(node, inner, []))
            for handler in getattr(node, "handlers", []):
                yield from bound(handler.body)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b\nfrom c import d as e", ["a", "e"]),
        ("x = y\nu: int\nz: int = 1\n(v, w) = x", ["x", "z", "v", "w"]),
        ("if x:\n    a = 1\nelse:\n    def b(): c = 1", ["a", "b"]),
        ("try:\n    import a\nexcept ImportError:\n    a = None", ["a", "a"]),
    ],
)
def test_bound_names_are_found(source: str, names: list[str]) -> None:
    assert list(bound(ast.parse(source).body)) == names


def test_what_other_modules_import_is_public() -> None:
    hidden = []
    public = {module: public_names(file) for module, file in MODULES.items()}
    for module, file in MODULES.items():
        for node in ast.walk(syntax_of(file)):
            if not isinstance(node, ast.ImportFrom) or node.module not in MODULES:
                continue
            for name in node.names:
                is_module = f"{node.module}.{name.name}" in MODULES
                named = public[node.module]
                is_public = not name.name.startswith("_") if named is None else name.name in named
                if not is_module and not is_public:
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
