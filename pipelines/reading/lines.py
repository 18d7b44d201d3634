"""Finds the lines of printed text in a picture by the ink in its rows.

For upright pages of one column on an even background. Columns, skew and photographs need a layout
model; such pictures are better cut before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipelines.reading.results import Box

_MIN_HEIGHT = 6  # pixels of a line
_MOST_LINES = 500
_MARGIN = 0.25  # of a line's height, around it: models were trained with some
_JOIN_GAP = 0.3  # of the median height: dots and accents belong to the line below or above
_MIN_CONTRAST = 30  # of 255, between ink and paper
_RULE_SHAPE = 8  # times as wide as high, and
_RULE_INK = 0.9  # with that share of ink: drawn, not written


def find_lines(picture: Image.Image) -> list[Box]:
    """The boxes of the lines of a picture.

    Returns:
        From top to bottom; none for an even picture, and the whole picture where there is ink, but
        no lines are found in it.
    """
    gray = np.asarray(picture.convert("L"))
    whole = (0, 0, picture.width, picture.height)
    ink = _ink(gray)
    if ink is None:
        return []
    runs = _joined([run for run in _runs(np.any(ink, axis=1)) if not _is_rule(ink, *run)])
    runs = [(top, bottom) for top, bottom in runs if bottom - top >= _MIN_HEIGHT]
    if not runs or len(runs) > _MOST_LINES:
        return [whole]
    boxes = []
    for index, (top, bottom) in enumerate(runs):
        columns = np.flatnonzero(ink[top:bottom].any(axis=0))
        margin = round((bottom - top) * _MARGIN)
        # At most half of the gap, so that no line has ink of its neighbors.
        above = (runs[index - 1][1] + top) // 2 if index else 0
        below = (bottom + runs[index + 1][0] + 1) // 2 if index + 1 < len(runs) else whole[3]
        boxes.append(
            (
                max(0, int(columns[0]) - margin),
                max(above, top - margin),
                min(whole[2], int(columns[-1]) + 1 + margin),
                min(below, bottom + margin),
            )
        )
    return boxes


def _ink(gray: NDArray[np.uint8]) -> NDArray[np.bool_] | None:
    """Which pixels are ink, dark or light [height, width]; None for an even picture."""
    counts = np.bincount(gray.ravel(), minlength=256).astype(float)
    threshold = _otsu(counts)
    values = np.arange(256)
    dark, light = counts[: threshold + 1].sum(), counts[threshold + 1 :].sum()
    if not dark or not light:
        return None
    means = (
        (counts * values)[: threshold + 1].sum() / dark,
        (counts * values)[threshold + 1 :].sum() / light,
    )
    if means[1] - means[0] < _MIN_CONTRAST:
        return None
    below: NDArray[np.bool_] = gray <= threshold
    return below if dark <= light else ~below  # there is less ink than paper


def _otsu(counts: NDArray[np.float64]) -> int:
    """The threshold that separates two groups of values best (Otsu 1979)."""
    weight = counts.cumsum()
    total, mean = weight[-1], (counts * np.arange(256)).cumsum()
    with np.errstate(divide="ignore", invalid="ignore"):
        between = (mean[-1] * weight / total - mean) ** 2 / (weight * (total - weight))
    return int(np.nan_to_num(between, posinf=0.0).argmax())


def _is_rule(ink: NDArray[np.bool_], top: int, bottom: int) -> bool:
    """Whether rows show a horizontal rule and nothing else."""
    columns = np.flatnonzero(ink[top:bottom].any(axis=0))
    left, right = int(columns[0]), int(columns[-1]) + 1
    is_long = right - left > _RULE_SHAPE * (bottom - top)
    return is_long and float(ink[top:bottom, left:right].mean()) > _RULE_INK


def _runs(flags: Any) -> list[tuple[int, int]]:
    """(first, end) of each run of true values [n]."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs with small ones next to them, such as the dots of a line of i."""
    if not runs:
        return []
    typical = float(np.median([bottom - top for top, bottom in runs]))
    joined = [runs[0]]
    for top, bottom in runs[1:]:
        before_top, before_bottom = joined[-1]
        small = min(bottom - top, before_bottom - before_top) < typical / 2
        if small and top - before_bottom <= _JOIN_GAP * typical:
            joined[-1] = before_top, bottom
        else:
            joined.append((top, bottom))
    return joined
