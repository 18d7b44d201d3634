"""Accessibility: axe-core's rules, in light and dark, on a desktop and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest

from pipelines.hub import assets_folder
from tests.fixtures.browser import Desk

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
SAMPLES = assets_folder() / "samples"
TABS = ("Live", "File", "Text", "Models", "History")


@pytest.mark.parametrize(("scheme", "width", "height"), [("light", 1280, 800), ("dark", 360, 740)])
def test_no_findings(desk: Desk, scheme: str, width: int, height: int) -> None:
    page = desk.open(color_scheme=scheme, viewport={"width": width, "height": height})
    page.evaluate(AXE)
    page.click("role=tab[name=Text]")
    page.fill(".ea-source", "Good morning.")
    page.wait_for_selector(".ea-result:has-text('Morgen')")
    found = []
    for tab in TABS:
        page.click(f"role=tab[name={tab}]")
        page.wait_for_selector(f"#ea-{tab.lower()} section", state="visible")
        found += [(tab, one["id"], one["nodes"]) for one in violations(page)]
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{tab} is {wide} pixels wide, wider than the screen"
    page.click("role=tab[name=File]")
    page.set_input_files("#ea-file input[type=file]", SAMPLES / "talk.flac")
    page.wait_for_selector(".ea-file[data-state=done]")
    found += [("a transcript", one["id"], one["nodes"]) for one in violations(page)]
    page.click("role=tab[name=Live]")
    page.select_option("#ea-live [name=target]", "de")
    page.click(".ea-start")
    page.wait_for_selector(".ea-said .ea-tail")
    page.wait_for_selector(".ea-meant:has-text(' ')")
    found += [("captions", one["id"], one["nodes"]) for one in violations(page)]
    assert not found, found


def violations(page: Any) -> list[dict[str, Any]]:
    """What axe finds, when all that fades has its last color. What pulses goes on."""
    page.wait_for_function(
        "document.getAnimations().every(({ playState, effect }) => playState !== 'running'"
        " || effect.getTiming().iterations === Infinity)"
    )
    return list(page.evaluate("axe.run()")["violations"])
