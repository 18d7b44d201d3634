"""The first screen: what a newcomer sees, and how the demo model is replaced."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_ui_access import AXE, violations
from tests.fixtures.browser import Desk, serving
from tests.fixtures.hub import Hosted, Hub
from tests.fixtures.index import published, wheel_row
from tests.formats.writers import write_ctranslate2

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
    stand_in_hub: Hub,
    whisper_folder: Callable[..., Path],
    tmp_path: Path,
) -> None:
    made = write_ctranslate2(whisper_folder("base", dtype="float32"), tmp_path / "ct2", "float16")
    names = ("config.json", "vocabulary.json", "model.bin")
    files = {name: (made / name).read_bytes() for name in names}
    wheel = wheel_row("not-asked-for", b"")
    parts = {name: ((wheel, name, len(content)),) for name, content in files.items()}
    row = published("base", files, parts)
    (tmp_path / "rows").write_bytes(pickle.dumps({row.name: row}))
    stand_in_hub.repositories[row.repository] = Hosted(files)
    environment = page_environment | {
        "HF_HUB_CACHE": str(tmp_path / "models"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "EDGEAPP_TEST_SOURCES": str(tmp_path / "rows"),
    }
    with serving(environment, log=tmp_path / "log.txt") as server:
        desk = Desk(browser, server.url)
        page = desk.open("live")
        page.wait_for_selector(".ea-demo:has-text('synthetic English voices only')")
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
        page.click(".ea-demo button:has-text('Get base')")
        page.wait_for_selector(".ea-toasts:has-text('base is here')")
        page.wait_for_selector(".ea-demo", state="hidden")
        models = page.locator("#ea-live [name=model] option").all_inner_texts()
        assert models[0] == "Automatic"
        assert "base" in models
        desk.close()
    del stand_in_hub.repositories[row.repository]
