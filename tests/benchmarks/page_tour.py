"""Pictures of the page in its states, to be looked at: every tab, empty, busy and broken.

    .venv/bin/python -m tests.benchmarks.page_tour OUT [--language de] [SCENE ...]

Starts `edgeapp ui` on the bundled models, brings a browser into each scene, and writes
OUT/SCENE-WIDTH-SCHEME.png for four widths in the light and the dark scheme. A SCENE is the
beginning of a name in SCENES, or `login`; without one, all are taken. Prints texts that are cut
off and pages that are wider than the screen.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from pipelines.hub import assets_folder, bundled_folder
from tests.e2e.test_ui_languages import CUT
from tests.e2e.test_ui_line import BREAKABLE
from tests.fixtures.browser import chromium, missing, ready, serving
from tests.fixtures.hub import Answer, Hosted, Hub
from tests.reading.pages import FONTS
from tests.reading.pages import page as text_page

SAMPLES = assets_folder() / "samples"
SIZES = ((360, 740), (768, 1024), (1280, 800), (1920, 1080))
SCHEMES = ("light", "dark")
_SETTLES_MS = 350  # transitions
_LONG_TEXT = "Thank you.\n\nThe floccinaucinihilipilification is at home. The house is old.\n" * 12


@dataclass
class Tour:
    """A browser at a server, and what the scenes need.

    Attributes:
        browser: Chromium.
        url: Of the page.
        files: Recordings and pictures by name.
        out: Where the pictures go.
        language: Of the browser.
        findings: What looks wrong by measure.
    """

    browser: Any
    url: str
    files: dict[str, Path]
    out: Path
    language: str
    findings: list[str] = field(default_factory=list)

    @contextmanager
    def tab(self, tab: str) -> Iterator[Any]:
        """The page at a tab, for a new person."""
        with self.address(f"#{tab}") as page:
            ready(page, tab)
            yield page

    @contextmanager
    def address(self, path: str) -> Iterator[Any]:
        """A page of the server in a browser of its own."""
        context = self.browser.new_context(locale=self.language, permissions=["microphone"])
        context.set_default_timeout(90_000)
        try:
            page = context.new_page()
            page.goto(self.url + path)
            yield page
        finally:
            context.close()

    def take(self, page: Any, scene: str, load: Callable[[], object] = lambda: None) -> None:
        """Take the pictures of a scene.

        Args:
            page: In the state to be shown.
            scene: Its name.
            load: Loads a page again that takes the scheme only then.
        """
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            load()
            for width, height in SIZES:
                page.set_viewport_size({"width": width, "height": height})
                page.wait_for_timeout(_SETTLES_MS)
                page.screenshot(path=self.out / f"{scene}-{width}-{scheme}.png")
                wide = page.evaluate("document.documentElement.scrollWidth")
                cut = [*page.evaluate(CUT)]
                if wide > width:
                    self.findings.append(f"{scene}: {wide} pixels wide on {width}")
                self.findings += [f"{scene}: cut off on {width}: {text.strip()}" for text in cut]
        print(scene, file=sys.stderr)


def live_empty(tour: Tour) -> None:
    with tour.tab("live") as page:
        tour.take(page, "live-empty")
        page.keyboard.press("?")
        tour.take(page, "live-keys")


def live_busy(tour: Tour) -> None:
    with tour.tab("live") as page:
        page.select_option("#ea-live [name=target]", "de")
        page.click(".ea-start")
        page.wait_for_selector(".ea-meant:has-text(' ')")
        tour.take(page, "live-busy")
        page.click(".ea-big-on")
        tour.take(page, "live-big")
        page.keyboard.press("Escape")
        page.click(".ea-start")
        page.wait_for_selector(".ea-live[data-state=idle]")
        tour.take(page, "live-stopped")


def live_broken(tour: Tour) -> None:
    with tour.tab("live") as page:
        page.evaluate(BREAKABLE)
        page.click(".ea-start")
        page.wait_for_selector(".ea-said:has-text(' ')")
        page.evaluate("window.cut = 'closed', reconnectNow()")
        page.wait_for_selector(".ea-kept", state="visible")
        tour.take(page, "live-broken")


def live_shared(tour: Tour) -> None:
    with tour.tab("live") as page:
        page.click(".ea-share")
        page.wait_for_selector(".ea-qr svg")
        tour.take(page, "live-share")
        token = page.input_value("[name=link]").rpartition("/")[2]
        page.click(".ea-sharing-close")
        page.click(".ea-start")
        with tour.address(f"view/{token}") as viewer:
            viewer.wait_for_selector(".ea-said:has-text(' ')")
            viewer.select_option("[name=target]", "de")
            viewer.wait_for_selector(".ea-meant:has-text(' ')")
            tour.take(viewer, "view-busy", lambda: _load_view(viewer))
        page.click(".ea-share")
        page.click(".ea-unshare")
        with tour.address(f"view/{token}") as viewer:
            tour.take(viewer, "view-ended", viewer.reload)


def file_empty(tour: Tour) -> None:
    with tour.tab("file") as page:
        tour.take(page, "file-empty")


def file_busy(tour: Tour) -> None:
    with tour.tab("file") as page:
        page.select_option("#ea-file [name=target]", "de")
        files = [tour.files[name] for name in ("talk.flac", "long.wav", "question.flac")]
        page.set_input_files("#ea-file input[type=file]", files)
        page.wait_for_selector("#ea-file .ea-queue li:nth-child(2)[data-state=working]")
        page.wait_for_selector("#ea-file .ea-cue")
        tour.take(page, "file-busy")


def file_done(tour: Tour) -> None:
    with tour.tab("file") as page:
        page.select_option("#ea-file [name=target]", "de")
        page.set_input_files("#ea-file input[type=file]", tour.files["talk.flac"])
        page.wait_for_selector("#ea-file .ea-exports", state="visible")
        page.locator("#ea-file .ea-said").nth(1).click()
        page.click("#ea-file .ea-toolbar button:nth-child(9)")  # find
        tour.take(page, "file-done")


def file_broken(tour: Tour) -> None:
    with tour.tab("file") as page:
        page.set_input_files("#ea-file input[type=file]", tour.files["notes.mp3"])
        page.wait_for_selector("#ea-file .ea-problem", state="visible")
        tour.take(page, "file-broken")


def text(tour: Tour) -> None:
    with tour.tab("text") as page:
        tour.take(page, "text-empty")
        page.fill(".ea-source", _LONG_TEXT)
        page.wait_for_function("CSS.highlights.get('ea-doubt')?.size > 0")
        tour.take(page, "text-done")
        page.fill(".ea-source", "word " * 40_001)
        page.wait_for_selector("#ea-text .ea-problem", state="visible")
        tour.take(page, "text-broken")


def pictures(tour: Tour) -> None:
    with tour.tab("pictures") as page:
        tour.take(page, "pictures-empty")
        page.select_option("#ea-pictures [name=target]", index=1)
        chosen = page.locator("#ea-pictures .ea-drop input")
        chosen.set_input_files([tour.files["page.png"], tour.files["notes.mp3"]])
        page.wait_for_selector("#ea-pictures .ea-queue li:nth-child(2)[data-state=failed]")
        tour.take(page, "pictures-broken")
        page.click("#ea-pictures .ea-queued:enabled")
        page.wait_for_selector("#ea-pictures .ea-read li")
        tour.take(page, "pictures-done")


def models(tour: Tour) -> None:
    with tour.tab("models") as page:
        page.wait_for_selector(".ea-rows li")
        tour.take(page, "models-list")
        page.fill("[name=name]", "no such name")
        page.click(".ea-get [type=submit]")
        page.wait_for_selector(".ea-wrong:has-text(' ')")
        tour.take(page, "models-broken")
        page.fill("[name=name]", "small")
        page.click(".ea-get [type=submit]")
        page.click("#ea-models .ea-plan button")
        page.wait_for_selector("#ea-models .ea-pull progress")
        tour.take(page, "models-busy")


def history(tour: Tour) -> None:
    with tour.tab("history") as page:
        page.wait_for_selector(".ea-entry")
        tour.take(page, "history-list")
        page.fill("#ea-history [name=search]", "nothing has these words")
        page.wait_for_selector(".ea-none", state="visible")
        tour.take(page, "history-broken")
        page.fill("#ea-history [name=search]", "")
        page.click(".ea-entry:has-text('talk.flac')")
        page.wait_for_selector("#ea-history .ea-cue")
        tour.take(page, "history-record")


def history_empty(tour: Tour) -> None:
    with tour.tab("history") as page:
        page.wait_for_selector(".ea-none", state="visible")
        tour.take(page, "history-empty")


def _load_view(page: Any) -> None:
    page.reload()
    page.wait_for_selector(".ea-said:has-text(' ')")


def _fail_to_log_in(page: Any) -> None:
    page.goto(page.url)
    page.fill("[name=user]", "anna")
    page.fill("[name=password]", "wrong")
    page.click("button")
    page.wait_for_selector("[role=alert]")


def login(tour: Tour) -> None:
    with tour.address("login") as page:
        tour.take(page, "login", page.reload)
        tour.take(page, "login-broken", lambda: _fail_to_log_in(page))
        page.fill("[name=password]", "one")
        page.click("button")
        ready(page, "live")
        ask = "import('/edgeapp/static/session.js').then(({ ask }) => ask({ type: 'invite' }))"
        link = page.evaluate(ask)["url"].removeprefix(tour.url)
        with tour.address(link) as entering:
            tour.take(entering, "enter", entering.reload)


# By the beginning of the names of their pictures. `history_empty` is first: others leave records.
SCENES: dict[str, Callable[[Tour], None]] = {
    "history-empty": history_empty, "live-empty": live_empty, "live-busy": live_busy,
    "live-broken": live_broken, "live-share": live_shared, "file-empty": file_empty,
    "file-busy": file_busy, "file-done": file_done, "file-broken": file_broken, "text": text,
    "pictures": pictures, "models": models, "history": history,
}  # fmt: skip


def _make_files(folder: Path) -> dict[str, Path]:
    folder.mkdir()
    samples, rate = soundfile.read(SAMPLES / "story.flac", dtype="int16")
    soundfile.write(folder / "long.wav", np.tile(samples, 40), rate)
    soundfile.write(folder / "microphone.wav", np.tile(samples, 10), rate)
    (folder / "notes.mp3").write_bytes(b"these are words" * 100)
    text_page(FONTS[1]).save(folder / "page.png")
    return {path.name: path for path in (*SAMPLES.iterdir(), *folder.iterdir())}


class _Half:
    """The first half of a file; the rest never comes."""

    def __init__(self, content: bytes, ended: threading.Event) -> None:
        self._content, self._ended = content, ended

    def __iter__(self) -> Iterator[bytes]:
        yield self._content[: len(self._content) // 2]
        self._ended.wait(300)


def _make_hub(ended: threading.Event) -> Hub:
    """A hub that has "small", and sends half of it."""
    files = {path.name: path.read_bytes() for path in bundled_folder("demo").iterdir()}
    hub = Hub({"openai/whisper-small": Hosted(files)})
    weights = files["model.safetensors"]

    hub.answers["model.safetensors"] = Answer(body=_Half(weights, ended))
    return hub


def main() -> None:
    """Take the pictures, and print what looks wrong by measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("scenes", nargs="*", metavar="SCENE")
    parser.add_argument("--language", default="en")
    given = parser.parse_args()
    if lacking := missing():
        raise SystemExit(lacking)
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = tuple(given.scenes) or ("",)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ended = threading.Event()
        hub = _make_hub(ended)
        stack.callback(hub.stop)
        stack.callback(ended.set)
        environment = os.environ | {
            "EDGEAPP_MODEL": "demo",
            "EDGEAPP_CONFIG": str(folder / "no-config.toml"),
            "EDGEAPP_HISTORY": str(folder / "history.db"),
            "HF_HUB_CACHE": str(folder / "models"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_ENDPOINT": hub.url,
        }
        files = _make_files(folder / "files")
        browser = stack.enter_context(chromium(files["microphone.wav"]))
        tour = Tour(browser, "", files, given.out, given.language)
        chosen = [name for name in SCENES if name.startswith(wanted)]
        with serving(dict(environment), log=folder / "log.txt") as server:
            tour.url = server.url
            for name in chosen:
                SCENES[name](tour)
        if "login".startswith(wanted):
            with serving(dict(environment), "--auth", "anna:one", log=folder / "log.txt") as server:
                tour.url = server.url
                login(tour)
    print("\n".join(dict.fromkeys(tour.findings)) or "no text is cut off, no page is too wide")


if __name__ == "__main__":
    main()
