"""The models behind the page: shared, counted, put back when nobody uses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeapp.server.model_list import model_list
from edgeapp.server.picker_options import language_name, picker_options
from edgeapp.server.sessions import SessionAbandoned
from edgeapp.server.shared_models import ModelChoice, SharedModelPool
from edgeapp.server.tasks.text_task import TextTask
from edgeapp.settings import Settings
from pipelines.errors import ModelError, OptionError


@pytest.fixture(scope="module")
def pool() -> SharedModelPool:
    return SharedModelPool(Settings(threads=1))


def test_what_there_is_to_choose(hub_cache: Path) -> None:
    known = picker_options()
    assert [(one.name, one.languages) for one in known.recognisers] == [("demo", ("en",))]
    assert [(pair.model, pair.source, pair.target) for pair in known.pairs] == [
        ("demo-en-de", "en", "de"),
        ("demo-de-en", "de", "en"),
    ]
    assert known.as_message()["languages"] == {"de": "German", "en": "English"}
    assert language_name("xx") == "xx"


def test_models_of_many_languages(
    hub_cache: Path, whisper_folder: Callable[..., Path], marian_folder: Callable[..., Path]
) -> None:
    for name, folder in (
        ("someone/many", whisper_folder("tiny")),
        ("Helsinki-NLP/opus-mt-en-mul", marian_folder("opus-mt-en-mul")),
    ):
        storage = hub_cache / f"models--{name.replace('/', '--')}"
        (storage / "refs").mkdir(parents=True)
        (storage / "refs" / "main").write_text("a" * 40, "utf-8")
        (storage / "snapshots").mkdir()
        (storage / "snapshots" / ("a" * 40)).symlink_to(folder)
    known = picker_options()
    many = next(one for one in known.recognisers if one.name == "someone/many")
    assert len(many.languages) >= 99
    assert {"en", "de", "zh"} <= set(many.languages)
    targets = {pair.target for pair in known.pairs if pair.model == "opus-mt-en-mul"}
    assert {"fr", "de"} <= targets


def test_a_model_in_use_stays(pool: SharedModelPool, hub_cache: Path) -> None:
    translator = pool.translator(None, "en", "de")
    assert pool.translator(None, "en", "de") is translator
    assert pool.name_of(translator) == "demo-en-de"
    folder = translator.model.folder
    with pool.using(translator):
        shown = next(one for one in model_list(pool) if one["name"] == "demo-en-de")
        assert shown["loaded"]["users"] == 1
        assert "folder" not in shown
        with pytest.raises(ModelError, match="is in use"):
            pool.unload(folder)
    pool.unload(folder)
    assert folder not in [model.folder for model in pool.loaded]
    with pytest.raises(ModelError, match="is not loaded"):
        pool.unload(folder)


def test_a_page_names_no_folders(pool: SharedModelPool, hub_cache: Path, tmp_path: Path) -> None:
    for name in (str(tmp_path), "/etc", "tiny"):
        with pytest.raises(ModelError, match="not among the models"):
            pool.transcriber(name, None)
        with pytest.raises(ModelError, match="not among the models"):
            pool.translator(name, "en", "de")
    with pytest.raises(OptionError, match="model: 3 is no choice"):
        ModelChoice.of({"model": 3})
    assert ModelChoice.of({"model": "", "target": "de"}) == ModelChoice(target="de")


def test_a_text(pool: SharedModelPool, hub_cache: Path) -> None:
    told: list[dict[str, object]] = []
    TextTask(pool, ModelChoice(language="en", target="de"), "Good morning.", 7).run(told.append)
    assert {message["number"] for message in told} == {7}
    (expected,) = pool.translator(None, "en", "de").translate("Good morning.")
    assert told[-1]["text"] == expected.text
    assert "".join(str(m["text"]) for m in told if m["type"] == "text_delta") == expected.text


def test_a_text_that_nobody_waits_for(pool: SharedModelPool, hub_cache: Path) -> None:
    told: list[dict[str, object]] = []
    task = TextTask(pool, ModelChoice(language="en", target="de"), "Good morning. " * 50, 1)

    def send(message: dict[str, object]) -> None:
        told.append(message)
        task.abandon()

    with pytest.raises(SessionAbandoned):
        task.run(send)
    assert len(told) == 1, "it ends with the next token"
    assert pool.users(pool.translator(None, "en", "de").model.folder) == 0
