"""The bundled reader reads print of a face that it has never seen: the one that Pillow has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jiwer
import pytest
from PIL import Image

from edgeapp.cli import main
from pipelines import Reader, ReadOptions
from pipelines.hub import choose_default
from pipelines.hub.assets import bundled_folder
from tests.fixtures.wrapped import save_line_reader
from tests.reading.pages import page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*run by transformers"),
]

MOST_WRONG = 0.005  # of the characters

# The face has no umlauts.
LINES = [
    "The train leaves at 10:45 from platform 3.",
    "Please send the letter before Friday.",
    "She asked me whether I had seen the film.",
    "It costs 12.50 euros, doesn't it?",
    "We walked along the river until dark.",
    "Chapter 7: How the story ends",
    "Nobody knew what would happen next.",
    "Der Zug ist heute leider nicht gekommen.",
    "Kann man das bitte wiederholen?",
    "Wir haben gestern ein neues Haus gesehen.",
    "Nach dem Regen war alles sehr nass.",
    "Montag bis Freitag, 9-17 Uhr",
]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with Reader("reader", device="cpu") as made:
        yield made


@pytest.mark.parametrize("size", [18, 24, 34])
def test_pages_are_read(reader: Reader, size: int) -> None:
    read = [line.text for line in reader.read(page(size=size, text=LINES)).lines]
    assert len(read) == len(LINES)
    assert jiwer.cer(LINES, read) < MOST_WRONG


def test_lines_of_dark_paper_are_read(reader: Reader) -> None:
    image = page(size=24, ink="white", paper="#203040", text=LINES[:4])
    assert [line.text for line in reader.read(image).lines] == LINES[:4]


@pytest.mark.parametrize("paper", ["white", "black", "gray"])
def test_nothing_is_read_where_nothing_is_written(reader: Reader, paper: str) -> None:
    assert reader.read(Image.new("RGB", (800, 600), paper)).text == ""


@pytest.mark.parametrize("size", [(5000, 3), (3, 5000)])
def test_a_picture_of_any_shape_is_read(reader: Reader, size: tuple[int, int]) -> None:
    image = Image.new("RGB", size, "white")
    image.paste("black", (0, 0, 3, 3))
    reader.read(image, ReadOptions(lines="whole"))


def test_batches_read_the_same(reader: Reader) -> None:
    image = page(text=LINES[:5])
    alone, together = (
        [line.tokens for line in reader.read(image, ReadOptions(batch_size=size)).lines]
        for size in (1, 5)
    )
    assert alone == together


def test_it_is_used_until_a_better_one_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    page(text=LINES[:2]).save(tmp_path / "page.png")
    with pytest.raises(SystemExit) as ended:
        main(["read", str(tmp_path / "page.png"), "--format", "json"])
    out, err = capfd.readouterr()
    assert ended.value.code == 0, err
    assert [line["text"] for line in json.loads(out)["lines"]] == LINES[:2]
    assert err.count("edgeapp: ") == 1, "that it is run by transformers is no news to its user"
    assert "good for upright lines of English and German print only" in err
    assert "edgeapp models pull microsoft/trocr-base-printed" in err
    assert choose_default("reading").folder == bundled_folder("reader")
    hub = tmp_path / "hub"
    save_line_reader(hub / "models--some--line-reader" / "snapshots" / ("a" * 40))
    monkeypatch.setattr("pipelines.hub.cache.cache_folder", lambda: hub)
    assert choose_default("reading").name == "some/line-reader"
