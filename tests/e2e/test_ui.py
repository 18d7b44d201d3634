"""`edgeapp ui` in a browser, tab by tab."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import soundfile

from pipelines.hub import assets_folder
from tests.fixtures.browser import Desk, Server
from tests.fixtures.hub import Hosted, Hub

SAMPLES = assets_folder() / "samples"
TALK, QUESTION = SAMPLES / "talk.flac", SAMPLES / "question.flac"


def saved(page: Any, press: str) -> tuple[str, str]:
    """(name, text) of the file that a button downloads."""
    with page.expect_download() as download:
        page.click(press)
    return download.value.suggested_filename, download.value.path().read_text("utf-8")


def reads(page: Any, selector: str, part: str) -> None:
    """Wait until an element contains a text."""
    page.wait_for_function(
        "([selector, part]) => document.querySelector(selector).textContent.includes(part)",
        arg=[selector, part],
    )


def test_live_captions(desk: Desk) -> None:
    page = desk.open("live")
    page.select_option("#ea-live [name=target]", "de")
    page.click(".ea-start")
    page.wait_for_selector(".ea-said:has-text(' ')")
    # The microphone hears the story three times.
    minutes, seconds = divmod(3 * soundfile.info(SAMPLES / "story.flac").duration, 60)
    end = f"{minutes:.0f}:{seconds:02.0f}"
    assert page.inner_text(".ea-clock") < end, "captions appear while the recording still plays"
    page.wait_for_function("document.querySelector('.ea-clock').textContent >= '0:06'")
    page.wait_for_function(  # final text; the tail is in an element of its own
        "[...document.querySelectorAll('.ea-said')].map((said) => said.firstChild?.data ?? '')"
        ".join(' ').split(/\\s+/).filter(Boolean).length >= 8"
    )
    page.click(".ea-start")
    page.wait_for_selector(".ea-live[data-state=idle]")
    assert page.locator(".ea-lines .ea-tail").count() == 0, "stopping makes the tail final"
    said = " ".join(page.locator(".ea-said").all_inner_texts())
    assert len(said.split()) >= 8, said
    assert page.locator(".ea-meant:has-text(' ')").count() > 0
    name, text = saved(page, "#ea-live .ea-save")
    assert name.endswith(".txt")
    assert text.split() == said.split(), "the download equals the page"
    page.select_option("#ea-live [name=format]", "srt")
    assert "00:00:0" in saved(page, "#ea-live .ea-save")[1]
    page.select_option("#ea-live [name=which]", "translated")
    name, text = saved(page, "#ea-live .ea-save")
    assert name.endswith(".de.srt")
    meant = " ".join(page.locator(".ea-meant").all_inner_texts())
    assert text.splitlines()[2].split()[0] in meant
    page.click("#ea-live .ea-big-on")
    page.wait_for_selector("#ea-tabs [role=tablist]", state="hidden")
    page.keyboard.press("Escape")
    page.wait_for_selector("#ea-tabs [role=tablist]", state="visible")
    page.click("#ea-live .ea-clear")
    page.wait_for_selector(".ea-said", state="detached")


def test_clicking_again_while_the_browser_asks_opens_one_microphone(desk: Desk) -> None:
    page = desk.open("live")
    page.evaluate(
        """() => {
            const devices = navigator.mediaDevices, ask = devices.getUserMedia.bind(devices);
            window.tracks = [];
            devices.getUserMedia = async (wanted) => {
                await new Promise((done) => setTimeout(done, 700));
                const stream = await ask(wanted);
                tracks.push(...stream.getTracks());
                return stream;
            };
        }"""
    )
    for _ in range(3):  # start, stop, start
        page.click(".ea-start")
    page.wait_for_selector(".ea-live[data-state=listening]")
    page.wait_for_function("tracks.length === 2")
    page.wait_for_function("tracks.filter((track) => track.readyState === 'live').length === 1")
    page.wait_for_selector(".ea-said:has-text(' ')")
    page.click(".ea-start")
    page.wait_for_selector(".ea-live[data-state=idle]")
    assert page.evaluate("tracks.every((track) => track.readyState === 'ended')")


def test_a_refused_microphone_is_explained(desk: Desk) -> None:
    page = desk.open("live")
    page.evaluate(
        "() => { navigator.mediaDevices.getUserMedia ="
        " async () => { throw new DOMException('no', 'NotAllowedError') } }"
    )
    page.click(".ea-start")
    reads(page, "#ea-live .ea-problem", "Allow it beside the address")
    page.evaluate("Object.defineProperty(navigator, 'mediaDevices', {value: undefined})")
    page.click(".ea-start")
    reads(page, "#ea-live .ea-problem", "--ssl-certfile")
    assert page.inner_text(".ea-start") == "Start"


def test_a_recording_becomes_text(desk: Desk) -> None:
    page = desk.open("file")
    page.select_option("#ea-file [name=target]", "de")
    page.set_input_files("#ea-file input[type=file]", TALK)
    page.wait_for_selector(".ea-file[data-state=done]")
    said = page.locator(".ea-segments .ea-said").all_inner_texts()
    assert len(said) >= 4
    assert page.locator(".ea-segments .ea-cue").count() >= 3
    drawn = "([...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].some((v) => v))"
    assert page.evaluate(f"(() => {{ const c = document.querySelector('.ea-strip canvas');"
                         f" return {drawn} }})()"), "the spectrogram is drawn"  # fmt: skip
    page.wait_for_function("!document.querySelector('.ea-play').disabled")
    # Slowly: a busy machine may look for the row late.
    page.evaluate("document.querySelector('.ea-file video').playbackRate = 0.1")
    page.locator(".ea-time").nth(2).click()
    page.wait_for_selector(".ea-segments li:nth-child(3).ea-now")
    page.click(".ea-play")
    words = page.locator(".ea-segments .ea-said").first
    words.fill("Something else.")
    name, text = saved(page, ".ea-formats >> text=txt")
    assert (name, text.splitlines()) == ("talk.txt", ["Something else.", *said[1:]])
    assert saved(page, ".ea-formats >> text=vtt")[1].startswith("WEBVTT")
    whole = json.loads(saved(page, ".ea-formats >> text=json")[1])
    assert whole["segments"][0]["text"] == " Something else."
    assert whole["translation"]["language"] == "de"
    reads(page, "#ea-file .ea-left", "Saved.")
    page.reload()
    page.click("role=tab[name=History]")
    page.locator(".ea-entry", has_text="talk.flac").first.click()
    reads(page, ".ea-body", "Something else.")


def test_a_file_without_audio_is_rejected(desk: Desk) -> None:
    desk.expected.append("413")
    page = desk.open("file")
    broken = {"name": "notes.mp3", "mimeType": "audio/mpeg", "buffer": b"these are words" * 100}
    page.set_input_files("#ea-file input[type=file]", broken)
    reads(page, "#ea-file .ea-problem", "notes.mp3 is not audio that can be decoded")
    page.click(".ea-again")
    page.set_input_files("#ea-file input[type=file]", QUESTION)
    page.wait_for_selector(".ea-file[data-state=done]")
    assert page.locator(".ea-segments .ea-said").count() >= 1


def test_cancelling_a_recording(desk: Desk, long_recording: Path) -> None:
    page = desk.open("file")
    page.set_input_files("#ea-file input[type=file]", long_recording)
    page.wait_for_selector(".ea-segments .ea-said")
    page.press("#ea-file .ea-cancel", "Enter")
    reads(page, ".ea-left", "Cancelled")
    assert page.locator(".ea-segments .ea-said").count() >= 1, "the transcript so far stays"
    page.click(".ea-again")
    page.set_input_files("#ea-file input[type=file]", QUESTION)
    page.wait_for_selector(".ea-file[data-state=done]")


def test_text_is_translated_as_it_is_typed(desk: Desk) -> None:
    page = desk.open("text")
    page.type(".ea-source", "Good morning.", delay=20)
    reads(page, ".ea-result", "Guten")
    page.type(".ea-source", " Where is the station?")
    reads(page, ".ea-result", "Bahnhof?")  # without the mark it is that of what was typed before
    page.wait_for_selector(".ea-result[aria-busy=false]")
    said = page.inner_text(".ea-result")
    assert said.count("Guten Morgen") == 1, said
    assert saved(page, "#ea-text .ea-save") == ("translation.de.txt", said)
    notes = {
        "name": "a.txt",
        "mimeType": "text/plain",
        "buffer": b"\xef\xbb\xbfHello.\r\nThank you.",
    }
    page.set_input_files("#ea-text input[type=file]", notes)
    page.wait_for_function(  # the browser reads the file while this goes on
        "document.querySelector('.ea-source').value === 'Hello.\\nThank you.'"
    )
    reads(page, ".ea-result", "Danke")
    page.click("#ea-text .ea-clear")
    assert page.inner_text(".ea-result") == ""
    page.keyboard.press("Control+z")
    reads(page, ".ea-result", "Danke")
    page.fill(
        ".ea-source", "Guten Morgen, wie geht es Ihnen heute? Ich hoffe, alles ist in Ordnung."
    )
    page.click("text=Looks like German: switch")
    assert page.input_value("#ea-text [name=language]") == "de"
    page.click("#ea-text .ea-undo")
    assert page.input_value("#ea-text [name=language]") == "en"
    page.fill(".ea-source", "Too long. " * 120_000)  # more than a message to the server may hold
    page.wait_for_selector(
        "#ea-text .ea-problem:has-text('longer than the limit of 200,000 characters')"
    )
    box = page.locator("#ea-text .ea-problem").bounding_box()
    assert box["y"] + box["height"] <= page.viewport_size["height"], "it is in view"
    page.fill(".ea-source", "Thank you.")
    reads(page, ".ea-result", "Danke")
    page.wait_for_selector("#ea-text .ea-problem", state="hidden")


def test_a_text_in_a_language_that_is_not_installed_is_refused(desk: Desk) -> None:
    page = desk.open("text")
    page.fill(".ea-source", "OK")
    page.wait_for_selector(".ea-result:not(:empty)[aria-busy=false]")
    # The second may be Russian, Bulgarian or Macedonian.
    for text, model in (
        ("Bonjour tout le monde", "opus-mt-fr-de"),
        ("Привет, как дела?", "m2m100-418m"),
    ):
        page.fill(".ea-source", text)
        reads(page, "#ea-text .ea-problem", f"`edgeapp models pull {model}`")
        page.wait_for_selector(".ea-detected:has-text('no model here translates it')")
        assert page.inner_text(".ea-result") == "", "no translation of the text before"
    page.fill(".ea-source", "♪")
    page.wait_for_selector(".ea-result:has-text('♪')")
    assert not page.is_visible("#ea-text .ea-problem")


def test_doubtful_words_of_a_translation_are_marked(desk: Desk) -> None:
    page = desk.open("text")
    marked = "[...(CSS.highlights.get('ea-doubt') ?? [])].map((range) =>"
    marked += " range.startContainer.data.slice(range.startOffset, range.endOffset))"
    page.fill(".ea-source", "Thank you.\n\nThe floccinaucinihilipilification is at home.")
    page.wait_for_function(f"{marked}.length > 0")
    words = page.evaluate(marked)
    assert set(words) < set(page.inner_text(".ea-result").split()), words
    assert "Danke." not in words
    page.click("#ea-text .ea-mark-doubts")
    page.wait_for_function(f"{marked}.length === 0")
    page.reload()
    page.wait_for_selector("#ea-text [data-ready] section")
    assert page.get_attribute("#ea-text .ea-mark-doubts", "aria-pressed") == "false"


def test_models_are_loaded_and_unloaded(desk: Desk) -> None:
    page = desk.open("models")
    row = page.locator(".ea-rows li", has_text="demo-en-de")
    row.locator("button").wait_for()
    if row.locator("text=Unload").count() == 0:
        row.locator("button").click()
    row.locator("text=Unload").click()
    row.locator("text=not loaded").wait_for()
    row.locator("button", has_text="Load").click()
    row.locator(".ea-state", has_text=" in memory").wait_for()
    assert "English → German" in row.inner_text()
    reads(page, ".ea-summary", "5 on this machine, ")
    page.fill("#ea-models [name=name]", "no such thing")
    page.click("text=Look up")
    reads(page, ".ea-plan", "neither a known model nor a hub id")


def test_a_model_is_downloaded_and_removed(
    desk: Desk, stand_in_hub: Hub, marian_folder: Callable[..., Path]
) -> None:
    folder = marian_folder("opus-mt-en-de")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    stand_in_hub.repositories["Helsinki-NLP/opus-mt-en-de"] = Hosted(files)
    page = desk.open("models")
    page.fill("#ea-models [name=name]", "opus-mt-en-de")
    page.click("text=Look up")
    reads(page, ".ea-plan", "Helsinki-NLP/opus-mt-en-de: ")
    weights = [line for line in stand_in_hub.requests if "pytorch_model.bin" in line]
    assert not weights, "looking up a model does not download its weights"
    size = page.inner_text(".ea-plan button")
    assert size.startswith("Download "), size
    page.click(".ea-plan button")
    row = page.locator(".ea-rows li", has_text="opus-mt-en-de")
    row.locator("text=not loaded").wait_for()
    page.on("dialog", lambda dialog: dialog.accept())
    row.locator("text=Remove").click()
    row.wait_for(state="detached")
    del stand_in_hub.repositories["Helsinki-NLP/opus-mt-en-de"]


def test_tabs_by_keyboard(desk: Desk) -> None:
    page = desk.open("live")
    page.focus("#ea-tabs [role=tab]")
    for tab in ("file", "text"):
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f"#ea-{tab} section", state="visible")
    page.keyboard.press("End")
    page.wait_for_selector("#ea-history section", state="visible")
    page.wait_for_function("location.hash === '#history'")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#ea-live section", state="visible")
    page.keyboard.press("Tab")
    page.wait_for_function("document.activeElement.name === 'language'")


def test_other_paths_are_not_served(ui: Server, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret", "utf-8")

    def status(method: str, path: str) -> tuple[int, str]:
        connection = HTTPConnection(urlsplit(ui.url).netloc, timeout=400)
        connection.request(method, path, headers={"Origin": ui.url.rstrip("/")})
        response = connection.getresponse()
        result = response.status, response.read().decode("utf-8", "replace")
        connection.close()
        return result

    assert status("GET", "/")[0] == 200
    assert status("GET", "/manifest.json")[0] == 200
    assert status("GET", "/favicon.ico")[0] == 200
    for path in (
        f"/gradio_api/file={secret}", f"/gradio_api/file/{secret}", f"/file={secret}",
        "/gradio_api/proxy=http://127.0.0.1/", "/gradio_api/run/x", "/gradio_api/vibe-code",
        "/monitoring", "/gradio_api/call/x", "/gradio_api/api/translate",
        "/edgeapp/static/../app.py", "/edgeapp/static/%2e%2e/app.py", "/edgeapp/upload/../x",
        "/static/../../../../../../../etc/passwd", "/static/%2e%2e/%2e%2e/routes.py", "/docs",
        "/assets/..%2f..%2froutes.py", "/openapi.json", "/custom_component/x", "/etc/passwd",
        "/pwa_icon", "/pwa_icon/99999999", "/pwa_icon?size=99999999", "/robots.txt",
        "/gradio_api/heartbeat/x", "//monitoring", "/theme.css%3F/monitoring",
    ):  # fmt: skip
        for method in ("GET", "POST"):
            got, text = status(method, path)
            assert got in (404, 405), (method, path, got)
            assert "secret" not in text
            assert "root:" not in text
    # What the named endpoints need; without a body, or with a session that nobody has.
    for path in ("/gradio_api/upload", "/gradio_api/queue/join", "/gradio_api/call/translate"):
        assert status("POST", path)[0] in (400, 411), path
        assert status("GET", path)[0] in (404, 405), path
    assert status("GET", f"/gradio_api/queue/data?session_hash={'0' * 11}")[0] == 404
