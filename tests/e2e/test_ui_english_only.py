"""A recognizer that understands English only says so on the page, as long as its work is shown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.hub import assets_folder, bundled_folder
from tests.e2e.test_ui_access import AXE, violations
from tests.fixtures.browser import Desk, ready, serving

pytestmark = pytest.mark.slow
TALK = assets_folder() / "samples" / "question.flac"
NOTE = "understands English only"


def test_captions_and_recordings(
    browser: Any, page_environment: dict[str, str], tmp_path: Path
) -> None:
    storage = tmp_path / "models" / "models--someone--mine.en"
    (storage / "refs").mkdir(parents=True)
    (storage / "refs" / "main").write_text("a" * 40, "utf-8")
    shutil.copytree(bundled_folder("demo"), storage / "snapshots" / ("a" * 40))
    environment = page_environment | {"HF_HUB_CACHE": str(tmp_path / "models")}
    del environment["EDGEAPP_MODEL"]
    with serving(environment, log=tmp_path / "log.txt") as server:
        desk = Desk(browser, server.url)
        page = desk.open("live", locale="en-GB")
        page.click(".ea-start")
        page.wait_for_selector(f"#ea-live .ea-note:has-text('{NOTE}')")
        page.wait_for_selector(".ea-said:has-text(' ')")
        page.reload()
        ready(page, "live")
        page.wait_for_selector(f"#ea-live .ea-note:has-text('{NOTE}')")
        page.wait_for_selector(".ea-live[data-state=listening]")
        page.click(".ea-start")
        page.wait_for_selector(".ea-live[data-state=idle]")
        assert page.is_visible("#ea-live .ea-note")
        assert page.is_hidden(".ea-need"), "it is for people's voices"

        page.click("role=tab[name=File]")
        ready(page, "file")
        other = tmp_path / "other.flac"
        shutil.copy(TALK, other)
        page.set_input_files("#ea-file input[type=file]", [TALK, other])
        page.wait_for_selector(".ea-queue-says:has-text('2 of 2 done')")
        page.click("#ea-file .ea-queued >> nth=0")
        assert NOTE in page.inner_text("#ea-file .ea-note")
        page.evaluate(AXE)
        assert not violations(page)
        desk.close()
