"""Live captions over a line that breaks: no sound is lost, and a reload goes on."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Any

import pytest

from pipelines.hub import assets_folder
from tests.fixtures.browser import Desk

STORY = (assets_folder() / "samples" / "story.txt").read_text("utf-8")

# From here on, connections fail while window.cut is set. cut: "closed", or "silent": what the page
# sends is swallowed, as on a line that stalls.
BREAKABLE = """() => {
    const Real = window.WebSocket;
    window.WebSocket = class extends Real {
        constructor(url) {
            super(window.cut === "closed" ? url.replace(/:\\d+/, ":1") : url);
        }
        send(data) {
            if (!window.cut) super.send(data);
        }
    };
    return import("/edgeapp/static/session.js").then(({ on, reconnect }) => {
        window.reconnectNow = reconnect;
        reconnect();
        return new Promise((connected) => on("hello", () => connected()));
    });
}"""


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def similarity(page: Any) -> float:
    """How much of the story was heard, up to the last words: 0 to 1."""
    said = words(" ".join(page.locator(".ea-said").all_inner_texts()))
    return SequenceMatcher(None, said, words(STORY)[: len(said)], autojunk=False).ratio()


@pytest.mark.slow
def test_a_cut_line_loses_no_sound_and_a_reload_goes_on(desk: Desk) -> None:
    desk.expected += ["WebSocket", "ERR_", "Content Security Policy"]
    page = desk.open("live")
    page.evaluate(BREAKABLE)
    page.click(".ea-start")
    page.wait_for_selector(".ea-said:has-text(' ')")
    page.evaluate("window.cut = 'closed', reconnectNow()")
    page.wait_for_function(
        "/Reconnecting, ([3-9]|[0-9]{2,}) s/.test(document.querySelector('.ea-kept').innerText)"
    )
    page.evaluate("window.cut = null")
    page.wait_for_selector(".ea-kept", state="hidden")
    page.evaluate("window.cut = 'silent'")  # and then a line that looks healthy
    page.wait_for_selector(".ea-kept:has-text('Reconnecting, ')")
    size = page.viewport_size
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.documentElement.scrollWidth <= 360")  # Pause is in reach
    page.set_viewport_size(size)
    page.evaluate("window.cut = null, reconnectNow()")
    page.wait_for_selector(".ea-kept", state="hidden")
    assert page.inner_text(".ea-start") == "Stop"
    final = "document.querySelector('.ea-said')?.firstChild?.data ?? ''"  # without the tail
    page.wait_for_function(f"({final}).includes('.')")
    before = page.evaluate(final)
    page.reload()
    page.wait_for_selector(".ea-live[data-state=listening]")
    page.wait_for_function(
        "(before) => document.querySelector('.ea-said')?.innerText.startsWith(before)",
        arg=before.split(".")[0],
    )
    page.click(".ea-start")
    page.wait_for_selector(".ea-live[data-state=idle]")
    assert similarity(page) > 0.8
