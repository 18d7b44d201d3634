"""The page on a machine without a recognizer for people's voices: a card offers one."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.hub import assets_folder
from tests.e2e.test_ui_access import AXE, violations
from tests.fixtures.browser import Desk, ready, serving
from tests.fixtures.hub import Answer, Hub

pytestmark = pytest.mark.slow
TALK = assets_folder() / "samples" / "question.flac"
WEIGHTS = "model.bin"
CARD = ".ea-need:visible"
HIDE = """() => {
    Object.defineProperty(document, 'hidden', { get: () => true });
    Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' });
}"""

RECONNECT = """async () => {
    const { on, reconnect } = await import('/edgeapp/static/session.js');
    reconnect();
    await new Promise((connected) => on('hello', () => connected()));
}"""


@pytest.fixture
def bare(
    page_environment: dict[str, str], hosted_base: dict[str, str], tmp_path: Path
) -> Callable[..., Any]:
    """Starts servers without a recognizer for people's voices; the stand-in hub has one."""
    environment = page_environment | hosted_base | {"HF_HUB_CACHE": str(tmp_path / "models")}
    del environment["EDGEAPP_MODEL"]

    def start(*options: str) -> Any:
        return serving(environment, *options, log=tmp_path / "log.txt")

    return start


@pytest.fixture
def dripping(stand_in_hub: Hub, hosted_base: dict[str, str]) -> Iterator[threading.Event]:
    """The weights come in small pieces until this event is set."""
    enough = threading.Event()
    (hosted,) = (each for each in stand_in_hub.repositories.values() if WEIGHTS in each.files)
    content = hosted.files[WEIGHTS]

    class Pieces:
        def __iter__(self) -> Iterator[bytes]:
            at = 0
            while at < len(content):
                step = len(content) if enough.wait(0.1) else 16
                yield content[at : at + step]
                at += step

    size = str(len(content))
    stand_in_hub.answers[WEIGHTS] = Answer(body=Pieces(), headers={"Content-Length": size})
    yield enough
    enough.set()
    del stand_in_hub.answers[WEIGHTS]


def another(desk: Desk, tab: str) -> Any:
    """One more tab of the same browser."""
    page = desk.context.new_page()
    page.goto(f"{desk.url}#{tab}")
    ready(page, tab)
    return page


def goes_on(models: Any) -> None:
    """Wait until the Models tab is told that a download is further."""
    done = models.locator(".ea-pull progress").evaluate("(bar) => bar.value")
    models.wait_for_function(
        "(done) => document.querySelector('.ea-pull progress').value > done", arg=done
    )


def test_the_download_outlives_its_tab_and_captions_start_in_the_one_that_pressed_start(
    browser: Any, bare: Callable[..., Any], dripping: threading.Event
) -> None:
    with bare() as server:
        desk = Desk(browser, server.url)
        page = desk.open("live", locale="en-GB")
        page.wait_for_selector(f"{CARD}:has-text('Whisper base, 99 languages, 145 MB')")
        assert re.search(r"[\d.]+ GB are free", page.inner_text(CARD))
        page.evaluate(AXE)
        assert not violations(page)
        page.click(".ea-start")
        page.wait_for_selector(f"{CARD}:has-text('Captions start as soon as it is here')")
        page.wait_for_selector(".ea-start:has-text('Waiting')")
        assert page.is_hidden("#ea-live .ea-problem")
        page.click(f"{CARD} button:has-text('Download')")
        page.wait_for_selector(f"{CARD}:has-text('Getting base')")
        keeps = another(desk, "file")  # the browser's window stays open
        page.close()

        keeps.wait_for_selector(f"{CARD}:has-text('Getting base')")
        keeps.set_input_files("#ea-file input[type=file]", TALK)
        keeps.wait_for_selector("#ea-file .ea-left:has-text('Waiting for the model')")
        started, hidden, looks = (another(desk, "live") for _ in range(3))
        for tab in (started, hidden, looks):
            tab.wait_for_selector(f"{CARD}:has-text('Getting base')")
            tab.wait_for_selector(f"{CARD} progress")
        for tab in (started, hidden):
            tab.click(".ea-start")
            tab.wait_for_selector(f"{CARD}:has-text('Captions start as soon as it is here')")
        hidden.evaluate(HIDE)
        keeps.evaluate(RECONNECT)
        looks.select_option("#ea-live [name=target]", "de")
        models = another(desk, "models")
        models.wait_for_selector(".ea-pull:has-text('base')")
        pictures = another(desk, "pictures")
        pictures.wait_for_selector(".ea-demo:has-text('base is being downloaded.')")
        assert pictures.is_disabled(".ea-demo button:has-text('Get microsoft/')")

        dripping.set()
        started.wait_for_selector(".ea-live[data-state=listening]")
        started.click(".ea-start")  # the recording needs the cores
        started.wait_for_selector(".ea-live[data-state=idle]")
        keeps.wait_for_selector("#ea-file .ea-left:has-text('Done.')")
        models.wait_for_selector(".ea-rows li:has-text('base')")
        pictures.wait_for_selector(".ea-demo:has-text('Bundled reader')")
        assert not pictures.is_disabled(".ea-demo button:has-text('Get microsoft/')")
        assert pictures.locator(".ea-toasts p").count() == 0, "its better reader has not come"
        for tab in (started, hidden, looks):
            tab.wait_for_selector(".ea-need", state="hidden")
        for tab in (hidden, looks):
            assert tab.get_attribute(".ea-live", "data-state") == "idle"
            assert tab.inner_text(".ea-start") == "Start"
            assert tab.input_value("#ea-live [name=language]") == "", "detected, not English"
        again = another(desk, "live")
        again.wait_for_selector("#ea-live [name=language] option[value=de]", state="attached")
        assert again.input_value("#ea-live [name=language]") == "", "English was not chosen"
        assert again.input_value("#ea-live [name=target]") == "de"
        desk.close()


