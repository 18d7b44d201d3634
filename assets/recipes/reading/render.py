"""Draws lines of text as print, disguises them as scans, and fits them into the model's input.

    python assets/recipes/reading/render.py --data ../shared/data --fonts /usr/share/fonts --out DIR

writes test lines of the faces held out as pictures with their text, for evaluate.py and to look at.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from faces import Faces, advance, font
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from texts import Texts

HEIGHT, WIDTH = 32, 768  # pixels of the model's input
LONGEST = 48  # characters of a test line
_SIZES = (13, 16, 20, 26, 36)  # pixels of the em; few, for opening a font takes long
_SCAN_SMALLEST = 18  # of a test scan: 10 points at 150 dpi have 21

Pixels = NDArray[np.float32]
"""A gray line [height, width], 0 is black and 1 is white."""


@dataclass(frozen=True)
class Line:
    """A drawn line.

    Attributes:
        image: A gray picture; while it is drawn, where ink is (255).
        edges: Where each character begins and the last one ends, in pixels from the left.
    """

    image: Image.Image
    edges: NDArray[np.float64]


def line_image(text: str, faces: Faces, rng: random.Random, strength: float) -> Line:
    """A line as training sees it, cut with some margin.

    Args:
        text: What to draw.
        faces: Where the face comes from.
        rng: Decides everything.
        strength: Of the disguises: 0 is clean print, 1 the whole range.
    """
    size = rng.choice(_SIZES)
    mask = _mask(text, faces, size, rng)
    if rng.random() < 0.3 + 0.4 * strength:
        mask = _bent(mask, rng, degrees=0.8 * strength, slant=0.12 * strength, stretch=0.15)
    if rng.random() < 0.08 * strength and size > 24:
        mask = _filtered(mask, ImageFilter.MaxFilter(3))  # ink that has spread
    if rng.random() < 0.6 * strength:
        mask = _filtered(mask, ImageFilter.GaussianBlur(rng.uniform(0.2, 0.045 * size + 0.2)))
    mask = _cut(mask, rng, tight=0.02, loose=0.2 + 0.25 * strength)
    ink, paper = rng.uniform(0, 0.35 * strength), rng.uniform(1 - 0.35 * strength, 1)
    if rng.random() < 0.1:
        ink, paper = paper, ink
    noise = rng.uniform(0, 0.1) if rng.random() < 0.6 * strength else 0
    specks = rng.uniform(0, 0.01) if rng.random() < 0.25 * strength else 0
    pixels = _print(mask, ink, paper, rng, noise, specks, uneven=0.12 * strength)
    if rng.random() < 0.05 * strength and abs(ink - paper) > 0.5:
        pixels = (pixels > (ink + paper) / 2 + rng.uniform(-0.05, 0.05)).astype(np.float32)
    image = _picture(pixels)
    if rng.random() < 0.35 * strength:
        image = _jpeg(image, rng.randint(20, 90))
    return Line(image, mask.edges)


def clean_image(text: str, faces: Faces, rng: random.Random) -> Line:
    """A test line as a program draws it: dark on light, no noise."""
    mask = _cut(_mask(text, faces, rng.randint(16, 40), rng), rng, tight=0.2, loose=0.3)
    pixels = _print(mask, rng.uniform(0, 0.2), rng.uniform(0.9, 1), rng)
    return Line(_picture(pixels), mask.edges)


def scanned_image(text: str, faces: Faces, rng: random.Random) -> Line:
    """A test line as a scanner sees it, with all of its faults at once: blurred, skewed, uneven
    and gray paper, noise, specks of dust, JPEG."""
    size = rng.randint(_SCAN_SMALLEST, 36)
    mask = _bent(_mask(text, faces, size, rng), rng, degrees=0.7, slant=0.02, stretch=0.03)
    mask = _filtered(mask, ImageFilter.GaussianBlur(rng.uniform(0.4, 0.035 * size)))
    mask = _cut(mask, rng, tight=0.15, loose=0.35)
    ink, paper = rng.uniform(0.05, 0.3), rng.uniform(0.75, 1)
    noise, specks = rng.uniform(0.02, 0.08), rng.uniform(0, 0.004)
    pixels = _print(mask, ink, paper, rng, noise, specks, uneven=0.1)
    return Line(_jpeg(_picture(pixels), rng.randint(35, 80)), mask.edges)


def fit(image: Image.Image) -> Pixels:
    """A picture scaled into the model's input as Donut's image processor does, before it pads.

    Returns:
        [height, width] with one of them HEIGHT or WIDTH.
    """
    short = HEIGHT / min(image.size)
    width, height = (max(1, int(side * short)) for side in image.size)
    gray = image.convert("L").resize((width, height), Image.Resampling.BILINEAR)
    least = min(height, HEIGHT), min(width, WIDTH)
    if least != (height, width):
        if height > width:
            size = int(width * least[0] / height), least[0]
        else:
            size = least[1], int(height * least[1] / width)
        gray = gray.resize((max(1, size[0]), max(1, size[1])), Image.Resampling.BILINEAR)
    return np.asarray(gray, np.float32) / 255


def _mask(text: str, faces: Faces, size: int, rng: random.Random) -> Line:
    """Where ink is, with an empty margin of an em."""
    path = faces.draw(rng).path
    # Wide enough for any text, and cut then: to measure a text takes as long as to draw it.
    mask = Image.new("L", ((len(text) + 2) * 5 * size // 4, 4 * size))
    drawn = font(path, size)
    ImageDraw.Draw(mask).text((size, 2.5 * size), text, fill=255, font=drawn, anchor="ls")
    left, top, right, bottom = mask.getbbox() or (0, 0, size, size)
    steps = [0.0, *(advance(path, size, character) for character in text)]
    mask = mask.crop((left - size, top - size, right + size, bottom + size))
    return Line(mask, np.cumsum(steps) + 2 * size - left)


def _filtered(line: Line, filter: ImageFilter.Filter) -> Line:
    return Line(line.image.filter(filter), line.edges)


def _bent(line: Line, rng: random.Random, degrees: float, slant: float, stretch: float) -> Line:
    """Rotated, slanted and stretched by at most so much."""
    turn = np.tan(np.radians(rng.uniform(-degrees, degrees)))
    lean, wide = rng.uniform(-slant, slant), 1 + rng.uniform(-stretch, stretch)
    mask = line.image
    width, height = round(mask.width * wide), mask.height + round(abs(turn) * mask.width)
    middle = mask.width / 2, mask.height / 2
    rows = np.array([[1 / wide, lean], [turn, 1]])
    shift = np.array(middle) - rows @ np.array([width / 2, height / 2])
    data = (*rows[0], shift[0], *rows[1], shift[1])
    bent = mask.transform((width, height), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    return Line(bent, width / 2 + wide * (line.edges - middle[0]))


def _cut(line: Line, rng: random.Random, tight: float, loose: float) -> Line:
    """Cut to the ink, with a margin of a random share of its height on each side."""
    ink = line.image.point(lambda value: 255 * (value > 40))
    left, top, right, bottom = ink.getbbox() or (0, 0, 8, 8)
    height = bottom - top
    margins = [rng.uniform(tight, loose) * height for _ in range(4)]
    box = left - margins[0], top - margins[1], right + margins[2], bottom + margins[3]
    first, *rest = (round(side) for side in box)
    return Line(line.image.crop((first, *rest)), line.edges - first)


def _print(
    line: Line,
    ink: float,
    paper: float,
    rng: random.Random,
    noise: float = 0,
    specks: float = 0,
    uneven: float = 0,
) -> Pixels:
    """Ink on paper, whose brightness changes from one side to the other."""
    pixels = paper + (ink - paper) * np.asarray(line.image, np.float32) / 255
    height, width = pixels.shape
    generator = np.random.default_rng(rng.getrandbits(32))
    if uneven:
        across = np.linspace(*[rng.uniform(-uneven, uneven) for _ in "ab"], width)
        down = np.linspace(*[rng.uniform(-uneven, uneven) for _ in "ab"], height)
        pixels += np.float32(across)[None] + np.float32(down)[:, None]
    if noise:
        pixels += noise * generator.standard_normal(pixels.shape, np.float32)
    if specks:
        where = generator.random(pixels.shape, np.float32)
        pixels[where < specks / 2] = 0
        pixels[where > 1 - specks / 2] = 1
    return np.asarray(pixels.clip(0, 1), np.float32)


def _picture(pixels: Pixels) -> Image.Image:
    return Image.fromarray((pixels * 255).astype(np.uint8))


def _jpeg(image: Image.Image, quality: int) -> Image.Image:
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("L")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds tatoeba-eng-deu/")
    parser.add_argument("--fonts", type=Path, default=Path("/usr/share/fonts"))
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--count", type=int, default=200, help="lines of each kind")
    parser.add_argument("--part", default="test", help="of the sentences: test or dev")
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    faces, texts = Faces(arguments.fonts, held_out=True), Texts(arguments.data, arguments.part)
    for kind, draw in (("clean", clean_image), ("scanned", scanned_image)):
        folder = arguments.out / kind
        folder.mkdir(parents=True, exist_ok=True)
        rng = random.Random(f"{arguments.seed}/{kind}")
        lines = {}
        for index in range(arguments.count):
            name, text = f"{index:03}.png", texts.draw(rng, LONGEST)
            draw(text, faces, rng).image.save(folder / name)
            lines[name] = text
        content = json.dumps(lines, ensure_ascii=False, indent=1) + "\n"
        (folder / "lines.json").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
