"""The rules of the source tree, read from its imports.

python -m tests.architecture              # layers, files of each, circles and broken rules
python -m tests.architecture --markdown   # the drawing in assets/docs/architecture.md

Exit code 1 when a rule is broken. Imports inside functions and those for types count as well.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

__all__ = ["ALLOWED", "LAYERS", "Tree", "circles", "drawing", "main", "syntax_of"]

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("edgeapp", "pipelines")

# The layers, from the top. A module belongs to the longest prefix of its name. Each layer may
# import the layers named beside it, and itself.
_LEAVES = {"pipelines.errors", "pipelines.notices", "pipelines.json_files"}
_TEXT = _LEAVES | {
    "pipelines.decoding_choices",
    "pipelines.languages",
    "pipelines.loading",
    "pipelines.options",
    "pipelines.processors",
    "pipelines.text",
    "pipelines.tokenizer_json",
}
ALLOWED: Mapping[str, set[str]] = {
    # The application: the public names of the library only.
    "edgeapp": {
        "pipelines",
        "pipelines.asr",
        "pipelines.engine",
        "pipelines.errors",
        "pipelines.hub",
        "pipelines.languages",
        "pipelines.loading",
        "pipelines.notices",
        "pipelines.reading",
        "pipelines.options",
        "pipelines.subtitles",
        "pipelines.text_language",
        "pipelines.translation",
    },
    # The package itself only hands out names, when asked for them.
    "pipelines": {"pipelines.openmp"},
    "pipelines.asr": {"pipelines.engine", "pipelines.hub", "pipelines.subtitles", *_TEXT},
    "pipelines.reading": {"pipelines.engine", "pipelines.hub", *_TEXT},
    "pipelines.translation": {"pipelines.engine", "pipelines.families", "pipelines.hub", *_TEXT},
    "pipelines.hub": {
        "pipelines.families",
        "pipelines.formats",
        "pipelines.languages",
        *_LEAVES,
    },
    # The engine's own layers.
    "pipelines.engine": {
        "pipelines.engine.decoding",
        "pipelines.engine.backends",
        "pipelines.engine.model",
        "pipelines.engine.kernels",
        "pipelines.engine.state",
        "pipelines.engine.weights",
        "pipelines.families",
        "pipelines.daemon_threads",
        "pipelines.malloc",
        *_LEAVES,
    },
    "pipelines.engine.decoding": {
        "pipelines.engine.backends",
        "pipelines.engine.model",
        "pipelines.engine.state",
        "pipelines.daemon_threads",
        *_LEAVES,
    },
    "pipelines.engine.backends": {
        "pipelines.engine.model",
        "pipelines.engine.kernels",
        "pipelines.engine.state",
        "pipelines.engine.weights",
        "pipelines.families",
        "pipelines.malloc",
        *_LEAVES,
    },
    "pipelines.engine.model": {
        "pipelines.engine.kernels",
        "pipelines.engine.state",
        "pipelines.engine.weights",
        "pipelines.families",
        *_LEAVES,
    },
    "pipelines.engine.kernels": {
        "pipelines.engine.state",
        "pipelines.engine.weights",
        "pipelines.families",
        "pipelines.daemon_threads",
        "pipelines.malloc",
        *_LEAVES,
    },
    "pipelines.engine.state": set(_LEAVES),
    "pipelines.engine.weights": {"pipelines.formats", "pipelines.families", *_LEAVES},
    # What a family of models is, as data: for the engine, the hub and the tokenizers.
    "pipelines.families": {"pipelines.errors", "pipelines.json_files"},
    # Files of other programs, which the hub finds and the engine reads.
    "pipelines.formats": {"pipelines.languages", "pipelines.text", *_LEAVES},
    "pipelines.languages": set(_LEAVES),
    "pipelines.text_language": {"pipelines.languages"},
    "pipelines.decoding_choices": {"pipelines.errors"},
    "pipelines.loading": {"pipelines.errors"},
    "pipelines.options": {"pipelines.errors"},
    "pipelines.openmp": set(),
    "pipelines.subtitles": {"pipelines.errors"},
    "pipelines.text": set(),
    "pipelines.malloc": set(),
    "pipelines.daemon_threads": set(),
    "pipelines.notices": {"pipelines.errors"},
    "pipelines.processors": {"pipelines.errors"},
    "pipelines.json_files": {"pipelines.errors"},
    "pipelines.tokenizer_json": {"pipelines.errors", "pipelines.json_files"},
    "pipelines.errors": set(),
}
LAYERS = tuple(ALLOWED)

# The entry points, which stand above all other files of the application.
_ENTRIES = ("edgeapp.cli", "edgeapp.__main__")

# Packages whose inside other layers may import; of the others only the package itself.
_OPEN = (
    "pipelines.engine.decoding",
    "pipelines.engine.backends",
    "pipelines.engine.model",
    "pipelines.engine.kernels",
    "pipelines.engine.state",
    "pipelines.engine.weights",
    "pipelines.families",
)

# What is imported from outside, and by which packages only.
FOREIGN: Mapping[str, tuple[str, ...]] = {
    # For families that are not native, and what `edgeapp models verify` compares with.
    "transformers": ("pipelines.engine", "pipelines.processors"),
    "PIL": ("pipelines.reading",),
    # The oracle of the tests.
    "whisper": (),
    "librosa": ("edgeapp.server",),
    # The terminal is the application's.
    "rich": ("edgeapp",),
    "typer": ("edgeapp",),
    "gradio": ("edgeapp",),
    # Ids in, ids out: the engine reads no text and no sound.
    "torch": (
        "pipelines.engine",
        "pipelines.asr",
        "pipelines.translation",
        "pipelines.formats",  # openai-whisper's .pt
        "edgeapp.bench",
        "edgeapp.doctor",  # reports its version, and whether it reaches the GPU
    ),
    "numba": ("pipelines.engine.kernels",),
    "llvmlite": ("pipelines.engine.kernels",),
    "tokenizers": ("pipelines.asr", "pipelines.translation"),
    "sentencepiece": ("pipelines.translation",),
    "av": ("pipelines.asr", "edgeapp"),
    "huggingface_hub": ("pipelines.hub",),
}

# Words that do not belong to a layer: (layer, pattern, files where they may stand).
_FORBIDDEN_WORDS = (
    ("pipelines.engine", re.compile(r"whisper", re.IGNORECASE), ()),
    ("pipelines.engine", re.compile(r"\blive\b", re.IGNORECASE), ()),
    # Flags are the command line's: it adds the hint to an error of the library.
    # Those of pip are for pip.
    ("pipelines", re.compile(r"(?<![\w-])--[a-z][a-z-]+"), ("hub/wheels.py",)),
)


@dataclass(frozen=True)
class Tree:
    """The modules of a source tree and what they import of each other."""

    root: Path = REPOSITORY

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Dotted name → file, of every module that ships."""
        found = {}
        for package in PACKAGES:
            for file in sorted((self.root / package).rglob("*.py")):
                parts = file.relative_to(self.root).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
        return found

    @cached_property
    def packages(self) -> set[str]:
        """The names of those that are folders."""
        return {name for name, file in self.modules.items() if file.name == "__init__.py"}

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """Module → the modules of this tree that it imports."""
        return {
            name: {to for _, to in self.imports(file) if to in self.modules and to != name}
            for name, file in self.modules.items()
        }

    def imports(self, file: Path) -> Iterator[tuple[int, str]]:
        """(line, module) of each import in a file, also inside functions and for types."""
        for node in ast.walk(syntax_of(file)):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, name.name) for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file}:{node.lineno}: imports are absolute here"
                assert node.module is not None
                for name in node.names:
                    inner = f"{node.module}.{name.name}"
                    yield node.lineno, inner if inner in self.modules else node.module

    def siblings(self) -> Iterator[tuple[str, dict[str, set[str]]]]:
        """(package, graph of what lies in it): its modules, and its packages as one node each."""
        for parent in sorted(self.packages):
            inside: dict[str, set[str]] = defaultdict(set)
            for name, found in self.graph.items():
                here = _child(parent, name)
                for to in found:
                    there = _child(parent, to)
                    if here and there and here != there:
                        inside[here].add(there)
            yield parent, inside

    def circles(self) -> list[str]:
        """Groups of files, or of packages, that import each other."""
        found = [" ↔ ".join(sorted(group)) for group in circles(self.graph)]
        for parent, inside in self.siblings():
            for group in circles(inside):
                line = " ↔ ".join(sorted(group))
                if line not in found:
                    found.append(f"in {parent}: {line}")
        return found

    def broken(self) -> list[str]:
        """One line for each import, or word, that a rule forbids."""
        found = []
        for name, file in self.modules.items():
            found += self.wrong_imports(name, file)
            found += self.wrong_words(name, file)
        return found

    def wrong_imports(self, name: str, file: Path) -> Iterator[str]:
        """What a module imports against the rules."""
        layer = layer_of(name)
        for line, to in self.imports(file):
            where = f"{self._shown(file)}:{line} imports {to}"
            top = to.split(".")[0]
            if top == "tests":
                yield f"{where}: tests do not ship"
            elif top not in PACKAGES:
                homes = FOREIGN.get(top)
                if homes is not None and not any(_inside(name, home) for home in homes):
                    yield f"{where}, which belongs to {' and '.join(homes) or 'the tests'}"
            elif layer_of(to) not in (layer, *ALLOWED[layer]):
                yield f"{where}, which {layer} must not know"
            elif layer_of(to) != layer and to != layer_of(to) and not _open(to, layer):
                yield f"{where}, of which only {layer_of(to)} is for other packages"

    def wrong_words(self, name: str, file: Path) -> Iterator[str]:
        """Words in a module that belong to another layer."""
        for layer, pattern, allowed in _FORBIDDEN_WORDS:
            if not _inside(name, layer) or str(file).endswith(allowed or "\0"):
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                if match := pattern.search(line):
                    yield f"{self._shown(file)}:{number}: {match[0]!r} in {layer}"

    def _shown(self, file: Path) -> str:
        return str(file.relative_to(self.root)) if file.is_relative_to(self.root) else file.name


