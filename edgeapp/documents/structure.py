"""Files with a structure that translation line by line would spoil, by their names and contents."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["STRUCTURED_SUFFIXES", "structure_of"]

STRUCTURED_SUFFIXES = frozenset(
    ".adoc .arb .asciidoc .bib .c .cfg .cls .conf .cpp .cs .css .csv .docx .doc .dtd .env .epub "
    ".fb2 .fodt .go .gpx .h .hpp .ics .idml .inc .ini .ipynb .java .js .json .json5 .jsonc .jsonl "
    ".jsx .kml .kt .lua .m .markdown .md .mdx .mo .ndjson .odp .ods .odt .org .pdf .php .pl .plist "
    ".po .pot .ppt .pptx .properties .ps1 .py .r .rb .rc .resjson .resw .resx .rs .rss .rst .rtf "
    ".sbv .scss .sh .sql .srv1 .srv2 .srv3 .stl .strings .stringsdict .svg .swift .tex .textile "
    ".tmx .toml .ts .tsv .tsx .usf .vcf .vue .xaml .xcstrings .xlf .xliff .xls .xlsx .xml .xsl "
    ".yaml .yml".split()
)
"""Suffixes of files with structure that line by line translation would spoil."""

_PLAIN_SUFFIXES = ("", ".txt", ".text", ".log")
_STRING = r'"(?:[^"\\\n]|\\.)*"'

# What a file begins with, whatever its name is. A text may begin with <b> or {name}, too.
_BEGINNINGS = {
    "XML or HTML": re.compile(
        r"\s*(?:<\?xml\b|<!doctype\b|<(?:html|svg|plist|resources|root|ts|xliff|timedtext|transcript"
        r"|smil|rss|feed|urlset|tmx)\b[^<>]*>)",
        re.IGNORECASE,
    ),
    "JSON": re.compile(
        rf"\s*(?:\{{\s*{_STRING}\s*:|\[\s*(?:\{{\s*{_STRING}\s*:|{_STRING}\s*[,\]]\s*(?:\Z|[\"\n])))"
    ),
    "a table of strings": re.compile(
        rf"(?:\s|/\*.*?\*/|//[^\n]*\n)*{_STRING}\s*=\s*{_STRING}\s*;", re.DOTALL
    ),
    "gettext messages": re.compile(r'(?:\s|#[^\n]*\n)*msg(?:id|ctxt)\s+"'),
    "YAML": re.compile(r"---[ \t]*\r?\n(?:#[^\n]*\n)*[\w-]+:(?:\s|$)"),
    "RTF": re.compile(r"\{\\rtf"),
    "LaTeX": re.compile(r"(?:\s|%[^\n]*\n)*\\documentclass\b"),
    "PDF": re.compile(r"%PDF-"),
    "a script": re.compile(r"#!\s*/"),
    "timed lines": re.compile(r"\s*(?:\d{1,2}:\d\d:\d\d[:=,].*\s+)\d{1,2}:\d\d:\d\d[:=,]"),
}
# The same for names that do not promise plain text.
_OTHER_BEGINNINGS = {
    "XML or HTML": re.compile(r"\s*<[a-z!?/][^<>]*>", re.IGNORECASE),
    "JSON": re.compile(r'\s*[\[{]\s*["\[{\]}]'),
}
# In what promises plain text, a name has no space: "Dear Anna = Anna" is one of words.
_NAMED_SETTING = re.compile(r"\s*(?:\[[\w. -]+\]|[;#!].*|[\w.\-]{1,80}\s*=.*)?\s*")
_SETTING = re.compile(r"\s*(?:\[[^\]]+\]|[;#!].*|[\w.\-/ ]{1,80}?\s*=.*)?\s*")


def structure_of(name: str, head: str) -> str | None:
    """Return what structure a text has, in words for messages, or None.

    Args:
        name: Name of the file; "" where there is none, as of a pipe.
        head: Its beginning.
    """
    plain = Path(name).suffix.lower() in _PLAIN_SUFFIXES
    for patterns in (_BEGINNINGS, {} if plain else _OTHER_BEGINNINGS):
        for structure, begins in patterns.items():
            if begins.match(head):
                return structure
    lines = head.splitlines()
    complete = lines if head.endswith("\n") else lines[:-1] or lines
    settings = sum("=" in line for line in complete)
    pattern, least = (_NAMED_SETTING, 2) if plain else (_SETTING, 1)
    if settings >= least and all(map(pattern.fullmatch, complete)):
        return "settings"
    return None
