"""The models behind the page: shared, counted, put back when nobody uses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeapp.server.model_list import models_on_page
from edgeapp.server.picker_options import choices, language_name
from edgeapp.server.sessions import Abandoned
from edgeapp.server.shared_models import Shelf, Wanted
from edgeapp.server.tasks.text_task import TextTask
from edgeapp.settings import Settings
from pipelines.errors import ModelError, OptionError


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Shelf(Settings(threads=1))


def test_what_there_is_to_choose(hub_cache: Path) -> None:
    known = choices()
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
    known = choices()
    many = next(one for one in known.recognisers if one.name == "someone/many")
    assert len(many.languages) >= 99
    assert {"en", "de", "zh"} <= set(many.languages)
    targets = {pair.target for pair in known.pairs if pair.model == "opus-mt-en-mul"}
    assert {"fr", "de"} <= targets


def test_a_model_in_use_stays(shelf: Shelf, hub_cache: Path) -> None:
    translator = shelf.translator(None, "en", "de")
    assert shelf.translator(None, "en", "de") is translator
    assert shelf.name_of(translator) == "demo-en-de"
    folder = translator.model.folder
    with shelf.using(translator):
        shown = next(one for one in models_on_page(shelf) if one["name"] == "demo-en-de")
        assert shown["loaded"]["users"] == 1
        assert "folder" not in shown
        with pytest.raises(ModelError, match="is in use"):
            shelf.unload(folder)
    shelf.unload(folder)
    assert folder not in [model.folder for model in shelf.loaded]
    with pytest.raises(ModelError, match="is not loaded"):
        shelf.unload(folder)


def test_a_page_names_no_folders(shelf: Shelf, hub_cache: Path, tmp_path: Path) -> None:
    for name in (str(tmp_path), "/etc", "tiny"):
        with pytest.raises(ModelError, match="not among the models"):
            shelf.transcriber(name, None)
        with pytest.raises(ModelError, match="not among the models"):
            shelf.translator(name, "en", "de")
    with pytest.raises(OptionError, match="model: 3 is no choice"):
        Wanted.of({"model": 3})
    assert Wanted.of({"model": "", "target": "de"}) == Wanted(target="de")


def test_a_text(shelf: Shelf, hub_cache: Path) -> None:
    told: list[dict[str, object]] = []
    TextTask(shelf, Wanted(language="en", target="de"), "Good morning.", 7).run(told.append)
    assert {message["number"] for message in told} == {7}
    (expected,) = shelf.translator(None, "en", "de").translate("Good morning.")
    assert told[-1]["text"] == expected.text
    assert "".join(str(m["text"]) for m in told if m["type"] == "text_delta") == expected.text


def test_a_text_that_nobody_waits_for(shelf: Shelf, hub_cache: Path) -> None:
    told: list[dict[str, object]] = []
    task = TextTask(shelf, Wanted(language="en", target="de"), "Good morning. " * 50, 1)

    def send(message: dict[str, object]) -> None:
        told.append(message)
        task.abandon()

    with pytest.raises(Abandoned):
        task.run(send)
    assert len(told) == 1, "it ends with the next token"
    assert shelf.users(shelf.translator(None, "en", "de").model.folder) == 0
