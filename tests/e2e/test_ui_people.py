"""Several users of one server: sessions are isolated, and a killed server loses no history."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.hub import assets_folder
from tests.fixtures.browser import Desk, Server, in_history, ready, serving

SAMPLES = assets_folder() / "samples"


@pytest.fixture
def office(
    page_environment: dict[str, str], program: list[str], tmp_path: Path
) -> Callable[..., Any]:
    """Starts servers that share a history file."""
    environment = page_environment | {"EDGEAPP_HISTORY": str(tmp_path / "history.db")}

    def start(*options: str) -> Any:
        return serving(environment, *options, log=tmp_path / "log.txt", program=program)

    return start


def sit(browser: Any, server: Server, tab: str) -> tuple[Desk, Any]:
    desk = Desk(browser, server.url.replace("0.0.0.0", "127.0.0.1"))
    page = desk.open(tab)
    # The languages that the server reports.
    page.evaluate(
        "import('/edgeapp/static/session.js').then(({ on }) => { window.languages = [];"
        " for (const type of ['live_listening', 'file_started'])"
        " on(type, ({ language }) => languages.push(language)) })"
    )
    return desk, page


def busy(server: Server, desk: Desk, page: Any) -> str:
    page.click("role=tab[name=Models]")
    ready(page, "models")
    page.wait_for_selector(".ea-rows li")
    return str(page.inner_text(".ea-summary"))


def test_side_by_side(browser: Any, office: Any, tmp_path: Path, long_recording: Path) -> None:
    with office("--max-sessions", "2", "--host", "0.0.0.0", "--no-auth") as server:
        said = (tmp_path / "log.txt").read_text("utf-8")
        assert "--auth asks for a password" in said
        assert "--ssl-certfile" in said
        (anna, speaking), (ben, reading), (carl, typing) = (
            sit(browser, server, tab) for tab in ("live", "file", "text")
        )
        speaking.select_option("#ea-live [name=target]", "de")
        speaking.click(".ea-start")
        reading.select_option("#ea-file [name=language]", "de")
        offered = reading.locator("#ea-file [name=model] option").all_inner_texts()
        assert offered == ["someone/many"], "none is chosen by itself for German"
        reading.select_option("#ea-file [name=model]", "someone/many")
        reading.set_input_files("#ea-file input[type=file]", long_recording)
        reading.wait_for_function("languages.length")
        speaking.wait_for_selector(".ea-said:has-text(' ')")
        assert reading.locator(".ea-cue").count() == 0, "Ben chose no translation"
        assert reading.evaluate("languages") == ["de"]
        assert speaking.evaluate("languages") == ["en"]

        typing.fill(".ea-source", "Good morning.")
        typing.wait_for_selector("#ea-text .ea-problem:has-text('this machine is busy')")
        assert typing.locator("#ea-text .ea-problem").inner_text().count("2 sessions") == 1

        typing.click("role=tab[name=Live]")
        ready(typing, "live")
        typing.click("#ea-live .ea-start")
        typing.wait_for_selector("#ea-live .ea-problem:has-text('this machine is busy')")
        assert typing.inner_text("#ea-live .ea-start") == "Start", "it can be pressed again"

        reading.press("#ea-file .ea-cancel", "Enter")
        reading.wait_for_selector(".ea-left:has-text('Cancelled')")
        typing.click("role=tab[name=Text]")
        typing.wait_for_selector(".ea-result:has-text('Guten')")  # it was tried again
        assert not typing.is_visible("#ea-text .ea-problem")

        before = speaking.inner_text(".ea-lines")
        speaking.wait_for_function(
            "(before) => document.querySelector('.ea-lines').innerText !== before", arg=before
        )
        assert speaking.inner_text(".ea-start") == "Stop", (
            "the end of another task does not stop Anna's"
        )
        anna.close()  # in the middle of a sentence
        deadline = time.monotonic() + 60
        while "0 of 2 places" not in busy(server, carl, typing):
            assert time.monotonic() < deadline, "a closed tab frees its place"
        assert not typing.is_visible("#ea-models form"), "without a login models cannot be changed"
        for desk in (ben, carl):
            desk.close()


def test_captions_survive_a_killed_server(browser: Any, office: Any) -> None:
    with office() as server:
        desk, page = sit(browser, server, "live")
        desk.expected += ["WebSocket", "ERR_CONNECTION", "Failed to load"]
        page.click(".ea-start")
        # Final text; the tail is in an element of its own.
        page.wait_for_function(
            "/[.?!]/.test(document.querySelector('.ea-said')?.firstChild?.data ?? '')"
        )
        kept = re.split("[.?!]", page.locator(".ea-said").first.inner_text())[0]
        in_history(page, kept)  # a busy machine shows it before it is on the disk
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        page.wait_for_selector(".ea-toasts:has-text('connection to EdgeApp is lost')")
        page.wait_for_selector(".ea-kept:has-text('Reconnecting, ')")
        page.click(".ea-start")
        page.wait_for_selector(".ea-start:has-text('Give up')")
        page.click(".ea-start")
        assert page.inner_text(".ea-start") == "Start"
        desk.close()
    with office() as server:
        desk, page = sit(browser, server, "history")
        page.click(".ea-entry")
        page.wait_for_selector(f".ea-body:has-text({kept!r})")
        page.fill("#ea-history [name=search]", "nothing like it")
        page.wait_for_selector(".ea-none:has-text('Nothing was found')")
        page.fill("#ea-history [name=search]", kept.split()[0])
        page.wait_for_selector(".ea-entry")
        with page.expect_download() as download:
            page.select_option(".ea-record [name=download]", label="Subtitles (srt)")
            page.click(".ea-record .ea-download")
        assert kept.split()[0] in download.value.path().read_text("utf-8")
        page.fill(".ea-record .ea-name", "Tuesday")
        page.press(".ea-record .ea-name", "Enter")
        page.fill("#ea-history [name=search]", "tues")
        page.wait_for_selector(".ea-entry:has-text('Tuesday')")
        page.click(".ea-record .ea-delete")
        page.fill("#ea-history [name=search]", "")
        page.wait_for_selector(".ea-none:has-text('Nothing here yet')")
        page.click(".ea-toasts >> text=Undo")
        page.wait_for_selector(".ea-entry:has-text('Tuesday')")
        page.wait_for_selector(f".ea-body:has-text({kept!r})")
        page.click(".ea-record .ea-delete")
        page.fill("#ea-history [name=search]", "")
        page.wait_for_selector(".ea-none:has-text('Nothing here yet')")
        page.locator("#ea-history [name=keep]").uncheck()
        page.click("role=tab[name=File]")
        ready(page, "file")
        page.set_input_files("#ea-file input[type=file]", SAMPLES / "question.flac")
        page.wait_for_selector(".ea-file[data-state=done]")
        page.click("role=tab[name=History]")
        page.wait_for_selector(".ea-none:has-text('Nothing here yet')")
        desk.close()
