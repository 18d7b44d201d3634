"""Puts drawn lines together to batches of similar width."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from alphabet import END_ID, PAD_ID, START_ID, TOKENS, encode
from faces import Faces
from model import COLUMN, COLUMNS
from numpy.typing import NDArray
from PIL import Image
from render import HEIGHT, Line, Pixels, fit, line_image
from texts import Texts
from torch import Tensor

POOL = 512  # lines that are sorted by width at a time
_TIMES = 2  # that a line is seen, in another place: to draw it takes half as long as to learn it
IGNORED = -100
FRAME = 4  # pixels: narrow letters are half as wide as a column
PAPER = len(TOKENS)  # of a frame without a character
_CLEAN = 0.2  # share of lines without any disguise
_LOW_LINES = 0.12  # share of lines that do not fill the height, as long ones do not


@dataclass(frozen=True)
class Batch:
    """Lines with their text.

    Attributes:
        pixels: [n, 32, width] in [-1, 1].
        first: The column of the full width that the picture begins at.
        inputs: What the decoder is given, [n, length].
        labels: What it is to write; IGNORED after the end.
        frames: The character at each frame of 4 pixels, PAPER for none, [n, width / 4].
        spots: The column where each input lies, and behind them the last label; [n, length + 1].
    """

    pixels: Tensor
    first: int
    inputs: Tensor
    labels: Tensor
    frames: Tensor
    spots: Tensor


@dataclass(frozen=True)
class Fitted:
    """A line in the model's height.

    Attributes:
        text: What it says.
        pixels: At most 32 × 768 of them.
        edges: Where each character begins and the last one ends, in pixels from the left.
    """

    text: str
    pixels: Pixels
    edges: NDArray[np.float64]


@dataclass
class Feed:
    """Draws batches without end. The same place gives the same batches.

    Attributes:
        texts: Lines of text.
        faces: Faces to draw them with.
        columns: Of the lines of a batch together, padding included.
        seed: Decides everything.
        pool: The next pool of lines; the place to go on from.
        strength: Of the disguises, 0 to 1; may change.
        longest: Characters of a line; may change.
        full: Share of batches that have the model's full width; may change.
    """

    texts: Texts
    faces: Faces
    columns: int
    seed: int
    pool: int = 0
    strength: float = 0.0
    longest: int = 48
    full: float = 0.0

    def __iter__(self) -> Iterator[Batch]:
        while True:
            rng = random.Random(f"{self.seed}/{self.pool}")
            self.pool += 1
            lines = [self._line(rng) for _ in range(POOL)]
            lines.sort(key=lambda line: line.pixels.shape[1])
            batches: list[list[Fitted]] = [[]]
            for line in lines:
                width = _columns(line.pixels.shape[1])
                if (len(batches[-1]) + 1) * width > self.columns and batches[-1]:
                    batches.append([])
                batches[-1].append(line)
            for _ in range(_TIMES):
                rng.shuffle(batches)
                for batch in batches:
                    yield collate(batch, rng, rng.random() < self.full)

    def _line(self, rng: random.Random) -> Fitted:
        text = self.texts.draw(rng, self.longest)
        # Clean print is seen until the end: paper without a mark is unknown to a model of scans,
        # which then reads on behind the last character.
        disguise = 0.0 if rng.random() < _CLEAN else 1.0 if rng.random() < 0.5 else rng.random()
        line = line_image(text, self.faces, rng, self.strength * disguise)
        share = rng.uniform(0.65, 1) if rng.random() < _LOW_LINES else 1
        return fitted(text, line, share)


def fitted(text: str, line: Line, share: float = 1) -> Fitted:
    """A line in the model's height, or a share of it."""
    pixels = fit(line.image)
    if share < 1:
        height, width = pixels.shape
        size = max(1, round(width * share)), max(1, round(height * share))
        smaller = Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR)
        pixels = np.asarray(smaller, np.float32)
    return Fitted(text, pixels, line.edges * pixels.shape[1] / line.image.width)


def collate(lines: list[Fitted], rng: random.Random, full: bool = False) -> Batch:
    """A batch of lines, each somewhere on a canvas that all of them fit on.

    Args:
        lines: Of at most the model's width.
        rng: Decides about the places.
        full: The canvas has the model's width and lines are in its middle, as when it is used.
    """
    wide = COLUMNS if full else _columns(max(line.pixels.shape[1] for line in lines))
    canvas = np.zeros((len(lines), HEIGHT, wide * COLUMN), np.float32)
    characters = [encode(line.text) for line in lines]
    length = max(map(len, characters)) + 1
    inputs = torch.full((len(lines), length), PAD_ID)
    labels = torch.full((len(lines), length), IGNORED)
    frames = np.full((len(lines), wide * COLUMN // FRAME), PAPER)
    spots = np.zeros((len(lines), length + 1))
    centers = FRAME * (np.arange(frames.shape[1]) + 0.5)
    for index, (line, ids) in enumerate(zip(lines, characters, strict=True)):
        height, width = line.pixels.shape
        top, free = (HEIGHT - height) // 2, canvas.shape[2] - width
        left = free // 2 if full else rng.randint(0, free)
        canvas[index, top : top + height, left : left + width] = line.pixels
        inputs[index, : len(ids) + 1] = torch.tensor([START_ID, *ids])
        labels[index, : len(ids) + 1] = torch.tensor([*ids, END_ID])
        covering = np.searchsorted(line.edges + left, centers, "right")
        frames[index] = np.array([PAPER, *ids, PAPER])[covering]
        middles = (line.edges[:-1] + line.edges[1:]) / 2
        spots[index, : len(ids) + 2] = left + np.array([line.edges[0], *middles, line.edges[-1]])
    pixels, first = torch.from_numpy(canvas) * 2 - 1, rng.randint(0, COLUMNS - wide)
    columns = torch.from_numpy(spots // COLUMN).long().clamp(0, wide - 1)
    return Batch(pixels, first, inputs, labels, torch.from_numpy(frames), columns)


def _columns(width: int) -> int:
    """Columns of a canvas for pictures of a width, with room for the next step or two."""
    return min(COLUMNS, -(-width // COLUMN) + 1)
