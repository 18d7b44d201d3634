"""The engine of the application and the notes about it."""

from __future__ import annotations

import pytest

from edgeapp.model_pool import ModelPool
from edgeapp.settings import Settings
from pipelines.engine import Engine


@pytest.mark.parametrize(
    ("kept", "end"), [(True, "some 15 seconds, this once\n"), (False, "some 15 seconds\n")]
)
def test_compiling_is_announced_once_only_if_the_result_is_kept(
    kept: bool, end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Engine, "needs_compiling", True)
    monkeypatch.setattr(Engine, "kernel_cache_is_writable", kept)
    pool = ModelPool(Settings())
    try:
        assert pool.engine.needs_compiling
    finally:
        pool.engine.close()
    assert capsys.readouterr().err.endswith(f"compiling kernels for this CPU: {end}")
