"""A draft model with a shortlist drafts these ids only; the output stays the model's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.engine import (
    Drafting,
    Engine,
    GenerationOptions,
    LoadedModel,
    NoRepeatNgram,
    Request,
    load_draft_model,
)
from pipelines.errors import CheckpointError
from tests.engine.conftest import Folders, mel_source, token_sources

pytestmark = pytest.mark.usefixtures("unpaused_drafts")

MARIAN, WHISPER = "marian:opus-mt-en-de", "whisper:tiny"
LENGTH = 30
OPTIONS = GenerationOptions(max_new_tokens=LENGTH, logit_filters=(NoRepeatNgram(1),))


@pytest.fixture(scope="module", params=["float32", "int8"])
def typed_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(device="cpu", compute_type=request.param, threads=1) as engine:
        yield engine


def with_shortlist(folder: Path, target: Path, ids: object) -> Path:
    """A copy of a model folder that has a shortlist."""
    shutil.copytree(folder, target)
    (target / "shortlist.json").write_text(json.dumps(ids))
    return target


def sources_of(model: LoadedModel) -> list[object]:
    if model.architecture.source == "audio":
        return [mel_source(model, seed) for seed in range(4)]
    return list(token_sources(model, [5, 9, 14, 30]))


@pytest.mark.slow
@pytest.mark.parametrize("spec", [MARIAN, WHISPER])
def test_the_output_has_other_ids_too(
    typed_engine: Engine, checkpoints: Folders, spec: str, tmp_path: Path
) -> None:
    """Greedily, alone and in a batch: the draft model has the same weights, so that it is right
    wherever it can be."""
    model = typed_engine.load(checkpoints(spec))
    architecture = model.architecture
    start, eos = (architecture.start_id,), architecture.eos_ids[0]
    plain = typed_engine.generate(
        [Request(e, start, OPTIONS) for e in model.encode(sources_of(model))]
    )
    written = sorted({token for result in plain for token in result.tokens})
    kept = sorted({*written[::2], eos})
    folder = with_shortlist(checkpoints(spec), tmp_path / "draft", kept)
    draft_model = load_draft_model(typed_engine, folder)
    drafting = Drafting(model, draft_model)
    requests = [
        Request(e, start, OPTIONS, drafter=drafting.drafter_for(e, OPTIONS))
        for e in drafting.encode(sources_of(model))
    ]
    together = typed_engine.generate(requests)
    alone = [typed_engine.generate([request])[0] for request in requests]
    for found in (together, alone):
        assert [result.tokens for result in found] == [result.tokens for result in plain]
        accepted = sum(result.accepted for result in found)
        assert 0 < accepted <= sum(token in kept for result in plain for token in result.tokens)
        assert sum(result.drafted for result in found) > accepted
    drafter = requests[0].drafter
    assert drafter is not None
    proposal = drafter.start(start, OPTIONS).propose(start, LENGTH)
    assert proposal.tokens
    assert {*proposal.tokens} <= {*kept}


def test_within_the_shortlist_of_the_model(
    engine: Engine, checkpoints: Folders, tmp_path: Path
) -> None:
    folder = checkpoints(MARIAN)
    eos = engine.load(folder).architecture.eos_ids[0]
    draft = with_shortlist(folder, tmp_path / "draft", [eos, 30, 40, 50])
    backend = load_draft_model(engine, draft, [eos, 40, 60]).backend
    assert backend.shortlist == tuple(sorted((eos, 40)))  # type: ignore[attr-defined]
    assert load_draft_model(engine, folder) is engine.load(folder)


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        ({"ids": [0]}, "does not hold a JSON list"),
        ([0, "1"], "does not hold a list of token ids"),
        ([0, True], "does not hold a list of token ids"),
        ([0, 58_101], "contains the id 58101"),
        ([7], "must include an end-of-text id"),
    ],
    ids=str,
)
def test_an_unusable_one_is_refused(
    engine: Engine, checkpoints: Folders, tmp_path: Path, ids: object, why: str
) -> None:
    folder = with_shortlist(checkpoints(MARIAN), tmp_path / "draft", ids)
    with pytest.raises(CheckpointError, match=why):
        load_draft_model(engine, folder)