def test_one_download_at_a_time_and_a_cancelled_one(
    browser: Any, bare: Callable[..., Any], dripping: threading.Event
) -> None:
    with bare() as server:
        desk = Desk(browser, server.url)
        page = desk.open("live")
        page.click(f"{CARD} button:has-text('Download')")
        page.wait_for_selector(f"{CARD}:has-text('Getting base')")
        models = another(desk, "models")
        models.fill("[name=name]", "base")
        models.click(".ea-get [type=submit]")
        models.wait_for_selector(".ea-plan button:disabled")
        goes_on(models)
        assert models.is_visible(".ea-plan:has-text('whisper-base')"), "it was looked up"
        models.evaluate(
            "import('/edgeapp/static/download.js').then((module) => module.beginDownload('tiny'))"
        )
        models.wait_for_selector(".ea-plan:has-text('base is being downloaded')")
        goes_on(models)
        assert models.is_visible(".ea-plan:has-text('base is being downloaded')")
        models.reload()
        ready(models, "models")
        models.click(".ea-pull >> text=Cancel")
        models.wait_for_selector(".ea-pull:has-text('Cancelled')")
        page.wait_for_selector(f"{CARD}:has-text('Stopped; it resumes next time.')")
        dripping.set()
        page.click(f"{CARD} button:has-text('Download')")
        page.wait_for_selector(".ea-need", state="hidden")
        desk.close()


def test_a_download_that_fails(browser: Any, bare: Callable[..., Any], stand_in_hub: Hub) -> None:
    stand_in_hub.answers["config.json"] = Answer(503, body=b"")
    try:
        with bare() as server:
            desk = Desk(browser, server.url)
            page = desk.open("file", locale="de")
            page.click(f"{CARD} button:has-text('Herunterladen')")
            page.wait_for_selector(f"{CARD} .ea-wrong:has-text('Paketindex')")
            said = page.inner_text(f"{CARD} .ea-wrong")
            assert "\n" not in said
            assert "er antwortete 503" in said
            assert page.is_visible(f"{CARD} button:has-text('Herunterladen')")
            desk.close()
    finally:
        del stand_in_hub.answers["config.json"]


def test_who_may_not_change_models_reads_whom_to_ask(
    browser: Any, bare: Callable[..., Any]
) -> None:
    with bare("--host", "0.0.0.0", "--no-auth") as server:
        desk = Desk(browser, server.url.replace("0.0.0.0", "127.0.0.1"))
        page = desk.open("live")
        page.wait_for_selector(
            f"{CARD}:has-text('Ask the owner of this machine to download it: edgeapp models pull')"
        )
        assert page.locator(f"{CARD} button:visible").count() == 0
        desk.close()


def test_a_sample_needs_no_download(browser: Any, bare: Callable[..., Any]) -> None:
    """The bundled recognizer knows its voice."""
    with bare() as server:
        desk = Desk(browser, server.url)
        page = desk.open("live")
        page.click(".ea-sample")
        page.wait_for_selector(".ea-said:has-text(' ')")
        page.click(".ea-start")
        page.wait_for_selector(".ea-live[data-state=idle]")
        assert page.is_visible(CARD)
        desk.close()
