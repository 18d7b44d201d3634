"""Options, results and events of reading a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipelines.options import Range, check_fields, described, option

Box = tuple[int, int, int, int]
"""(left, top, right, bottom) in pixels; right and bottom are exclusive."""


MAX_PIXELS = 100_000_000  # a page of A3 at 600 dpi has 70 million
_COUNT = Range(1, whole=True)
_PILLOWS_LIMIT = 178_956_970  # 2 * PIL.Image.MAX_IMAGE_PIXELS, which is the process's


@described
@dataclass(frozen=True)
class ReadOptions:
    """How a picture is read."""

    lines: Literal["auto", "find", "whole"] = option(
        "auto",
        '"find": each line of text that is found is read by itself. "whole": the picture is one '
        'input. "auto": by the model, of which TrOCR\'s read lines and others whole pictures.',
        choices=("auto", "find", "whole"),
        group="Reading",
    )
    prompt: str | None = option(
        None,
        'Text that the output begins with: the task of a Donut model ("<s_cord-v2>"), or the '
        "beginning of a caption. It is not a part of the result.",
        group="Reading",
    )
    beam_size: int = option(1, "Beams of the search; 1 is greedy.", range=_COUNT)
    max_new_tokens: int | None = option(
        None, "Tokens of a line at most; None for the limit of the model.", range=_COUNT
    )
    batch_size: int = option(8, "Lines that are decoded in parallel.", range=_COUNT)
    priority: int = option(2, "Of the generations, on a shared engine.", range=Range(whole=True))
    max_pixels: int = option(
        MAX_PIXELS,
        "Larger pictures are refused, before they are decoded. Decoding takes up to 16 bytes for "
        "each pixel. At most 178 million, which Pillow decodes.",
        range=Range(1, _PILLOWS_LIMIT, whole=True),
        group="Reading",
    )

    def __post_init__(self) -> None:
        check_fields(self)


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
