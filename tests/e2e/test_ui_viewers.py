"""Captions for an audience: viewers beside the speaker, and an overlay for video programs."""

from __future__ import annotations

import pytest

from tests.e2e.test_ui_access import AXE, violations
from tests.fixtures.browser import Desk


@pytest.mark.slow
def test_viewers_read_along(desk: Desk) -> None:
    desk.expected.append("404")
    page = desk.open("live")
    page.click(".ea-share")
    page.wait_for_selector(".ea-qr svg")
    assert "start EdgeApp with --lan" in page.inner_text(".ea-sharing-says")
    page.evaluate(AXE)
    assert not violations(page)
    link, overlay = page.input_value("[name=link]"), page.input_value("[name=overlay]")
    page.click(".ea-sharing-close")

    guest = desk.browser.new_context(locale="es")
    guest.set_default_timeout(300_000)  # on a busy machine
    foreign = guest.new_page()
    foreign.goto(link)
    foreign.wait_for_selector(".ea-says:has-text('aún no ha empezado')")
    assert foreign.title() == "Subtítulos · EdgeApp"
    guest.close()
    viewer = desk.context.new_page()
    viewer.set_viewport_size({"width": 360, "height": 740})
    viewer.goto(link)
    viewer.wait_for_selector(".ea-says:has-text('not started yet')")
    video = desk.context.new_page()
    video.goto(f"{overlay}#de")
    page.bring_to_front()
    page.click(".ea-start")
    viewer.wait_for_selector(".ea-said:has-text(' ')")
    viewer.select_option("[name=target]", "de")
    viewer.wait_for_selector(".ea-meant:has-text(' ')")
    video.wait_for_selector(".ea-meant:has-text(' ')")
    page.wait_for_selector(".ea-share:has-text('Shared, 2')")
    size = "parseFloat(getComputedStyle(document.querySelector('ol')).fontSize)"
    before = viewer.evaluate(size)
    viewer.click(".ea-larger")
    viewer.wait_for_function(f"(before) => {size} > before", arg=before)
    viewer.wait_for_function("document.documentElement.scrollWidth <= 360")
    viewer.evaluate(AXE)
    assert not violations(viewer)
    assert not video.is_visible(".ea-said"), "the translation only"
    ground = "getComputedStyle(document.body).backgroundColor"
    assert video.evaluate(ground) == "rgba(0, 0, 0, 0)"

    page.click(".ea-start")
    page.wait_for_selector(".ea-live[data-state=idle]")
    said = " ".join(page.locator(".ea-said").all_inner_texts())
    viewer.wait_for_function(
        "(said) => [...document.querySelectorAll('.ea-said')].map((p) => p.textContent).join(' ')"
        " === said",
        arg=said,
    )
    page.click(".ea-share")
    page.click(".ea-unshare")
    viewer.wait_for_selector(".ea-says:has-text('have ended')")
    assert viewer.goto(link).status == 404
    assert "have ended" in viewer.inner_text("body")
