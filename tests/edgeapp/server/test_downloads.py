"""The download of a model: the server's, one at a time, which all pages see."""

from __future__ import annotations

import threading
import time
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
        self.ended = threading.Event()
        downloads.join(self.send, {"type": "hello"})
        self.joined = self.messages[0]["download"]

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if message.get("state") in END:
            self.ended.set()

    def end(self) -> dict[str, Any]:
        assert self.ended.wait(60)
        self.ended.clear()
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


def held(hub: dict[str, Callable[[], None]]) -> threading.Event:
    """Hold the download of base back until the event that is returned is set."""
    go_on = threading.Event()

    def wait() -> None:
        assert go_on.wait(60)

    hub["base"] = wait
    return go_on


def test_a_download_goes_on_without_the_page_that_began_it(
    hub: dict[str, Callable[[], None]],
) -> None:
    go_on = held(hub)
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


def test_a_server_that_ends_ends_its_download(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def pull(name: str, report: Callable[[PullProgress], None]) -> ResolvedModel:
        for done in range(6_000):  # a minute
            report(PullProgress("model.bin", done, 6_000))
            begun.set()
            time.sleep(0.01)
        raise AssertionError(f"{name} was not cancelled")

    monkeypatch.setattr("pipelines.hub.pull", pull)
    downloads = Downloads()
    page = Page(downloads)
    downloads.begin("base")
    assert begun.wait(60)
    downloads.close()
    assert page.messages[-1]["state"] == "cancelled"


def test_a_download_that_ends_as_a_page_joins_ends_for_that_page(
    hub: dict[str, Callable[[], None]],
) -> None:
    go_on = held(hub)
    downloads = Downloads()
    other = Page(downloads)
    downloads.begin("base")
    sent: list[dict[str, Any]] = []

    def send(message: dict[str, Any]) -> None:
        if message["type"] == "hello":
            go_on.set()
            other.ended.wait(0.2)  # in vain, because the end has to wait for this message
        sent.append(message)

    downloads.join(send, {"type": "hello"})
    other.end()
    first, *_, last = sent
    assert (first["type"], first["download"]["state"]) == ("hello", "running")
    assert last["state"] == "done"
    downloads.close()
