"""The recipe of the line reader, at toy size: what it writes is read as transformers reads it."""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer, VisionEncoderDecoderModel

from pipelines import Reader, ReadOptions
from pipelines.hub import resolve
from pipelines.processors import open_image_processor

RECIPE = Path(__file__).parents[2] / "assets/recipes/reading"
DEJAVU = Path("/usr/share/fonts/truetype/dejavu")
SENTENCES = "Where is the station?\tWo ist der Bahnhof?\nHello!\tGrüß Gott, schöne Straße!\n"

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.skipif(not DEJAVU.is_dir(), reason="needs Debian's fonts-dejavu-core"),
    pytest.mark.filterwarnings("ignore:.*run by transformers"),
]


@pytest.fixture(scope="module")
def recipe() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a file of the recipe, as its commands do."""
    sys.path.insert(0, str(RECIPE))
    before = set(sys.modules)
    yield importlib.import_module
    sys.path.remove(str(RECIPE))
    for name in set(sys.modules) - before:
        if Path(str(getattr(sys.modules[name], "__file__", ""))).parent == RECIPE:
            del sys.modules[name]


@pytest.fixture(scope="module")
def exported(
    recipe: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any]:
    """The folder of a small reader with initial weights, and its module."""
    folder = tmp_path_factory.mktemp("reader")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        made = recipe("model").new_model(width=64, encoder_layers=1, decoder_layers=1)
        torch.nn.init.normal_(made.decoder.output_projection.weight, std=0.5)
    recipe("export").export(made, folder)
    return folder, VisionEncoderDecoderModel.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def texts(recipe: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Any:
    import gzip

    folder = tmp_path_factory.mktemp("data")
    (folder / "tatoeba-eng-deu").mkdir()
    with gzip.open(folder / "tatoeba-eng-deu/train.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(SENTENCES)
    return recipe("texts").Texts(folder, "train")


@pytest.fixture(scope="module")
def faces(recipe: Callable[[str], ModuleType]) -> Any:
    return recipe("faces").Faces(DEJAVU, held_out=False)


def test_lines_of_text_fit_and_are_in_the_alphabet(
    recipe: Callable[[str], ModuleType], texts: Any
) -> None:
    alphabet = recipe("alphabet")
    rng = random.Random(1)
    lines = [texts.draw(rng, 40) for _ in range(500)]
    assert all(0 < len(line) <= 40 and line == line.strip() for line in lines)
    assert all(alphabet.decode(alphabet.encode(line)) == line for line in lines)
    assert any("ß" in line for line in lines)
    assert any(word.isdigit() for line in lines for word in line.split())


def test_the_same_seed_draws_the_same_batches(
    recipe: Callable[[str], ModuleType], texts: Any, faces: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = recipe("batches")

    def first(pool: int) -> Any:
        feed = batches.Feed(texts, faces, 300, seed=1, pool=pool, strength=1.0, longest=12)
        return next(iter(feed))

    monkeypatch.setattr(batches, "POOL", 24)
    one, same = first(0), first(0)
    assert torch.equal(one.pixels, same.pixels)
    assert torch.equal(one.labels, same.labels)
    assert one.pixels.sum() != first(1).pixels.sum()
    assert one.pixels.shape[1] == 32
    assert one.pixels.shape[0] * one.pixels.shape[2] <= 300 * 8
    assert one.pixels.min() >= -1
    assert one.pixels.max() <= 1


@pytest.mark.parametrize("size", [(300, 40), (40, 300), (1900, 37), (9, 32), (768, 32)])
def test_lines_are_fitted_as_the_image_processor_does(
    recipe: Callable[[str], ModuleType], exported: tuple[Path, Any], size: tuple[int, int]
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, size[::-1], np.uint8)
    image = Image.fromarray(noise)
    processor = open_image_processor(exported[0])
    theirs = processor(image.convert("RGB"), return_tensors="pt")["pixel_values"][0]
    line = recipe("render").Line(image, np.array([0.0, size[0]]))
    batches = recipe("batches")
    ours = batches.collate([batches.fitted("a", line)], random.Random(0), full=True)
    assert theirs.shape == (3, 32, 768)
    torch.testing.assert_close(ours.pixels.expand(3, -1, -1), theirs, atol=0.01, rtol=0)


def test_gray_lines_are_encoded_as_by_transformers(
    recipe: Callable[[str], ModuleType], exported: tuple[Path, Any]
) -> None:
    module = exported[1]
    gray = torch.rand(2, 32, 768, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.inference_mode():
        theirs = module.encoder(gray[:, None].expand(-1, 3, -1, -1)).last_hidden_state
        ours = recipe("model").encode(module, gray)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_each_place_is_labelled_with_its_character(
    recipe: Callable[[str], ModuleType], faces: Any, strength: float
) -> None:
    """However a line is bent and cut, its ink lies where its characters are said to be."""
    render, batches, rng = recipe("render"), recipe("batches"), random.Random(4)
    for _ in range(20):
        line = render.line_image("HH    HH", faces, rng, strength)
        batch = batches.collate([batches.fitted("HH    HH", line)], rng)
        labels, expected = batch.frames[0], recipe("alphabet").encode("H ")
        columns = batch.pixels[0].view(32, -1, batches.FRAME)
        spread = columns.std((0, 2))
        inked, spaces = spread[labels == expected[0]], spread[labels == expected[1]][2:-2]
        assert inked.mean() > 1.5 * spaces.mean()


def test_heads_begin_as_a_convolution(recipe: Callable[[str], ModuleType]) -> None:
    """The first heads look at the columns beside: what makes training start at once."""
    model = recipe("model").new_model(width=224, encoder_layers=1, decoder_layers=1)
    model.encoder.set_attn_implementation("eager")
    gray = torch.ones(1, 3, 32, 768)
    with torch.inference_mode():
        hidden = model.encoder.embeddings(gray)
        layer = model.encoder.layers[0]
        _, weights = layer.attention(layer.layernorm_before(hidden))
    middle = weights[0, :6, 1 + 40, 1:].argmax(-1)
    assert middle.tolist() == [37, 38, 39, 41, 42, 43]


def test_filters_begin_at_unit_size(
    recipe: Callable[[str], ModuleType], texts: Any, faces: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strongest of them, whose channels are not those of positions, see no brightness."""
    module, batches = recipe("model"), recipe("batches")
    model = module.new_model(width=64, encoder_layers=1, decoder_layers=1)
    monkeypatch.setattr(batches, "POOL", 48)
    pixels = next(iter(batches.Feed(texts, faces, 2000, seed=1, longest=12))).pixels
    module.whiten(model, pixels)
    projection = model.encoder.embeddings.patch_embeddings.projection
    with torch.no_grad():
        seen = projection(pixels[:, None].expand(-1, 3, -1, -1))[:, :, 0]
    inked = seen[:, :, 2:-2].std((0, 2))
    assert inked[:32].max() == 0
    assert inked[32:].min() > 0.5
    assert inked[32:].max() < 2


