"""The plugin that runs other tests on the stand-in for a GPU finds what it replaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.engine import Engine
from tests.engine import on_other_device
from tests.engine.conftest import Folders
from tests.engine.model.test_cuda_graphs import graph_runner_of, requests_of, sources_of

pytestmark = pytest.mark.slow


def test_engines_compute_there_by_recorded_passes(checkpoints: Folders) -> None:
    folder: Path = checkpoints("marian:opus-mt-en-de")
    on_other_device.pytest_sessionstart()
    try:
        with Engine(threads=1) as engine:
            model = engine.load(folder)
            requests = requests_of(model, model.encode(sources_of(model)[:2]), most=20)
            assert all(result.tokens for result in engine.generate(requests))
            assert graph_runner_of(model).replays > 0
    finally:
        on_other_device.pytest_sessionfinish()
    assert Engine(threads=1).device in ("cpu", "cuda")
