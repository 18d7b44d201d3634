"""Pages of text, rendered with the fonts of Debian."""

from __future__ import annotations

import random
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

__all__ = ["FONTS", "TEXT", "page"]

_DEJAVU = Path("/usr/share/fonts/truetype/dejavu")
FONTS = [None, *sorted(path for path in _DEJAVU.glob("*.ttf") if "ExtraLight" not in path.name)]
TEXT = [
    "The quick brown fox",
    "jumps over the lazy dog.",
    "it is ill, i.e. minimal",
    "ÄÖÜ äöü 1,024",
]


def page(
    font: Path | None = None,
    size: int = 24,
    ink: str = "black",
    paper: str = "white",
    noise: float = 0.0,
    text: list[str] = TEXT,
) -> Image.Image:
    """A page with lines of text. font: None for the one that Pillow has; noise: the share of
    pixels that are a little darker or lighter."""
    face = ImageFont.load_default(size) if font is None else ImageFont.truetype(str(font), size)
    longest = max(face.getlength(line) for line in text)
    width = max(size * 18, round(longest) + 2 * size)
    image = Image.new("RGB", (width, round(size * 1.7) * (len(text) + 1)), paper)
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(text):
        draw.text((size, round(size * (0.8 + 1.7 * number))), line, fill=ink, font=face)
    generator = random.Random(0)
    for _ in range(round(noise * image.width * image.height)):
        at = generator.randrange(image.width), generator.randrange(image.height)
        shade = generator.randrange(-25, 25)
        image.putpixel(at, tuple(max(0, min(255, value + shade)) for value in image.getpixel(at)))
    return image
