"""What the documentation says is there: links, commands with their options, Python examples."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from edgeapp.cli import app
from pipelines.hub import assets_folder

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "assets/docs").glob("*.md"))]
COMMAND = typer.main.get_command(app)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "the end of a page"
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if link.startswith("http"):
            continue
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {link} does not exist"
        if heading:
            lines = target.read_text("utf-8").splitlines()
            anchors = [anchor(line) for line in lines if line.startswith("#")]
            assert heading in anchors, f"{page.name}: {link} names no heading"


def anchor(heading: str) -> str:
    """The anchor that a heading gets on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lstrip("# ").lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    lines = [line for _, code in _FENCE.findall(text) for line in code.splitlines()]
    lines += re.findall(r"^    (.*)$", text, re.MULTILINE)
    lines += re.findall(r"`([^`\n]+)`", text)
    for line in lines:
        if not is_command(line):
            continue
        command = re.split(r"\s{3,}", line.strip().removeprefix("$ "))[0]  # then a description
        if words := shlex.split(command, comments=True):
            check(words[1:], f"{page.name}: {line}")


def is_command(line: str) -> bool:
    return line.strip().removeprefix("$ ").startswith("edgeapp ")


def check(words: list[str], where: str) -> None:
    """Fail unless the command and its options exist."""
    command: Any = COMMAND
    while words and getattr(command, "commands", None) and not words[0].startswith(("-", "…")):
        if words[0].isupper():  # a placeholder
            return
        assert words[0] in command.commands, where
        command = command.commands[words.pop(0)]
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}
    unknown = [w for w in words if re.match(r"--?[a-z]", w) and w.partition("=")[0] not in known]
    assert not unknown, f"{where}: no option {unknown[0]}"


@pytest.mark.slow
def test_python_examples_run(tmp_path: Path) -> None:
    shutil.copy(assets_folder() / "samples" / "talk.flac", tmp_path)
    (tmp_path / "assets").symlink_to(ROOT / "assets")  # the README's are run in a checkout
    script = ""
    # Each in a namespace of its own, all in one process: importing torch takes longer than they do.
    for name in ("README.md", "assets/docs/python.md"):
        found = _FENCE.findall((ROOT / name).read_text("utf-8"))
        examples = [code for kind, code in found if kind == "python"]
        assert examples, name
        script += "".join(f"exec(compile({code!r}, {name!r}, 'exec'), {{}})\n" for code in examples)
        script += f"print({END!r})\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    *pages, rest = done.stdout.split(f"{END}\n")
    assert len(pages) == 2
    assert all("Wo ist der Bahnhof?" in page for page in pages)
    assert rest == ""
