"""Lines are found where text was rendered."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageChops

from pipelines.reading.lines import find_lines
from tests.reading.pages import FONTS, TEXT, page


@pytest.mark.parametrize("font", FONTS[:1] + FONTS[1::4], ids=lambda f: getattr(f, "stem", "none"))
@pytest.mark.parametrize("size", [16, 40])
def test_each_line_is_found(font: Path | None, size: int) -> None:
    image = page(font, size)
    boxes = find_lines(image)
    assert len(boxes) == len(TEXT)
    covered = image.copy()
    for box in boxes:
        covered.paste("white", box)
    assert ImageChops.invert(covered.convert("L")).getbbox() is None  # all ink is in a box


def test_boxes_go_from_top_to_bottom_without_overlap() -> None:
    boxes = find_lines(page(size=30))
    assert [box[1] for box in boxes] == sorted(box[1] for box in boxes)
    assert all(above[3] <= below[1] for above, below in zip(boxes, boxes[1:], strict=False))


@pytest.mark.parametrize(
    ("ink", "paper", "noise"), [("white", "black", 0), ("#444", "#ddd", 0), ("black", "#eee", 0.2)]
)
def test_of_any_color_and_with_noise(ink: str, paper: str, noise: float) -> None:
    assert len(find_lines(page(ink=ink, paper=paper, noise=noise))) == len(TEXT)


def test_an_even_picture_has_no_lines() -> None:
    assert find_lines(Image.new("RGB", (50, 20), "white")) == []
    assert find_lines(Image.new("RGB", (1, 1), "black")) == []
    assert find_lines(page(text=["", ""], paper="gray", noise=0.5)) == []


def test_a_picture_with_ink_and_no_line_is_one_line() -> None:
    image = Image.new("RGB", (50, 20), "white")
    image.paste("black", (20, 10, 22, 12))
    assert find_lines(image) == [(0, 0, 50, 20)]


def test_a_rule_is_no_line() -> None:
    image = page()
    image.paste("black", (20, image.height - 12, image.width - 20, image.height - 4))
    assert len(find_lines(image)) == len(TEXT)
