"""Pictures of the page, for the README and to be looked at: each tab, wide and narrow, light and
dark, while it listens to the bundled talk and works on the bundled story.

    edgeapp ui --no-open --port 7860 &
    python assets/recipes/pictures.py http://127.0.0.1:7860/ FOLDER

Needs playwright and Debian's chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import soundfile
from playwright.sync_api import sync_playwright

SAMPLES = Path(__file__).parents[1] / "samples"
TALK, STORY = SAMPLES / "talk.flac", SAMPLES / "story.flac"
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
LISTEN_MS = 9_500


def main(url: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        sound = Path(work) / "talk.wav"
        soundfile.write(sound, *soundfile.read(TALK))
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=[
                "--no-sandbox",
                "--use-fake-ui-for-media-stream",
                "--use-fake-device-for-media-stream",
                f"--use-file-for-fake-audio-capture={sound}%noloop",
            ],
        )
        for scheme in ("light", "dark"):
            for name, (width, height) in SIZES.items():
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,  # type: ignore[arg-type]  # one of its literals
                    permissions=["microphone"],
                )
                take(context.new_page(), url, folder, f"{name}-{scheme}")
                context.close()
        browser.close()


def take(page: Any, url: str, folder: Path, ending: str) -> None:
    """All pictures at one size in one scheme."""

    def shot(what: str) -> None:
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"{what}-{ending}.png")

    def show(tab: str) -> None:
        page.click(f"role=tab[name={tab}]")
        page.wait_for_selector(f"#ea-{tab.lower()} [data-ready]", state="visible")

    page.goto(f"{url}#live")
    page.wait_for_selector("#ea-live [data-ready]")
    page.wait_for_function("window.edgeappReady")
    shot("start")
    page.select_option("#ea-live [name=target]", "de")
    page.click(".ea-start")
    page.wait_for_timeout(LISTEN_MS)
    shot("live")
    page.click(".ea-start")
    page.wait_for_selector(".ea-live[data-state=idle]")
    show("File")
    page.select_option("#ea-file [name=target]", "de")
    page.set_input_files("#ea-file input[type=file]", STORY)
    page.wait_for_selector(".ea-file[data-state=done]", timeout=120_000)
    shot("file")
    show("Text")
    page.fill(".ea-source", "Good morning. Where is the train station?")
    page.wait_for_selector(".ea-result:has-text('Bahnhof')")
    shot("text")
    show("Models")
    shot("models")
    show("History")
    page.locator(".ea-entry").first.click()
    shot("history")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
