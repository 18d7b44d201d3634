"""What a model of another program is, in transformers' terms."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ForeignModel"]


@dataclass(frozen=True)
class ForeignModel:
    """A model of another program: its weights, and the files that transformers has beside them.

    Attributes:
        tool: The program whose format it is, for messages.
        weights: The file of weights.
        link: The name of a link to it that `open_tensors` knows.
        kind: The kind of number that most weights are stored in.
        files: Name → content: an object for a JSON file, or a text.
        links: Name → a file of the model that is used as it is.
    """

    tool: str
    weights: Path
    link: str
    kind: str
    files: dict[str, Any]
    links: dict[str, Path] = field(default_factory=dict)
