"""The sound of live captions: of a tab beside the microphone, kept, and heard again."""

from __future__ import annotations

import re

import pytest

from pipelines import load_audio
from tests.fixtures.browser import Desk

# Words that only the story has, which the microphone hears, or only the sample: several of each, as
# where the sound begins decides how a tiny model hears a word. "Train" may become "tree".
SAID = {
    "Me": r"\b(sun|window|dog|hungry|bread|neighbor|umbrella)\b",
    "Them": r"\b(river|train|garden|summer|children|games|welcome)\b",
}

# What a person chooses in the browser's own dialog: a tab that plays the sample.
SHARED_TAB = """() => {
    navigator.mediaDevices.getDisplayMedia = async () => {
        const context = new AudioContext();
        const played = context.createMediaStreamDestination();
        const source = context.createBufferSource();
        const reply = await fetch("/edgeapp/sample");
        source.buffer = await context.decodeAudioData(await reply.arrayBuffer());
        source.connect(played);
        source.start();
        const [picture] = document.createElement("canvas").captureStream(1).getTracks();
        window.shared = new MediaStream([picture, ...played.stream.getTracks()]);
        return window.shared;
    };
    const start = AudioBufferSourceNode.prototype.start;
    window.played = [];
    AudioBufferSourceNode.prototype.start = function (...given) {
        played.push(this.buffer.duration);
        return start.apply(this, given);
    };
}"""


# Keeps what the page sends as text.
SENT = """() => {
    const send = WebSocket.prototype.send;
    window.sent = [];
    WebSocket.prototype.send = function (data) {
        if (typeof data === "string") sent.push(JSON.parse(data));
        return send.call(this, data);
    };
}"""


@pytest.mark.slow
def test_the_sound_of_a_tab_is_recognized_kept_and_heard_again(desk: Desk) -> None:
    page = desk.open("live")
    page.evaluate(SHARED_TAB)
    page.select_option("#ea-live [name=sound]", "tab")
    page.evaluate(SENT)
    page.click(".ea-keep-sound")
    page.click(".ea-correct")
    page.click("#ea-live .ea-start")
    page.wait_for_function("sent.some(({ type, correct }) => type === 'live' && correct)")
    page.wait_for_selector("#ea-live .ea-line-of:nth-child(2) .ea-said:has-text(' ')")
    page.locator("#ea-live .ea-hear").first.click()
    page.wait_for_function("played.length === 2")
    sample, again = page.evaluate("played")
    assert 0.5 < again < sample, "the line only"
    page.click("#ea-live .ea-start")
    page.wait_for_selector(".ea-live[data-state=idle]")
    assert page.evaluate("shared.getTracks().every((track) => track.readyState === 'ended')")
    with page.expect_download() as download:
        page.click(".ea-save-sound")
    assert download.value.suggested_filename.endswith(".webm")
    kept = load_audio(download.value.path())
    assert len(kept) > 2 * 16_000
    assert abs(kept).max() > 0.05
    page.reload()
    page.wait_for_selector("#ea-live [data-ready] section")
    assert page.input_value("#ea-live [name=sound]") == "tab", "the choice is remembered"
    for switch in (".ea-keep-sound", ".ea-correct"):
        assert page.get_attribute(switch, "aria-pressed") == "true"
    page.click(".ea-correct")
    page.evaluate(
        "() => { navigator.mediaDevices.getDisplayMedia ="
        " async () => { throw new DOMException('no', 'NotAllowedError') } }"
    )
    page.click("#ea-live .ea-start")
    page.wait_for_selector("#ea-live .ea-problem:has-text('No tab or screen was chosen')")
    assert page.inner_text("#ea-live .ea-start") == "Start"


# Lines are shown, cleared and shown again; returns what is visible then.
CLEARED = """async ([before, ...after]) => {
    const { Captions } = await import("/edgeapp/static/captions.js");
    const captions = new Captions(document.querySelector("#ea-live"));
    const line = { id: 0, start: 0, end: 1, tail: "", translation: "", running: "" };
    captions.show({ ...line, text: before });
    captions.clear();
    return after.map((text) => {
        captions.show({ ...line, text });
        return document.querySelector("#ea-live .ea-said").textContent;
    });
}"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "visible"),
    [
        (
            [
                "ask not what",
                "ask not what can do",
                "Ask note what can do.",
                "Ask note what can do. So",
            ],
            [" can do", " can do.", " can do. So"],
        ),
        (["ask not", "Ask not.", "Ask not. What"], ["", " What"]),
        (["問わない", "問わない何が", "問わぬ何が"], ["何が", "何が"]),
    ],
)
def test_what_was_said_since_the_captions_were_cleared_stays_when_it_is_corrected(
    desk: Desk, texts: list[str], visible: list[str]
) -> None:
    page = desk.open("live")
    assert page.evaluate(CLEARED, texts) == visible


@pytest.mark.slow
def test_me_and_them_are_captioned_apart(desk: Desk) -> None:
    page = desk.open("live")
    page.evaluate(SHARED_TAB)
    page.select_option("#ea-live [name=sound]", "two")
    page.click("#ea-live .ea-start")
    for name, words in SAID.items():
        page.wait_for_function(  # final text; the tail is in an element of its own
            "([name, words]) => [...document.querySelectorAll('#ea-live .ea-line-of')].some("
            "(line) => line.querySelector('.ea-who')?.textContent === name"
            " && new RegExp(words).test(line.querySelector('.ea-said').firstChild?.data ?? ''))",
            arg=[name, words],
        )
    page.set_viewport_size({"width": 390, "height": 700})
    page.click(".ea-big-on")
    page.wait_for_selector(".ea-tools", state="hidden")
    for width, height in ((844, 390), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(  # a phone that is turned shows the end
            "(() => { const place = document.querySelector('.ea-captions');"
            " return place.scrollHeight - place.scrollTop - place.clientHeight < 2 })()"
        )
    page.click(".ea-big-off")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click("#ea-live .ea-start")
    page.wait_for_selector(".ea-live[data-state=idle]")
    assert page.evaluate("document.activeElement.className") == "ea-start"
    shown = page.locator("#ea-live .ea-line-of").evaluate_all(
        "(lines) => lines.filter((line) => !line.hidden).map((line) =>"
        " [line.querySelector('.ea-who').textContent, line.querySelector('.ea-said').textContent])"
    )
    heard = {name: " ".join(text for who, text in shown if who == name) for name in SAID}
    for who, text in heard.items():
        found = {name: len(re.findall(words, text)) for name, words in SAID.items()}
        assert found[who] > 3 * sum(found.values()) / 4, shown
    with page.expect_download() as download:
        page.click("#ea-live .ea-save")
    saved = download.value.path().read_text("utf-8")
    assert re.search(f"^Them: .*{SAID['Them']}", saved, re.MULTILINE), saved
    page.click("role=tab[name=History]")
    page.locator(".ea-entry").first.click()
    page.wait_for_selector("#ea-history .ea-time .ea-who:has-text('Them')")
