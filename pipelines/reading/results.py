"""Options, results and events of reading a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipelines.errors import OptionError

__all__ = [
    "MAX_PIXELS",
    "Box",
    "LineDelta",
    "LineDone",
    "LinesFound",
    "PictureText",
    "ReadEvent",
    "ReadLine",
    "ReadOptions",
]

Box = tuple[int, int, int, int]
"""(left, top, right, bottom) in pixels; right and bottom are exclusive."""


MAX_PIXELS = 100_000_000  # a page of A3 at 600 dpi has 70 million
_PILLOWS_LIMIT = 178_956_970  # 2 * PIL.Image.MAX_IMAGE_PIXELS, which is the process's


@dataclass(frozen=True)
class ReadOptions:
    """How a picture is read.

    Attributes:
        lines: "find": each line of text that is found is read by itself. "whole": the picture is
            one input. "auto": by the model, of which TrOCR's read lines and others whole pictures.
        prompt: Text that the output begins with: the task of a Donut model ("<s_cord-v2>"), or the
            beginning of a caption. It is not a part of the result.
        beam_size: Beams of the search; 1 is greedy.
        max_new_tokens: Tokens of a line at most; None for the limit of the model.
        batch_size: Lines that are decoded in parallel.
        priority: Of the generations, on a shared engine.
        max_pixels: Larger pictures are refused, before they are decoded. Decoding takes up to 16
            bytes for each pixel. At most 178 million, which Pillow decodes.

    Raises:
        OptionError: A value is out of its range.
    """

    lines: Literal["auto", "find", "whole"] = "auto"
    prompt: str | None = None
    beam_size: int = 1
    max_new_tokens: int | None = None
    batch_size: int = 8
    priority: int = 2
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if self.lines not in ("auto", "find", "whole"):
            raise OptionError(f"lines must be auto, find or whole, not {self.lines!r}")
        for name in ("beam_size", "batch_size", "max_new_tokens", "max_pixels"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} must be 1 or more, not {value}")
        if self.max_pixels > _PILLOWS_LIMIT:
            raise OptionError(f"max_pixels must be {_PILLOWS_LIMIT} or less, not {self.max_pixels}")


@dataclass(frozen=True)
class ReadLine:
    """A line of text, or the text of a whole picture.

    Attributes:
        text: The text.
        box: Where it is in the picture.
        score: Mean log-probability of its tokens.
        tokens: Their ids.
        complete: The model has ended it; otherwise it was cut at the limit of tokens.
    """

    text: str
    box: Box
    score: float
    tokens: tuple[int, ...]
    complete: bool


@dataclass(frozen=True)
class LinesFound:
    """The first event: where the lines are, in reading order."""

    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class LineDelta:
    """Text of the current line, in whole characters. It follows the text so far."""

    text: str


@dataclass(frozen=True)
class LineDone:
    """A line is complete; its text replaces the deltas before."""

    line: ReadLine


ReadEvent: TypeAlias = LinesFound | LineDelta | LineDone


@dataclass(frozen=True)
class PictureText:
    """The text of a picture.

    Attributes:
        lines: Its lines, from top to bottom.
    """

    lines: tuple[ReadLine, ...]

    @property
    def text(self) -> str:
        """The lines, one below the other."""
        return "\n".join(line.text for line in self.lines)
