"""The faces of print: font files by family, those of the tests held out."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from alphabet import CHARACTERS
from PIL import ImageFont

HELD_OUT = {"sans": "Roboto", "serif": "Charis SIL", "mono": "JetBrains Mono"}
"""Families that are drawn for tests alone, in no style seen in training."""

# Weights that print uses; the families held out are drawn in these.
_TEST_STYLES = frozenset("regular italic bold light medium".split())
_UNFIT = re.compile(
    r"\bSC\b|Caps|Initial|Swash|Outline|Shadow|Stencil|Symbol|Math|Emoji|Music|Dingbat|Ornament"
    r"|Keyboard|Braille|Barcode|Jazz|Upright|Unhinted|Hairline|Extra ?Light|Thin|D050000L|Chancery"
    r"|Z003|Script|Noto Sans [A-Z][a-z]{3,}|Noto Serif [A-Z][a-z]{3,}|Noto (?!Sans|Serif|Mono)",
    re.IGNORECASE,
)
_KEPT = re.compile(r"^Noto (Sans|Serif)( Mono| Display)?$")
_LARGEST_CACHE = 2_000  # open fonts of a size


@dataclass(frozen=True)
class Face:
    """A font file.

    Attributes:
        family: Its family without weight and width, such as "DejaVu Sans".
        style: Such as "Bold Italic".
        path: The file.
    """

    family: str
    style: str
    path: Path


class Faces:
    """All faces of a part; families are drawn with equal probability.

    Args:
        folder: Is searched for .ttf and .otf files, such as /usr/share/fonts.
        held_out: Those of the tests instead of those to train on.
    """

    def __init__(self, folder: Path, held_out: bool) -> None:
        self.families: dict[str, list[Face]] = {}
        for path in sorted(folder.rglob("*.[to]tf")):
            face = _face(path)
            if face is None or _is_held_out(face.family) != held_out:
                continue
            if held_out and not set(face.style.lower().split()) <= _TEST_STYLES:
                continue
            self.families.setdefault(face.family, []).append(face)
        if not self.families:
            raise SystemExit(f"{folder} has no fonts to draw with; README.md lists the packages")
        self._names = sorted(self.families)

    def draw(self, rng: random.Random) -> Face:
        """A random style of a random family."""
        return rng.choice(self.families[rng.choice(self._names)])


@lru_cache(maxsize=_LARGEST_CACHE)
def font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    """A font of a size in pixels (em)."""
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


@cache
def advance(path: Path, size: int, character: str) -> float:
    """Width of a character in pixels, kerning aside."""
    return font(path, size).getlength(character)


def _is_held_out(family: str) -> bool:
    return any(family == name or family.startswith(name + " ") for name in HELD_OUT.values())


@cache
def _face(path: Path) -> Face | None:
    """The face of a file, or None if it is of no use here."""
    try:
        opened = font(path, 20)
    except OSError:
        return None
    family, style = (part or "" for part in opened.getname())
    if not _KEPT.match(family) and _UNFIT.search(f"{family} {style} {path.stem}"):
        return None
    if _UNFIT.search(style):
        return None
    missing = bytes(opened.getmask("\U000ffffe"))
    if any(bytes(opened.getmask(c)) == missing for c in CHARACTERS if c.isalnum()):
        return None
    return Face(family, style, path)
