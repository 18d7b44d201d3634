"""Pictures are read as transformers reads them, token for token, and with live text."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from edgeapp.batch.outputs import reserved
from edgeapp.cli import main
from pipelines import InputError, OptionError, Reader, ReadOptions
from pipelines.errors import ModelError
from pipelines.hub import resolve
from pipelines.processors import open_image_processor
from pipelines.reading import LineDelta, LineDone, LinesFound
from tests.fixtures.wrapped import save_line_reader, save_module, save_pixels, save_words
from tests.reading.pages import TEXT, page

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*run by transformers"),
]


@pytest.fixture(scope="module")
def trocr(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("trocr")
    return folder, save_line_reader(folder)


@pytest.fixture
def reader(trocr: tuple[Path, Any]) -> Iterator[Reader]:
    with Reader(trocr[0], device="cpu") as made:
        yield made


@pytest.mark.parametrize("beam_size", [1, 3])
def test_lines_equal_generate(reader: Reader, trocr: tuple[Path, Any], beam_size: int) -> None:
    image = page()
    processor = open_image_processor(trocr[0])
    result = reader.read(image, ReadOptions(beam_size=beam_size, max_new_tokens=12))
    assert len(result.lines) == len(TEXT)
    for line in result.lines:
        pixels = processor(image.crop(line.box), return_tensors="pt")["pixel_values"]
        ids = (
            trocr[1]
            .generate(
                pixels,
                max_new_tokens=12,
                num_beams=beam_size,
                do_sample=False,
                early_stopping=False,
            )[0, 1:]
            .tolist()
        )
        assert [*line.tokens] == ids[: len(line.tokens)]
        assert line.score < 0
    assert result.text.splitlines() == [line.text for line in result.lines]


def test_live_text_adds_up_to_the_lines(reader: Reader) -> None:
    events = list(reader.stream(page(), ReadOptions(max_new_tokens=8, batch_size=3)))
    found, *rest = events
    assert isinstance(found, LinesFound)
    assert len(found.boxes) == len(TEXT)
    text, lines = "", []
    for event in rest:
        if isinstance(event, LineDelta):
            text += event.text
        elif isinstance(event, LineDone):
            assert event.line.text == text
            lines.append(event.line)
            text = ""
    assert [line.box for line in lines] == [*found.boxes]


def test_batches_do_not_change_the_text(reader: Reader) -> None:
    one = reader.read(page(), ReadOptions(batch_size=1, max_new_tokens=10))
    assert reader.read(page(), ReadOptions(batch_size=8, max_new_tokens=10)).text == one.text


def test_options_and_inputs_are_checked(reader: Reader) -> None:
    with pytest.raises(OptionError, match="beam_size"):
        ReadOptions(beam_size=0)
    with pytest.raises(OptionError, match="too long"):
        reader.stream(page(), ReadOptions(prompt="the cat " * 40))
    with pytest.raises(InputError, match="no known format of pictures"):
        reader.read(b"text")


@pytest.mark.parametrize("family", ["blip", "git", "donut"])
def test_a_whole_picture(family: str, tmp_path: Path) -> None:
    module = save_module(tmp_path, family)
    save_words(tmp_path)
    kinds = {
        "blip": "BlipImageProcessor",
        "git": "CLIPImageProcessor",
        "donut": "ViTImageProcessor",
    }
    size = {"height": 64, "width": 32} if family == "donut" else {"height": 32, "width": 32}
    save_pixels(tmp_path, kinds[family], size)
    if family == "git":
        processor = json.loads((tmp_path / "preprocessor_config.json").read_text("utf-8"))
        (tmp_path / "preprocessor_config.json").write_text(
            json.dumps(processor | {"do_center_crop": False}), "utf-8"
        )
    assert resolve(tmp_path).task == "reading"
    with Reader(tmp_path, device="cpu") as reader:
        assert not reader.reads_lines
        (line,) = reader.read(page(), ReadOptions(max_new_tokens=8)).lines
        pixels = open_image_processor(tmp_path)(page(), return_tensors="pt")["pixel_values"]
        start = reader.model.architecture.start_id
        given: dict[str, Any] = {}
        if family == "donut":
            given = {"decoder_start_token_id": start, "forced_eos_token_id": None}
        if family == "git":
            given = {"input_ids": torch.tensor([[start]])}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ids = module.generate(pixel_values=pixels, max_new_tokens=8, do_sample=False, **given)
        assert [*line.tokens] == ids[0, 1 : 1 + len(line.tokens)].tolist()
        assert line.box == (0, 0, page().width, page().height)
        prompted = reader.read(page(), ReadOptions(prompt="the cat", max_new_tokens=4)).lines[0]
        assert len(prompted.tokens) <= 4


def run(*arguments: object, capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capfd.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(["read", *map(str, arguments)])
    out, err = capfd.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEAPP_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-models"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "pages"
    folder.mkdir()
    page().save(folder / "one.png")
    page(text=TEXT[:1]).save(folder / "two.jpg")
    (folder / "three.png").write_bytes(b"no picture")
    (folder / "notes.txt").write_text("not read")
    return folder


def test_a_folder_as_json(
    pages: Path, trocr: tuple[Path, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(pages, "-m", trocr[0], "--format", "json", capfd=capfd)
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert "three.png is in no known format of pictures" in err
    assert [Path(record["file"]).name for record in records] == ["one.png", "two.jpg"]
    assert [len(record["lines"]) for record in records] == [len(TEXT), 1]
    assert set(records[0]["lines"][0]) == {"text", "score", "box", "complete"}


def test_texts_on_stdout_are_told_apart(
    pages: Path, trocr: tuple[Path, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (80, 60), "white").save(pages / "blank.png")
    code, out, err = run(pages / "two.jpg", pages / "blank.png", "-m", trocr[0], capfd=capfd)
    assert code == 0
    assert len(out.splitlines()) == 1
    assert err.index("two.jpg:") < err.index("blank.png:")
    assert "blank.png: no text was found" in err


@pytest.mark.filterwarnings("always:.*only the first is read")
def test_the_other_pages_of_a_scan_are_not_lost_silently(
    pages: Path, trocr: tuple[Path, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    page().save(pages / "scan.tif", save_all=True, append_images=[page(), page()])
    code, _, err = run(pages / "scan.tif", "-m", trocr[0], capfd=capfd)
    assert code == 0
    assert "scan.tif has 3 pages; only the first is read" in err


def test_files_with_translations_are_not_replaced(
    pages: Path, trocr: tuple[Path, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = (pages / "two.jpg", "-m", trocr[0], "-o", "out", "--translate-to", "de")
    code, out, err = run(*arguments, "--translation-model", "demo-en-de", capfd=capfd)
    assert (code, out) == (0, ""), err
    assert len(Path("out/two.txt").read_text("utf-8").splitlines()) == 1
    assert Path("out/two.de.txt").is_file()
    Path("out/two.txt").write_text("mine")
    code, _, err = run(*arguments, "--translation-model", "demo-en-de", capfd=capfd)
    assert code == 0
    assert "two.jpg: skipped, for out/two.txt exists already; --overwrite replaces it" in err
    assert Path("out/two.txt").read_text() == "mine"
    Path("out/two.de.txt").unlink()
    code, _, _ = run(*arguments, "--translation-model", "demo-en-de", capfd=capfd)
    assert Path("out/two.de.txt").is_file(), "a run that was ended between the two goes on"
    assert Path("out/two.txt").read_text() == "mine"
    Path("out/two.txt").unlink()
    with reserved([Path("out/two.txt")]):
        code, _, err = run(*arguments, "--translation-model", "demo-en-de", capfd=capfd)
    assert code == 1
    assert "out/two.txt is being written by another run" in err


def test_a_file_of_another_picture_of_the_same_name_is_kept(
    pages: Path, trocr: tuple[Path, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    for day, width in (("monday", 80), ("tuesday", 90)):
        (pages / day).mkdir()
        Image.new("RGB", (width, 60), "white").save(pages / day / "page.png")
    options = ("-m", trocr[0], "-o", "out")
    assert run(pages / "monday/page.png", *options, capfd=capfd)[0] == 0
    code, _, err = run(pages / "tuesday/page.png", *options, capfd=capfd)
    assert code == 1
    assert f"out/page.txt holds the result of {(pages / 'monday/page.png').absolute()}: " in err
    # The same picture under another name is not read again; one that was changed is.
    (pages / "monday").rename(pages / "friday")
    assert "skipped" in run(pages / "friday/page.png", *options, capfd=capfd)[2]
    assert run(pages / "tuesday/page.png", *options, "--overwrite", capfd=capfd)[0] == 0
    page().save(pages / "tuesday/page.png")
    assert run(pages / "tuesday/page.png", *options, capfd=capfd)[0] == 0
    assert Path("out/page.txt").read_text("utf-8").strip()
    Path("out/page.txt").rename("out/two.txt")
    code, _, err = run(pages / "two.jpg", *options, capfd=capfd)
    assert code == 1
    assert "out/two.txt exists, and no run in the journal has written it" in err


def test_models_that_do_not_read(pages: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(pages, "-m", "demo", capfd=capfd)
    assert code == 3
    assert "cannot read pictures" in err
    code, _, err = run(capfd=capfd)
    assert code == 2
    with pytest.raises(ModelError, match="does not read pictures"):
        Reader("demo", device="cpu")
