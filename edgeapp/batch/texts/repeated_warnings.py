"""Warnings about a text: the first of each kind as it comes, the others with their places."""

from __future__ import annotations

import re

from edgeapp.console import print_note
from edgeapp.exit_codes import named

__all__ = ["RepeatedWarnings"]

_EXCERPT = re.compile(r'^".*": ', re.DOTALL)
_LOST = re.compile(r"(?<=the translation lacks ).*")
_NUMBER = re.compile(r"\d+(, \d+)*")


class RepeatedWarnings:
    """Prints warnings about one input. A context manager, which ends with the counts.

    Two warnings are of one kind if they differ in the sentence that they quote, and in numbers.

    Args:
        name: The input.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._places: dict[str, list[str]] = {}  # kind → where it was seen again

    def add(self, warning: str, place: str = "") -> None:
        """Print a warning, or count it.

        Args:
            warning: One line, which may begin with the sentence in quotation marks.
            place: Where it is in the input, such as "line 3".
        """
        kind = _NUMBER.sub("…", _LOST.sub("…", _EXCERPT.sub("", warning)))
        if kind in self._places:
            self._places[kind].append(place)
            return
        self._places[kind] = []
        print_note(f"{self._name}, {place}: {warning}" if place else named(warning, self._name))

    def __enter__(self) -> RepeatedWarnings:
        return self

    def __exit__(self, *exc: object) -> None:
        self.print_counts()

    def print_counts(self) -> None:
        """Print how often each kind was seen again."""
        for warning, places in self._places.items():
            if places:
                print_note(f"{self._name}: {_counted(places)}: {warning}")


def _counted(places: list[str]) -> str:
    """How often, and where: "4 more (line 5, line 9-11)". Each place is named."""
    named = [(unit, int(number)) for unit, _, number in (p.rpartition(" ") for p in places if p)]
    runs: list[list[tuple[str, int]]] = []
    for unit, number in dict.fromkeys(named):
        if runs and runs[-1][-1] == (unit, number - 1):
            runs[-1].append((unit, number))
        else:
            runs.append([(unit, number)])
    shown = [
        f"{unit} {first}" + (f"-{run[-1][1]}" if len(run) > 1 else "")
        for run in runs
        for unit, first in run[:1]
    ]
    return f"{len(places):,} more" + (f" ({', '.join(shown)})" if shown else "")
