"""The footer's "Use via API": Gradio's own view of the named endpoints."""

from __future__ import annotations

from tests.e2e.test_ui_access import AXE, violations
from tests.fixtures.browser import Desk

_MOST_BYTES = 400_000  # of the page with this view
_TRANSFERRED = """performance.getEntriesByType('resource')
    .reduce((sum, entry) => sum + entry.transferSize, 0)"""


def test_use_via_api_shows_the_named_endpoints(desk: Desk) -> None:
    desk.expected.append("404")  # it asks for Gradio's monitor and for MCP, which are closed
    page = desk.open("live")
    before = page.evaluate(_TRANSFERRED)
    page.click("footer >> text=Use via API")
    page.wait_for_selector(".api-docs .endpoint-container")
    assert before < page.evaluate(_TRANSFERRED) < _MOST_BYTES, "it is loaded when it is opened"
    endpoints = page.locator(".api-docs .endpoint-container")
    endpoints.nth(3).wait_for()
    endpoints.first.filter(has_text="handle_file('talk.mp3')").wait_for()
    shown = endpoints.all_inner_texts()
    assert [text.split()[2] for text in shown] == ["/transcribe", "/translate", "/live", "/models"]
    assert "recording=handle_file('talk.mp3')" in shown[0]
    page.click(".api-docs li >> text=cURL")
    page.wait_for_selector(".api-docs pre >> text=call/v2/translate")
    assert not page.is_visible(".api-docs li >> text=MCP")
    page.evaluate(AXE)
    page.wait_for_function(
        "[...document.querySelectorAll('.api-docs button')].every("
        "(button) => button.textContent.trim() || button.title || button.ariaLabel)"
    )
    assert not violations(page)
    page.click(".api-docs [aria-label=Close]")
    page.wait_for_selector(".api-docs", state="detached")
