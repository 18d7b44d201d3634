"""Placeholders, addresses and amounts come out unchanged, or a warning names their line."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgeapp.cli import app

_SENTENCES = (
    "You have {} new messages.",
    "{} likes bread.",
    "Where is {}?",
    "We paid {} for the house, and it was too much.",
    "Please write to {} or {} today.",
    "I like bread.{}",
)
_KEPT = (
    "{name}",
    "{{count}}",
    "${user.id}",
    "%s",
    "%1$s",
    "%(total)d",
    "%.2f",
    "{0}",
    "{0,number}",
    "{0}%",
    "{{ name | title }}",
    "$t(key)",
    '$t(common:key.sub, {"count": 2})',
    "$name",
    "$(PATH)",
    "%{name}",
    "%<count>d",
    "%1",
    "%name%",
    ":name",
    "@:common.key",
    "@:{'key'}",
    "[[name]]",
    "__name__",
    "<%= name %>",
    "{% if x %}",
    "&nbsp;",
    "<x/>",
    '<x id="7"/>',
    "</b>",
    "https://example.org/a/b?c=d",
    "www.example.com",
    "example.net/path",
    "anna.b+c@example.co.uk",
)


def _amount(chance: random.Random) -> str:
    number = chance.randrange(1000, 10 ** chance.randint(4, 9))
    return chance.choice(
        (
            f"{number:,}",
            f"{number:,}.50",
            f"{number / 100:.2f}",
            f"{number}",
            f"{number:,}".replace(",", " "),
        )
    )


@pytest.mark.parametrize(
    "lines", [60, pytest.param(10_000, marks=[pytest.mark.campaign, pytest.mark.timeout(7200)])]
)
def test_none_is_lost_silently(lines: int, tmp_path: Path) -> None:
    chance = random.Random(lines)
    held: list[list[str]] = []
    texts = []
    for number in range(lines):
        sentence = _SENTENCES[number % len(_SENTENCES)]
        values = [
            _amount(chance) if chance.random() < 0.3 else chance.choice(_KEPT)
            for _ in range(sentence.count("{}"))
        ]
        held.append(values)
        texts.append(sentence.format(*values) + "\n")
    path, target = tmp_path / "app.txt", tmp_path / "app.de.txt"
    path.write_text("".join(texts), encoding="utf-8")
    command = ["translate", str(path), "-m", "demo-en-de", "--as-text", "-o", str(target)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.stderr
    named = _named_lines(result.stderr)
    translated = target.read_text(encoding="utf-8").splitlines()
    assert len(translated) == lines
    for number, (values, line) in enumerate(zip(held, translated, strict=True), start=1):
        digits = re.sub(r"[\s.,'’]", "", line)
        for value in values:
            kept = re.sub(r"[\s.,]", "", value) in digits if value[0].isdigit() else value in line
            assert kept or number in named, (number, value, line)


def _named_lines(messages: str) -> set[int]:
    """The lines that warnings name: "line 3", "line 5-9"."""
    named: set[int] = set()
    for first, last in re.findall(r"line (\d+)(?:-(\d+))?", messages):
        named |= set(range(int(first), int(last or first) + 1))
    return named
