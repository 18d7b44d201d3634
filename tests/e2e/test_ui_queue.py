"""Several recordings at once: a queue with states, one zip, and the picture of a video."""

from __future__ import annotations

import zipfile
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from pipelines import load_audio
from pipelines.hub import assets_folder
from tests.fixtures.browser import Desk

SAMPLES = assets_folder() / "samples"


def film(path: Path) -> Path:
    """The question with a gray picture."""
    samples = load_audio(SAMPLES / "question.flac")
    with av.open(str(path), "w") as container:
        picture = container.add_stream("libvpx", rate=5)
        picture.width, picture.height, picture.pix_fmt = 160, 90, "yuv420p"
        sound = container.add_stream("libopus", rate=48_000, layout="mono")
        for i in range(5 * (len(samples) // 16_000)):
            image = np.full((90, 160, 3), 90 + i, np.uint8)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = i, Fraction(1, 5)
            container.mux(picture.encode(frame))
        block = av.AudioFrame.from_ndarray(
            (samples[None] * 32767).astype(np.int16), format="s16", layout="mono"
        )
        block.sample_rate = 16_000
        for frame in av.AudioResampler("flt", "mono", 48_000, frame_size=960).resample(block):
            container.mux(sound.encode(frame))
        for stream in (picture, sound):
            container.mux(stream.encode(None))
    return path


@pytest.mark.slow
def test_what_comes_late_of_a_cancelled_recording_does_not_end_the_next_one(desk: Desk) -> None:
    page = desk.open("file")
    page.evaluate(
        """() => {
            const send = WebSocket.prototype.send;
            const numbers = [];
            WebSocket.prototype.send = function (data) {
                send.call(this, data);
                const { type, number } = typeof data === "string" ? JSON.parse(data) : {};
                if (type !== "file") return;
                numbers.push(number);
                if (numbers.length === 1) document.querySelector("#ea-file .ea-cancel").click();
                if (numbers.length !== 2) return;
                const about = { kind: "file", number: numbers[0], message: "no memory" };
                for (const type of ["error", "idle"]) {
                    const data = JSON.stringify({ type, ...about });
                    this.dispatchEvent(new MessageEvent("message", { data }));
                }
            };
        }"""
    )
    recordings = [SAMPLES / "talk.flac", SAMPLES / "question.flac"]
    page.set_input_files("#ea-file input[type=file]", recordings)
    page.wait_for_selector(
        ".ea-queue li:nth-child(2):is([data-state=done], [data-state=failed], "
        "[data-state=cancelled])"
    )
    states = "[...document.querySelectorAll('.ea-queue li')].map((row) => row.dataset.state)"
    assert page.evaluate(states) == ["cancelled", "done"]


@pytest.mark.slow
def test_a_queue_of_recordings(desk: Desk, tmp_path: Path) -> None:
    desk.expected.append("413")
    broken = tmp_path / "notes.mp3"
    broken.write_bytes(b"these are words" * 100)
    video = film(tmp_path / "film.webm")
    page = desk.open("live")
    dragged = """([name, type]) => {
        const given = new DataTransfer();
        if (name) given.items.add(new File(["content"], name, { type }));
        else Object.defineProperty(given, "types", { value: ["Files"] });
        const event = { dataTransfer: given, bubbles: true, cancelable: true };
        document.querySelector(".ea-welcome").dispatchEvent(new DragEvent("dragover", event));
        return document.body.dataset.drop;
    }"""
    assert page.evaluate(dragged, ["talk.flac", "audio/flac"]) == "Drop to transcribe"
    assert page.evaluate(dragged, ["page.png", "image/png"]) == "Drop to read the text"
    assert page.evaluate(dragged, ["", ""]) == "Drop here"
    page.evaluate(  # dropped anywhere, here on the Live tab
        """(bytes) => {
            const given = new DataTransfer();
            given.items.add(new File([new Uint8Array(bytes)], "notes.mp3"));
            const event = { dataTransfer: given, bubbles: true, cancelable: true };
            document.querySelector(".ea-welcome").dispatchEvent(new DragEvent("drop", event));
        }""",
        list(broken.read_bytes()),
    )
    page.wait_for_selector("#ea-file .ea-problem:has-text('notes.mp3 is not audio')")
    page.set_input_files("#ea-file input[type=file]", [SAMPLES / "talk.flac", broken, video])
    page.wait_for_selector(".ea-queue li[data-state=working]")
    assert page.locator(".ea-queue li").count() == 3
    page.wait_for_selector(".ea-queue li:nth-child(3)[data-state=done]")
    states = "[...document.querySelectorAll('.ea-queue li')].map((row) => row.dataset.state)"
    assert page.evaluate(states) == ["done", "failed", "done"]
    assert page.inner_text(".ea-queue-says") == "2 of 3 done"

    page.wait_for_selector(".ea-picture", state="visible")
    page.wait_for_function("document.querySelector('video').textTracks[0].cues.length > 0")
    cue = page.evaluate("document.querySelector('video').textTracks[0].cues[0].text")
    assert cue == page.locator(".ea-segments .ea-said").first.inner_text().strip()
    page.evaluate(  # a picture that is known only now, on a busy machine
        """() => {
            const video = document.querySelector("video"), [track] = video.textTracks;
            for (const cue of [...track.cues]) track.removeCue(cue);
            video.dispatchEvent(new Event("loadedmetadata"));
        }"""
    )
    page.wait_for_function("document.querySelector('video').textTracks[0].cues.length > 0")
    page.locator(".ea-queued", has_text="talk.flac").click()
    page.wait_for_selector(".ea-picture", state="hidden")
    assert page.inner_text("#ea-file .ea-name") == "talk.flac"
    assert page.locator(".ea-segments .ea-said").count() >= 4
    with page.expect_download() as download:
        page.click(".ea-zip")
    with zipfile.ZipFile(download.value.path()) as archive:
        names = sorted(archive.namelist())
        said = archive.read("talk.txt").decode()
    endings = ("json", "srt", "txt")
    assert names == [f"{name}.{end}" for name in ("film", "talk") for end in endings]
    assert len(said.splitlines()) >= 4
    page.click("#ea-file .ea-again")
    page.locator(".ea-queued", has_text="talk.flac").click()  # corrections of it are stored again
    page.locator("#ea-file .ea-said").first.fill("Corrected.")
    page.wait_for_selector("#ea-file .ea-left:has-text('Saved.')")
    page.locator(".ea-queue li", has_text="notes.mp3").locator("text=Try again").click()
    page.wait_for_selector(".ea-queue li:nth-child(2) .ea-facts:has-text('is not audio')")
