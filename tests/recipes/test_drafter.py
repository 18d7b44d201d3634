"""The recipe of drafters, at toy size: teach, train, export, and draft with what comes out."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pipelines import SAMPLE_RATE, TranscribeOptions, Transcriber
from pipelines.engine import Engine
from tests.fixtures.checkpoints import write_whisper

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unpaused_drafts")]

RECIPE = Path(__file__).parents[2] / "assets/recipes/drafter"
POSITIONS = 100  # of the encoder: windows of 2 s
TAUGHT, USED = ("0", "1", "2"), ("0", "2")  # layers

Recipe = Callable[[str], ModuleType]


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recipe]:
    """recipe("train") → the script as a module; other recipes have files of the same names."""
    monkeypatch.syspath_prepend(str(RECIPE))
    names = {path.stem for path in RECIPE.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    yield importlib.import_module
    for name in names & sys.modules.keys():
        del sys.modules[name]
    sys.modules.update(others)


def spoken(folder: Path) -> Path:
    """A shard as speak.py writes it: six noises."""
    folder.mkdir()
    luck, lengths = np.random.default_rng(0), [9000, 20_000, 15_000, 8000, 30_000, 12_000]
    np.save(folder / "a.npy", luck.integers(-9000, 9000, sum(lengths), np.int16))
    (folder / "a.json").write_text(json.dumps([["Text.", "voice", n] for n in lengths]))
    return folder


def test_from_speech_to_drafts(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_whisper(
        tmp_path / "model", "tiny", decoder_layers=3, source_positions=POSITIONS,
        target_positions=64, dtype="float32",
    )  # fmt: skip
    lessons, run, out = tmp_path / "lessons", tmp_path / "run", tmp_path / "draft"
    teach, train, student, export = map(recipe, ("teach", "train", "student", "export"))

    def call(module: ModuleType, *arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
        module.main()

    monkeypatch.setattr(teach, "AT_ONCE", 4)
    monkeypatch.setattr(train, "HELD_OUT", 2)
    speech = spoken(tmp_path / "speech")
    for count in (4, 8):  # the second time it goes on
        call(
            teach, "--model", model, "--speech", speech, "--out", lessons,
            "--layers", *TAUGHT, "--count", count,
        )  # fmt: skip
    assert len(list(lessons.iterdir())) == 8
    call(
        train, "--model", model, "--lessons", lessons, "--run", run, "--taught", *TAUGHT,
        "--layers", *USED, "--shortlist", 300, "--minutes", 0.03, "--batch", 2,
    )  # fmt: skip
    call(export, "--model", model, "--run", run, "--out", out)

    with Engine(device="cpu", compute_type="float32", threads=1) as engine:
        plain = Transcriber(model, engine=engine)
        drafted = Transcriber(model, engine=engine, draft_model=out)
        drafting = drafted._recognizer.drafting
        assert drafting._shared_layers == (0, 2), "it attends to what the teacher computes"
        # The student that was trained is what the engine runs.
        mel = torch.randn(80, 2 * POSITIONS, generator=torch.Generator().manual_seed(1))
        (encoded,) = drafting.encode([mel])
        source, ids = drafting._encoded[encoded], [50_258, 50_259, 50_359, 400, 11]
        shortlist = json.loads((out / "shortlist.json").read_text())
        state = torch.load(run / "checkpoint.pt", weights_only=True)["student"]
        learned = student.Student(load_file(model / "model.safetensors"), 4, (0, 2), shortlist)
        learned.load_state_dict(state)
        keys, values = (torch.stack(each)[None] for each in (source.keys, source.values))
        with torch.no_grad():
            expected = learned(torch.tensor([ids]), keys, values)[0] @ learned.head.T
        draft_model = drafting._draft_model
        assert draft_model is not None
        found = draft_model.score(source, ids)
        torch.testing.assert_close(found[:, shortlist], expected, atol=1e-3, rtol=1e-3)
        assert (found == -torch.inf).sum() == len(ids) * (51_865 - len(shortlist))
        # Drafts do not change what is recognized.
        samples = np.random.default_rng(3).normal(0, 0.1, 5 * SAMPLE_RATE).astype(np.float32)
        options = TranscribeOptions(language="en", temperature=0.0, batch_size=1)  # it is noise
        results = [
            [segment.tokens for segment in each.transcribe(samples, options)]
            for each in (plain, drafted)
        ]
        assert results[0] == results[1]
        report = drafted.draft_report
        assert report is not None
        assert report.drafted


def test_a_checkpoint_is_gone_on_from(recipe: Recipe, tmp_path: Path) -> None:
    """What was trained for its minutes is not trained again, nor is its shortlist counted anew."""
    shortlist = recipe("shortlist")
    (tmp_path / "shortlist.json").write_text("[1, 2, 50257]\n")
    kept = shortlist.make_shortlist(tmp_path, tmp_path, None, 9, tmp_path)
    assert kept == [1, 2, 50257]
