"""The texts of the page, as its files have them. `python -m tests.page_texts` prints those that the
tables in edgeapp/ui/static/languages lack, and those that no file has any more."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from edgeapp.ui import STATIC
from edgeapp.ui.page import TABS

__all__ = ["TABLES", "error_texts", "page_texts", "placeholders", "server_texts", "stray_texts"]

TABLES = sorted((STATIC / "languages").glob("*.json"))
ROOT = STATIC.parents[2]
TRANSLATED_PAGES = (*(label.lower() for label in TABS), "view", "login", "enter", "ended")
ATTRIBUTES = {"aria-label", "title", "placeholder"}
# Names and examples, which are the same in all languages.
UNTRANSLATED = {"EdgeApp", "A−", "A+", "small.en", "#de"}

_STRING = r'"((?:[^"\\]|\\.)*)"'
_TEXT = re.compile(rf"\bt\(\s*{_STRING}")
_PLURAL = re.compile(rf"\bplural\(\s*[^\"]*?{_STRING},\s*{_STRING}")
_CONTENT = re.compile(rf"\bcontent:\s*{_STRING}")
# A capital, small letters, and either a second word or the end.
_WORDS = re.compile(r"[“(]?[A-Z][a-z]+(?:[ ,.:;…-].*)?", re.DOTALL)
_LITERAL = re.compile(rf"(?<![\w/]){_STRING}|`((?:[^`\\]|\\.)*)`")
# Names that browsers and Gradio give, not texts.
_NAMES = re.compile(
    r"Arrow(Left|Right|Up|Down)|Backspace|Enter|Esc|Escape|End|Home|Tab|Files|GET|Highlight|Markdown"
    r"|Not\w+Error|AbortError|PUT|POST|EdgeApp|Word \(docx\)"
)


def page_texts() -> dict[str, bool]:
    """The English texts of the page → whether the text has plural forms."""
    texts = dict.fromkeys(TABS, False)
    for name in TRANSLATED_PAGES:
        texts |= dict.fromkeys(_html_texts(STATIC / f"{name}.html"), False)
    for path in _modules():
        script = path.read_text("utf-8")
        texts |= {json.loads(f'"{text}"'): False for text in _TEXT.findall(script)}
        texts |= {json.loads(f'"{other}"'): True for _, other in _PLURAL.findall(script)}
    return texts


def stray_texts() -> list[str]:
    """What looks like a text for users in scripts and style sheets, and is not translated."""
    found = [
        f"{path.relative_to(STATIC)}: {text}"
        for path in sorted(STATIC.rglob("*.css"))
        for text in _CONTENT.findall(path.read_text("utf-8"))
        if _WORDS.fullmatch(text) and not _NAMES.fullmatch(text)
    ]
    for path in _modules():
        script = re.sub(
            r"/\*.*?\*/|(?<![:\"'`\w])//[^\n]*", "", path.read_text("utf-8"), flags=re.S
        )
        script = _PLURAL.sub("", _TEXT.sub("", script))
        for plain, template in _LITERAL.findall(script):
            text = plain or re.sub(r"\$\{.*?\}", "X", template)
            if _WORDS.fullmatch(text) and not _NAMES.fullmatch(text):
                found.append(f"{path.relative_to(STATIC)}: {text}")
    return found


def server_texts(*folders: str) -> set[str]:
    """All texts of Python files, with {} for what is inserted."""
    texts: set[str] = set()
    for folder in folders:
        place = ROOT / folder
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    texts.add("".join(_part(value) for value in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(node.value)
    return texts


def error_texts(path: str, error: str) -> dict[str, str]:
    """The messages that a Python file raises as a kind of error → the function; {} for values."""
    functions = [
        node
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    return {
        _message(node.args[0]): function.name
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == error
    }


def _message(text: ast.expr) -> str:
    if isinstance(text, ast.JoinedStr):
        return "".join(_part(value) for value in text.values)
    assert isinstance(text, ast.Constant), ast.unparse(text)
    return str(text.value)


def placeholders(text: str) -> list[str]:
    """The names of what is inserted into a text, sorted."""
    return sorted(re.findall(r"\{(\w+)\}", text))


def _part(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else "{}"


def _modules() -> Iterator[Path]:
    return (path for path in sorted(STATIC.rglob("*.js")) if path.name != "texts.js")


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipped += tag in ("script", "style")
        self.found += [value or "" for name, value in attrs if name in ATTRIBUTES]

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.found.append(data)


def _html_texts(path: Path) -> list[str]:
    parser = _Texts()
    parser.feed(path.read_text("utf-8"))
    texts = [" ".join(text.split()) for text in parser.found]
    return [text for text in texts if re.search(r"[^\W\d_]", text) and text not in UNTRANSLATED]


def main() -> None:
    """Print what each table lacks, and what it has too much."""
    wanted = page_texts()
    for path in TABLES:
        table = json.loads(path.read_text("utf-8"))["page"]
        print(f"{path.name}: missing {json.dumps(sorted(wanted.keys() - table.keys()), indent=1)}")
        print(f"{path.name}: not used {json.dumps(sorted(table.keys() - wanted.keys()), indent=1)}")
    print("\n".join(["not translated:", *stray_texts()]))


if __name__ == "__main__":
    main()
