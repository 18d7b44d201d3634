"""Big text and the page's corner: keys, theme, the count of requests to other machines."""

from __future__ import annotations

import pytest

from tests.fixtures.browser import Desk


@pytest.mark.slow
def test_keys_theme_and_big_text(desk: Desk) -> None:
    page = desk.open("live", color_scheme="dark", viewport={"width": 360, "height": 740})
    ground = "getComputedStyle(document.body).backgroundColor"
    page.wait_for_selector(".ea-tools [aria-label='Theme: as the system']", state="attached")
    page.wait_for_selector("body.dark", state="attached")
    dark = page.evaluate(ground)
    assert page.locator(".ea-badge").text_content() == "0 to others"
    page.set_viewport_size({"width": 1280, "height": 800})
    page.keyboard.press("?")
    page.wait_for_selector(".ea-keys[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector(".ea-keys", state="hidden")
    page.keyboard.press("6")
    page.wait_for_selector("#ea-history section", state="visible")
    page.keyboard.press("1")
    page.wait_for_selector("#ea-live section", state="visible")
    page.click(".ea-tools [aria-label='Theme: as the system']")
    page.wait_for_selector("body:not(.dark)", state="attached")
    light = page.evaluate(ground)
    assert light != dark
    page.reload()
    page.wait_for_selector(".ea-tools [aria-label='Theme: light']")
    page.wait_for_selector("#ea-live [data-ready] section")
    page.wait_for_function(f"(light) => {ground} === light", arg=light)  # it is remembered
    page.set_viewport_size({"width": 360, "height": 740})
    page.click(".ea-big-on")
    leave = page.locator(".ea-big-off").bounding_box()
    assert leave is not None
    assert leave["x"] >= 0
    assert leave["x"] + leave["width"] <= 360, "big text can be left on a phone"
    page.click(".ea-big-contrast")
    page.wait_for_function(f"{ground} === 'rgb(0, 0, 0)'")
    page.wait_for_selector(".ea-live.ea-rest")
    page.keyboard.press("Escape")
    page.wait_for_selector("#ea-tabs [role=tablist]", state="visible")
