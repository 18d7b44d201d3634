"""Pictures on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.browser import Desk, serving
from tests.fixtures.wrapped import save_line_reader
from tests.reading.pages import TEXT, page


@pytest.mark.slow
def test_pictures_are_read_and_kept(
    browser: Any, environment: dict[str, str], program: list[str], tmp_path: Path
) -> None:
    files = [tmp_path / "first.png", tmp_path / "second.png"]
    page().save(files[0])
    page(text=TEXT[:2]).save(files[1])
    (tmp_path / "third.png").write_bytes(b"no picture")
    mine = environment | {"EDGEAPP_HISTORY": str(tmp_path / "history.db"), "OMP_NUM_THREADS": "1"}
    with serving(mine, log=tmp_path / "log.txt", program=program) as server:
        desk = Desk(browser, server.url, expected=["blob:"])
        sheet = desk.open("pictures")
        sheet.wait_for_selector(".ea-demo:has-text('English and German print only')")
        sheet.wait_for_selector(".ea-demo button:has-text('Get microsoft/trocr-base-printed')")
        cache = Path(environment["HF_HUB_CACHE"])
        save_line_reader(cache / "models--some--line-reader" / "snapshots" / ("a" * 40))
        sheet.reload()
        sheet.wait_for_selector("#ea-pictures [data-ready] section", state="visible")
        sheet.wait_for_selector("#ea-pictures [name=target] option[value=de]", state="attached")
        assert not sheet.is_visible("#ea-pictures .ea-demo")
        sheet.select_option("#ea-pictures [name=language]", "en")
        sheet.select_option("#ea-pictures [name=target]", "de")
        chosen = sheet.locator("#ea-pictures .ea-drop input")
        chosen.set_input_files([*map(str, files), str(tmp_path / "third.png")])
        sheet.wait_for_selector("#ea-pictures .ea-queue li:nth-child(3)[data-state=failed]")
        assert "in no known format of pictures" in sheet.inner_text("#ea-pictures .ea-problem")
        states = sheet.locator("#ea-pictures .ea-queue li")
        assert [each.get_attribute("data-state") for each in states.all()[:2]] == ["done"] * 2
        sheet.click("#ea-pictures .ea-queue li:first-child .ea-queued")
        assert sheet.locator("#ea-pictures .ea-read li").count() == len(TEXT)
        sheet.wait_for_function(  # when the browser has decoded the picture
            "(lines) => document.querySelectorAll('#ea-pictures .ea-boxes span').length === lines",
            arg=len(TEXT),
        )
        assert sheet.inner_text("#ea-pictures .ea-translated")
        with sheet.expect_download() as download:
            sheet.click("#ea-pictures .ea-save-json")
        content = json.loads(Path(download.value.path()).read_text("utf-8"))
        assert len(content["lines"]) == len(TEXT)
        assert content["file"] == "first.png"
        sheet.set_viewport_size({"width": 360, "height": 740})
        sheet.wait_for_function(  # they fit on a phone
            "[...document.querySelectorAll('#ea-tabs button[role=tab]')].every("
            "(tab) => tab.scrollWidth <= tab.clientWidth)"
        )
        sheet.click("#ea-tabs [data-tab-id=history]")
        sheet.wait_for_selector("#ea-history :text('second.png')")
        assert sheet.locator("#ea-history :text('third.png')").count() == 0
        desk.close()
