"""Uploaded pictures: their text, line by line, with its translation and a record; hostile ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeapp.history import History
from edgeapp.model_pool import ModelPool
from edgeapp.server.page.picker_options import ModelChoice, picker_options
from edgeapp.server.sessions import Session, Sessions, TaskCancelled
from edgeapp.server.tasks.picture_task import PictureTask
from edgeapp.settings import Settings
from pipelines.errors import InputError, ModelError
from tests.fixtures.wrapped import save_line_reader
from tests.reading.pages import page

pytestmark = [
    pytest.mark.usefixtures("kernels"),
    pytest.mark.filterwarnings("ignore:.*run by transformers"),
    pytest.mark.slow,
]

REPOSITORY = "some/line-reader"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the hub with a small TrOCR, which makes words up."""
    cache = tmp_path_factory.mktemp("cache")
    save_line_reader(cache / "models--some--line-reader" / "snapshots" / ("a" * 40))
    return cache


@pytest.fixture(scope="module")
def pool() -> ModelPool:
    return ModelPool(Settings(), listed_only=True)


@pytest.fixture(autouse=True)
def _cached(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.hub.cache.cache_folder", lambda: storage)


def uploaded(folder: Path) -> Path:
    path = folder / "0f0f0f"
    page().save(path, "PNG")
    return path


def test_its_text_arrives_line_by_line_and_is_stored(tmp_path: Path, pool: ModelPool) -> None:
    path, messages = uploaded(tmp_path), list[dict[str, Any]]()
    history = History(tmp_path / "history.db")
    choice = ModelChoice(language="en", target="de")
    PictureTask(pool, history, choice, path, "page.png", "").run(messages.append)
    assert not path.exists()
    kinds = [message["type"] for message in messages]
    assert kinds[0] == "picture_lines"
    assert kinds[-2:] == ["picture_translated", "picture_done"]
    lines = [message["line"] for message in messages if message["type"] == "picture_line"]
    assert len(lines) == len(messages[0]["boxes"]) == 4
    live = "".join(m["text"] for m in messages if m["type"] == "picture_delta")
    assert live == "".join(line["text"] for line in lines)
    record = history.open(messages[-1]["record"])
    assert record is not None
    assert record.text == "\n".join(line["text"] for line in lines)
    assert (record.title, record.model, record.target) == ("page.png", REPOSITORY, "de")
    assert record.translation == messages[-2]["text"]
    history.close()


def test_it_is_offered_and_can_be_unloaded(pool: ModelPool) -> None:
    assert picker_options().as_message()["readers"] == [
        {"name": "reader", "bundled": True},
        {"name": REPOSITORY, "bundled": False},
    ]
    pool.load(REPOSITORY, "reading")
    reader = pool.reader(None)
    assert reader is pool.reader(REPOSITORY)
    with pool.using(reader), pytest.raises(ModelError, match="is in use"):
        pool.unload(reader.model.folder)
    pool.unload(reader.model.folder)
    assert pool.reader(None) is not reader
    with pytest.raises(ModelError, match="cannot read pictures"):
        pool.reader("demo")


def test_a_file_that_is_no_picture_is_refused_under_its_own_name(
    tmp_path: Path, pool: ModelPool
) -> None:
    path = tmp_path / "0f0f0f"
    path.write_bytes(b"GIF89a" + bytes(100))
    task = PictureTask(pool, History(None), ModelChoice(), path, "page.png", "")
    with pytest.raises(InputError, match="the picture") as caught:
        task.run(lambda message: None)
    assert "0f0f0f" not in str(caught.value)
    assert not path.exists()


def test_cancelling(tmp_path: Path, pool: ModelPool) -> None:
    path, messages = uploaded(tmp_path), list[dict[str, Any]]()
    task = PictureTask(pool, History(None), ModelChoice(), path, "page.png", "")

    def send(message: dict[str, Any]) -> None:
        messages.append(message)
        task.cancel()

    with pytest.raises(TaskCancelled):
        task.run(send)
    assert [message["type"] for message in messages] == ["picture_lines"]
    gone = PictureTask(pool, History(None), ModelChoice(), path, "page.png", "")
    messages.clear()
    session = Session(Sessions(1), messages.append)
    session.start(gone)
    assert session.wait(60)
    assert messages == [{"type": "idle", "kind": "picture", "cancelled": True}]
