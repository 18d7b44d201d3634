"""The loaded models of a process: loaded once, shared by threads, counted, unloaded when idle."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edgeapp.model_pool import ModelPool
from edgeapp.settings import Settings
from pipelines import Translator
from pipelines.engine import Engine
from pipelines.errors import ModelError
from pipelines.hub import assets_folder

DEMO = assets_folder() / "models" / "demo-en-de"


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool(Settings(threads=1))


def test_a_model_in_use_is_not_unloaded(pool: ModelPool, hub_cache: Path) -> None:
    translator = pool.translator(None, "en", "de")
    assert pool.translator(None, "en", "de") is translator
    assert pool.name_of(translator) == "demo-en-de"
    folder = translator.model.folder
    with pool.using(translator):
        assert pool.use_count(folder) == 1
        with pytest.raises(ModelError, match="is in use"):
            pool.unload(folder)
    pool.unload(folder)
    assert folder not in [model.folder for model in pool.loaded]
    with pytest.raises(ModelError, match="is not loaded"):
        pool.unload(folder)
    assert pool.translator(None, "en", "de") is not translator


def test_threads_share_a_model(pool: ModelPool, hub_cache: Path) -> None:
    translators: list[Translator] = []
    start = threading.Barrier(4)

    def load() -> None:
        start.wait(10)
        translators.append(pool.translator("demo-de-en", None, None))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(translators) == 4
    assert all(each is translators[0] for each in translators)
    assert len([m for m in pool.loaded if m.folder == translators[0].model.folder]) == 1


def test_only_listed_models(hub_cache: Path, tmp_path: Path) -> None:
    pool = ModelPool(Settings(threads=1), listed_only=True)
    for name in (str(tmp_path), "/etc", "tiny", str(DEMO)):
        with pytest.raises(ModelError, match="not among the models"):
            pool.transcriber(name, None)
        with pytest.raises(ModelError, match="not among the models"):
            pool.translator(name, "en", "de")
        with pytest.raises(ModelError, match="not among the models"):
            pool.load(name, "translation")
    assert pool.loaded == ()


def test_a_folder_may_be_named_on_the_command_line(pool: ModelPool, hub_cache: Path) -> None:
    assert DEMO.is_dir()
    assert pool.translator(str(DEMO), "en", "de").model.folder == DEMO.resolve()


def test_the_settings_may_name_a_folder(hub_cache: Path) -> None:
    pool = ModelPool(Settings(threads=1, translation_model=str(DEMO)), listed_only=True)
    assert pool.translator(str(DEMO), "en", "de").model.folder == DEMO.resolve()


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
