"""The first screen: what a newcomer sees, and how a demo model of the settings is replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_ui_access import AXE, violations
from tests.fixtures.browser import Desk, serving

# The sample begins anew until it is stopped: a busy machine may show its first words after its end.
ENDLESS = """() => {
    const start = AudioBufferSourceNode.prototype.start;
    AudioBufferSourceNode.prototype.start = function (...given) {
        this.loop = true;
        return start.apply(this, given);
    };
}"""


@pytest.mark.slow
def test_the_first_screen(
    browser: Any,
    page_environment: dict[str, str],
    hosted_base: dict[str, str],
    tmp_path: Path,
) -> None:
    environment = page_environment | hosted_base | {"HF_HUB_CACHE": str(tmp_path / "models")}
    with serving(environment, log=tmp_path / "log.txt") as server:
        desk = Desk(browser, server.url)
        page = desk.open("live")
        page.wait_for_selector(".ea-need:has-text('Whisper base')")
        page.evaluate(AXE)
        page.click(".ea-test")
        page.wait_for_selector(".ea-test-says:has-text('The microphone works.')")
        assert not violations(page)
        page.select_option("#ea-live [name=into]", "de")
        assert page.input_value("#ea-live [name=target]") == "de"
        page.evaluate(ENDLESS)
        page.click(".ea-sample")
        page.wait_for_selector(".ea-said:has-text(' ')")
        assert page.title().startswith("●"), "the title says that sound is taken"
        page.click(".ea-pause")
        page.wait_for_function("!document.title.startsWith('●')")
        page.click(".ea-start")
        page.wait_for_selector(".ea-live[data-state=idle]")
        assert page.evaluate("document.activeElement.innerText") == "Start"
        page.click("#ea-live .ea-clear")
        page.click(".ea-toasts >> text=Undo")
        page.wait_for_selector(".ea-said:has-text(' ')")
        page.click(".ea-need button:has-text('Download')")
        page.wait_for_selector(".ea-need", state="hidden")
        models = page.locator("#ea-live [name=model] option").all_inner_texts()
        assert models[0] == "Automatic"
        assert "base" in models
        desk.close()
