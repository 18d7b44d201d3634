"""The manual page and the table of options in the documentation, made of the command line.

    python assets/packaging/man_page.py            # writes edgeapp.1 and command-line.md
    man -l assets/packaging/edgeapp.1

A test compares the files with what this script would write.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

import pipelines
from edgeapp.cli import app
from edgeapp.commands.options.declared import flags_of
from edgeapp.settings import TABLES, Settings

PAGE = Path(__file__).with_name("edgeapp.1")
DOCUMENT = Path(__file__).parents[1] / "docs" / "command-line.md"
_TABLE = re.compile("(?<=<!-- made by man_page.py -->\n).*?(?=<!-- end -->)", re.DOTALL)

_VARIABLES = (
    ("EDGEAPP_CONFIG", "The settings file, instead of config.toml."),
    ("EDGEAPP_KERNELS", "torch: no compiled kernels; a folder: they are kept there."),
    ("EDGEAPP_TOKEN_OVER_HTTP", "1: the hub's token is sent over plain http too."),
    ("HF_ENDPOINT", "Address of the hub, instead of https://huggingface.co."),
    ("HF_HUB_CACHE", "Folder of the downloaded models."),
)
_FILES = (
    ("config.toml", "Settings, in the configuration folder of the platform (~/.config/edgeapp)."),
    ("history.db", "Past sessions of the page, in the data folder (~/.local/share/edgeapp)."),
    ("jobs.db", "Finished work of the last 30 days, in the data folder."),
    ("kernels/", "Compiled kernels, in the cache folder (~/.cache/edgeapp)."),
)


def page() -> str:
    """The manual page in roff."""
    root = typer.main.get_command(app)
    lines = [
        '.\\" Made by assets/packaging/man_page.py of the help; do not edit.',
        '.TH EDGEAPP 1 "" "" "User Commands"',
        ".SH NAME",
        f"edgeapp \\- {text(root.help).rstrip('.')}",
        ".SH SYNOPSIS",
        ".B edgeapp",
        "COMMAND [OPTIONS] [ARGUMENTS]",
        ".SH COMMANDS",
    ]
    for name, command in commands(root, "edgeapp"):
        lines += section(name, command)
    lines.append(".SH ENVIRONMENT")
    for field in fields(Settings):
        if field.name not in TABLES:
            variable = f"EDGEAPP_{field.name.upper()}"
            lines += [".TP", f".B {variable}", f"The setting {text(field.name)}."]
    for name, meaning in _VARIABLES:
        lines += [".TP", f".B {name}", text(meaning)]
    lines.append(".SH FILES")
    for name, meaning in _FILES:
        lines += [".TP", f".I {text(name)}", text(meaning)]
    lines += [".SH EXIT STATUS", text(root.epilog.removeprefix("Exit codes: "))]
    return "\n".join(lines) + "\n"


def commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """All commands below a group with their full names, depth first."""
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def section(name: str, command: Any) -> list[str]:
    """The lines of one command: synopsis, description, arguments and options."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    shown = " ".join(argument.name.upper() for argument in arguments)
    lines = [f".SS {text(f'{name} [OPTIONS] {shown}'.rstrip())}"]
    for number, paragraph in enumerate(inspect.cleandoc(command.help or "").split("\n\n")):
        lines += [".PP"] * bool(number) + [text(" ".join(paragraph.split()))]
    context = typer.Context(command, info_name=name)
    for parameter in (*arguments, *options):
        names, meaning = parameter.get_help_record(context)
        if parameter in arguments:
            names = (parameter.metavar or parameter.name).upper()
        lines += [".TP", f".B {text(names)}", text(" ".join(meaning.split()))]
    return lines


def document() -> str:
    """Return the documentation of the command line with its table of options."""
    lines = ["| flag | of | in the settings file | |", "|---|---|---|---|"]
    root: Any = typer.main.get_command(app)
    rows: dict[tuple[str, str, str], str] = {}
    for command, options in TABLES.items():
        shown = {each.name: each for each in root.commands[command].params}
        for flag in flags_of(getattr(pipelines, options)):
            field = f"{flag.within}.{flag.field.name}" if flag.within else flag.name
            names = ", ".join(f"`{name}`" for name in flag.names)
            own = shown[flag.name]
            found = [
                name
                for name, other in root.commands.items()
                for each in other.params
                if (each.opts, getattr(each, "help", None)) == (own.opts, own.help)
            ]
            rows[names, field, " ".join(own.help.split())] = ", ".join(found)
    for (names, field, meaning), found in rows.items():
        lines.append(f"| {names} | {found} | `{field}` | {meaning} |")
    table = "\n".join(lines) + "\n"
    return _TABLE.sub(lambda _: table, DOCUMENT.read_text("utf-8"))


def text(plain: str | None) -> str:
    """Plain text for roff: backslashes and hyphens escaped, no line that starts a macro."""
    escaped = (plain or "").replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "80")
    PAGE.write_text(page(), encoding="utf-8")
    DOCUMENT.write_text(document(), encoding="utf-8")
