"""What an examination finds: one line each, with advice where something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Finding", "State", "as_object", "as_text", "healthy"]


class State(StrEnum):
    """ok; missing: something that can be added; broken: something does not work."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        area: What was examined, such as "GPU".
        state: Whether it works.
        text: What was found.
        advice: What to do; None where nothing has to be done.
    """

    area: str
    state: State
    text: str
    advice: str | None = None


_MARKS = {State.OK: "ok", State.MISSING: "--", State.BROKEN: "!!"}


def healthy(findings: Sequence[Finding]) -> bool:
    """Return whether nothing is broken."""
    return all(finding.state is not State.BROKEN for finding in findings)


def as_text(findings: Sequence[Finding]) -> str:
    """The findings as lines; the area is written at its first line only."""
    width = max((len(finding.area) for finding in findings), default=0)
    lines, area = [], ""
    for finding in findings:
        shown = finding.area if finding.area != area else ""
        area = finding.area
        lines.append(f"{_MARKS[finding.state]}  {shown:<{width}}  {finding.text}")
        if finding.advice is not None:
            lines.append(f"    {'':<{width}}  -> {finding.advice}")
    return "\n".join(lines)


def as_object(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings for JSON: {"healthy": …, "findings": […]}."""
    return {
        "healthy": healthy(findings),
        "findings": [asdict(finding) for finding in findings],
    }
