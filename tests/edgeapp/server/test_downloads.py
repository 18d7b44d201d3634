"""The download of a model: the server's, one at a time, which all pages see."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeapp.server.downloads import Downloads
from pipelines import ModelNotFound, OptionError
from pipelines.hub import PullProgress, ResolvedModel

END = {"done", "failed", "cancelled"}


class Page:
    """What a page is sent."""

    def __init__(self, downloads: Downloads) -> None:
        self.messages: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self.joined = downloads.join(self.send)

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if message["state"] in END:
            self._ended.set()

    def end(self) -> dict[str, Any]:
        assert self._ended.wait(60)
        self._ended.clear()
        return self.messages[-1]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], None]]:
    """What happens behind the first byte of each model's download."""
    acts: dict[str, Callable[[], None]] = {}

    def pull(name: str, report: Callable[[PullProgress], None]) -> ResolvedModel:
        report(PullProgress("model.bin", 1, 4))
        acts[name]()
        report(PullProgress("model.bin", 4, 4))
        return ResolvedModel(name, "asr", Path(name), "hub", note="the index had it")

    monkeypatch.setattr("pipelines.hub.pull", pull)
    return acts


def test_a_download_goes_on_without_the_page_that_began_it(
    hub: dict[str, Callable[[], None]],
) -> None:
    go_on = threading.Event()

    def wait() -> None:
        assert go_on.wait(60)

    hub["base"] = wait
    downloads = Downloads()
    first = Page(downloads)
    assert first.joined is None
    downloads.begin("base")
    downloads.leave(first.send)
    second = Page(downloads)
    assert second.joined is not None
    assert (second.joined["state"], second.joined["name"]) == ("running", "base")
    downloads.begin("base")  # it is the same one
    with pytest.raises(OptionError, match="base is being downloaded"):
        downloads.begin("tiny")
    go_on.set()
    assert second.end() == {
        "type": "download", "state": "done", "name": "base", "note": "the index had it",
    }  # fmt: skip
    assert first.messages[-1]["state"] == "running", "it has left"
    assert Page(downloads).joined is None
    downloads.close()


def test_a_download_that_fails_or_is_cancelled_makes_room_for_the_next(
    hub: dict[str, Callable[[], None]],
) -> None:
    def refuse() -> None:
        raise ModelNotFound("the hub has no base")

    downloads = Downloads()
    page = Page(downloads)
    hub["base"] = refuse
    downloads.begin("base")
    assert page.end()["message"] == "the hub has no base"
    hub["base"] = downloads.cancel
    downloads.begin("base")
    assert page.end()["state"] == "cancelled"
    hub["base"] = lambda: None
    downloads.begin("base")
    assert page.end()["state"] == "done"
    downloads.close()


def test_a_server_that_ends_ends_its_download(hub: dict[str, Callable[[], None]]) -> None:
    begun, closing = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert closing.wait(60)

    hub["base"] = wait
    downloads = Downloads()
    page = Page(downloads)
    downloads.begin("base")
    assert begun.wait(60)
    downloads.cancel()
    closing.set()
    downloads.close()
    assert page.messages[-1]["state"] == "cancelled"
