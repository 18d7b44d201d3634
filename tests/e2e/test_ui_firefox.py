"""The page in Debian's Firefox."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.browser import Server
from tests.fixtures.firefox import firefox, firefox_program


@pytest.mark.skipif(firefox_program() is None, reason="needs firefox-esr, not installed here")
def test_a_german_translates_text_in_firefox(ui: Server, tmp_path: Path) -> None:
    with firefox(tmp_path, "de, en") as window:
        window.open(f"{ui.url}#text")
        window.wait_for("window.edgeappReady && document.querySelector('#ea-text [data-ready]')")
        window.wait_for("document.querySelector('#ea-text [name=language]').value")
        tabs = (
            "[...document.querySelectorAll('#ea-tabs [role=tab]')]"
            ".filter((tab) => tab.offsetWidth).map((tab) => tab.innerText)"
        )
        window.wait_for(f"{tabs}.join(' ') === 'Live Datei Text Bilder Modelle Verlauf'")
        assert window.evaluate("document.documentElement.lang") == "de"
        window.evaluate("""
            const [language, source] = ["[name=language]", ".ea-source"].map(
                (each) => document.querySelector(`#ea-text ${each}`));
            language.value = "en";
            language.dispatchEvent(new Event("change"));
            source.value = "Good morning.";
            source.dispatchEvent(new Event("input"));
        """)
        window.wait_for("document.querySelector('.ea-result').innerText.includes('Morgen')")