@cache
def syntax_of(file: Path) -> ast.Module:
    """The syntax tree of a file, which is read once."""
    return ast.parse(file.read_text(encoding="utf-8"))


def _open(to: str, layer: str) -> bool:
    """Whether a layer may import what lies inside another one."""
    inner = any(_inside(to, package) for package in _OPEN)
    # The package `pipelines` names the homes of what it hands out.
    return layer == "pipelines" or (inner and _inside(layer, "pipelines.engine"))


def layer_of(module: str) -> str:
    """The layer that a module belongs to."""
    return max((layer for layer in LAYERS if _inside(module, layer)), key=len)


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _child(parent: str, module: str) -> str | None:
    if not module.startswith(f"{parent}."):
        return None
    return f"{parent}.{module.removeprefix(f'{parent}.').split('.')[0]}"


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected components of two nodes or more (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(group)

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(graph) + 100))
    for node in graph:
        if node not in index:
            visit(node)
    return found


def drawing(tree: Tree) -> str:
    """The packages and their imports as a Mermaid drawing, arrows from who imports to what."""
    nodes: dict[str, int] = defaultdict(int)
    edges: set[tuple[str, str]] = set()
    for name, found in tree.graph.items():
        nodes[_place(tree, name)] += 1
        for to in found:
            pair = _place(tree, name), _place(tree, to)
            if pair[0] != pair[1]:
                edges.add(pair)
    lines = ["flowchart TD"]
    for node, count in sorted(nodes.items()):
        files = "1 file" if count == 1 else f"{count} files"
        lines.append(f'    {node.replace(".", "_")}["{node}<br>{files}"]')
    for start, end in sorted(edges):
        lines.append(f"    {start.replace('.', '_')} --> {end.replace('.', '_')}")
    return "\n".join(lines)


