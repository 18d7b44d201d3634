"""The page in other languages: the browser's or the chosen one; it fits a phone, and axe finds
nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.test_ui_access import AXE, violations
from tests.fixtures.browser import Desk, ready

TABS = {
    "de": ["Live", "Datei", "Text", "Bilder", "Modelle", "Verlauf"],
    "es": ["En vivo", "Archivo", "Texto", "Imágenes", "Modelos", "Historial"],
    "fr": ["Direct", "Fichier", "Texte", "Images", "Modèles", "Historique"],
    "zh": ["实时", "文件", "文本", "图片", "模型", "历史"],
}
CUT = """
[...document.querySelectorAll("button, label, h1, h2, p, th, td, option:checked")].filter((each) =>
  each.offsetParent && !each.matches(".ea-hidden") && getComputedStyle(each).overflowX !== "visible"
  && each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent)
"""


@pytest.mark.parametrize("language", TABS)
def test_the_browsers_language(desk: Desk, language: str) -> None:
    page = desk.open(locale=language, viewport={"width": 360, "height": 740})
    page.wait_for_function(
        "(names) => JSON.stringify([...document.querySelectorAll('#ea-tabs [role=tab]')].filter("
        "(tab) => tab.offsetWidth).map((tab) => tab.innerText)) === JSON.stringify(names)",
        arg=TABS[language],
    )
    assert page.evaluate("document.documentElement.lang") == language
    page.evaluate(AXE)
    found: list[Any] = []
    for tab, name in zip(
        ("live", "file", "text", "pictures", "models", "history"), TABS[language], strict=True
    ):
        page.click(f'role=tab[name="{name}"]')
        ready(page, tab)
        found += [(tab, one["id"], one["nodes"]) for one in violations(page)]
        found += [(tab, "is cut off", text) for text in page.evaluate(CUT)]
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, f"{tab} is {wide} pixels wide, wider than the screen"
    assert not found, found


def test_a_chosen_language_is_remembered(desk: Desk) -> None:
    page = desk.open("models")
    page.wait_for_selector(".ea-summary:has-text('on this machine')")
    with page.expect_navigation():
        page.select_option(".ea-page-language select", "de")
    page.wait_for_selector(".ea-summary:has-text('auf diesem Rechner')")
    page.reload()
    page.wait_for_selector(".ea-summary:has-text('auf diesem Rechner')")
    assert page.input_value(".ea-page-language select") == "de"
    page.fill("[name=name]", "no such name")
    page.click(".ea-get [type=submit]")
    page.wait_for_selector(".ea-wrong:has-text('weder ein bekanntes Modell')")