def test_the_tokenizer_keeps_every_character(
    recipe: Callable[[str], ModuleType], exported: tuple[Path, Any]
) -> None:
    alphabet = recipe("alphabet")
    tokenizer = AutoTokenizer.from_pretrained(exported[0])
    for text in (
        "Größe: 1.024,50 € (ca. 3 % )",
        '„Ja“, said Tom - "why not?" ',
        alphabet.CHARACTERS,
    ):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert ids == alphabet.encode(text)
        assert tokenizer.decode(ids) == text


def test_read_as_transformers_reads(
    recipe: Callable[[str], ModuleType], exported: tuple[Path, Any], faces: Any
) -> None:
    folder, module = exported
    assert resolve(folder).task == "reading"
    picture = recipe("render").clean_image("Grüß Gott!", faces, random.Random(2)).image
    pixels = open_image_processor(folder)(picture.convert("RGB"), return_tensors="pt")
    ids = module.generate(**pixels, max_new_tokens=12, do_sample=False)[0, 1:].tolist()
    with Reader(folder, device="cpu") as reader:
        assert reader.reads_lines
        (line,) = reader.read(picture, ReadOptions(lines="whole", max_new_tokens=12)).lines
    assert [*line.tokens] == ids[: len(line.tokens)]
    text = AutoTokenizer.from_pretrained(folder).decode(ids, skip_special_tokens=True)
    assert line.text == text.strip()


def test_training_learns_and_goes_on(
    recipe: Callable[[str], ModuleType],
    texts: Any,
    faces: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = recipe("train")
    torch.manual_seed(1)
    model = recipe("model").new_model(width=64, encoder_layers=1, decoder_layers=1)
    batches = recipe("batches")
    head = torch.nn.Linear(64, 2 * (batches.PAPER + 1))
    optimizers = train.optimizers_of(model, head)
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = 3e-3
    monkeypatch.setattr(batches, "POOL", 8)
    batch = next(iter(batches.Feed(texts, faces, 200, seed=1, longest=8)))
    with torch.no_grad():
        before = sum(train.losses(model, head, batch))
    for _ in range(25):
        written, seen, looked = train.losses(model, head, batch)
        model.zero_grad()
        head.zero_grad()
        (written + seen + looked).backward()
        for optimizer in optimizers:
            optimizer.step()
    with torch.no_grad():
        assert sum(train.losses(model, head, batch)) < before / 2
    train.save(tmp_path, model, head, optimizers, 25, 9.0, 3)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert (state["step"], state["seconds"], state["pool"]) == (25, 9.0, 3)
    again = VisionEncoderDecoderModel.from_pretrained(tmp_path / "model")
    assert torch.equal(again.encoder.embeddings.cls_token, model.encoder.embeddings.cls_token)


def test_figures_come_from_the_program(
    recipe: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    evaluate = recipe("evaluate")
    for kind in ("clean", "scanned"):
        (tmp_path / kind).mkdir()
        lines = {"000.png": "four", "001.png": "line"}
        (tmp_path / kind / "lines.json").write_text(json.dumps(lines), "utf-8")
    monkeypatch.setattr(evaluate, "read", lambda *_: {"000.png": "four", "001.png": "lime"})
    monkeypatch.setattr(sys, "argv", ["evaluate.py", "--lines", str(tmp_path), "--model", "x"])
    evaluate.main()
    out, err = capsys.readouterr()
    assert "| clean print, faces never seen | 2 | 8 | 12.5 % | 1 |" in out
    assert "line → lime" in err