def _place(tree: Tree, module: str) -> str:
    """The node that a module is drawn in: its package, of the engine one level deeper.

    The single files of a top package that everything below it shares (errors, settings) are a
    node of their own: the package itself stands above its subpackages.
    """
    package = module if module in tree.packages else module.rpartition(".")[0]
    if package in PACKAGES and module not in (package, *_ENTRIES):
        return f"{package}.shared"
    depth = 3 if _inside(package, "pipelines.engine") else 2
    return ".".join(package.split(".")[:depth])


def main() -> int:
    """Print the layers and what is wrong with them."""
    parser = argparse.ArgumentParser(prog="python -m tests.architecture")
    parser.add_argument("--markdown", action="store_true", help="print the drawing")
    tree = Tree()
    if parser.parse_args().markdown:
        print(drawing(tree))
        return 0
    counts: dict[str, list[int]] = {layer: [0, 0] for layer in LAYERS}
    for name, file in tree.modules.items():
        count = counts[layer_of(name)]
        count[0] += 1
        count[1] += len(file.read_text(encoding="utf-8").splitlines())
    width = max(map(len, LAYERS))
    for layer, (files, lines) in counts.items():
        below = ", ".join(sorted(name.removeprefix("pipelines.") for name in ALLOWED[layer]))
        print(f"{layer:{width}}  {files:3} files {lines:6,} lines  → {below or 'nothing'}")
    wrong = [*(f"circle: {each}" for each in tree.circles()), *tree.broken()]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(wrong)} broken rules" if wrong else "no circles, no broken rules")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
