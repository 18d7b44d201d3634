"""A record of the history in the page's editor: heard, corrected, restored."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from edgeapp.history import History, SpokenCue, TranslatedCue
from pipelines import Word
from pipelines.hub import assets_folder
from tests.e2e.test_ui_access import AXE, violations
from tests.fixtures.browser import Desk

TEXTS = ("We visit Anna.", "Anna is at home.", "The house is old.")


@pytest.fixture
def record(page_environment: dict[str, str], tmp_path: Path) -> int:
    """A record with words, a translation and a recording."""
    recording = tmp_path / "talk.flac"
    shutil.copy(assets_folder() / "samples" / "talk.flac", recording)
    with History(Path(page_environment["EDGEAPP_HISTORY"]), pytest.fail) as history:
        with history.recording("file", title="visit.flac", language="en", target="de") as journal:
            for number, text in enumerate(TEXTS):
                words = tuple(
                    Word(
                        f" {word}",
                        4 * number + i,
                        4 * number + i + 1,
                        0.2 if word == "old." else 0.9,
                    )
                    for i, word in enumerate(text.split())
                )
                journal.add(SpokenCue(4 * number, words[-1].end, f" {text}", words))
                doubts = ((0, 4),) if number else ()
                journal.translate(
                    TranslatedCue(4 * number, words[-1].end, f"Satz {number}.", doubts)
                )
            journal.describe(duration_s=23.0)
        assert journal.id is not None
        assert history.keep_sound(journal.id, recording, ".flac")
        return journal.id


def shows(page: Any, selector: str, texts: list[str]) -> None:
    """Wait until elements have these texts."""
    page.wait_for_function(
        "([selector, texts]) => JSON.stringify([...document.querySelectorAll(selector)]"
        ".map((each) => each.textContent.trim())) === JSON.stringify(texts)",
        arg=[selector, texts],
    )


def marks_doubts(page: Any, words: str) -> None:
    """Wait until these doubtful words are marked, in alphabetical order."""
    page.wait_for_function(
        "(words) => [...CSS.highlights.get('ea-doubt') ?? []].map((range) =>"
        " range.startContainer.nodeValue.slice(range.startOffset, range.endOffset))"
        ".sort().join() === words",
        arg=words,
    )


def test_a_record_is_heard_corrected_and_restored(
    desk: Desk, record: int, page_environment: dict[str, str]
) -> None:
    page = desk.open("history")
    page.fill("#ea-history [name=search]", "house old")
    page.click(".ea-entry:has-text('visit.flac')")
    said, meant = "#ea-history .ea-said", "#ea-history .ea-cue"
    shows(page, said, list(TEXTS))
    page.wait_for_function("CSS.highlights.get('ea-found-here')?.size === 1")
    page.evaluate(AXE)
    assert not violations(page)
    marks_doubts(page, "Satz,Satz,old.")
    page.click(".ea-toolbar >> text='Doubts'")
    marks_doubts(page, "old.")  # those of the transcript stay
    page.click(".ea-toolbar >> text='Doubts'")
    page.locator(meant).nth(1).fill("Der Satz 1.")
    page.locator(meant).nth(1).blur()
    marks_doubts(page, "Satz,Satz,old.")  # of the words that are left
    page.locator(meant).nth(1).press("Control+z")
    shows(page, meant, ["Satz 0.", "Satz 1.", "Satz 2."])

    page.wait_for_function("!document.querySelector('#ea-history .ea-play').disabled")
    page.locator(said).nth(1).click()
    page.wait_for_function("document.querySelector('#ea-history audio').currentTime > 4")
    page.wait_for_function("CSS.highlights.get('ea-spoken')?.size === 1")
    page.wait_for_function("document.querySelector('#ea-history audio').paused")

    # A correction: its sentence is translated again, and it is offered everywhere.
    page.locator(said).nth(0).fill("We visit Maria.")
    page.locator(said).nth(2).click()
    page.click(".ea-offer >> text=Replace")
    corrected = ["We visit Maria.", "Maria is at home.", TEXTS[2]]
    shows(page, said, corrected)
    page.wait_for_function(
        "[...document.querySelectorAll('#ea-history .ea-cue')].slice(0, 2)"
        ".every((cue) => cue.textContent.includes('Maria'))"
    )
    assert page.locator(meant).nth(2).inner_text() == "Satz 2.", "the others stay"
    page.wait_for_selector("#ea-history .ea-left:has-text('Saved.')")

    page.locator(said).nth(2).click()
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    shows(page, said, [*corrected[:2], "The", "house is old."])
    page.keyboard.press("Backspace")
    shows(page, said, corrected)
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    shows(page, said, corrected)
    page.keyboard.press("Control+z")
    shows(page, said, ["We visit Maria.", TEXTS[1], TEXTS[2]])

    page.click(".ea-toolbar >> text=Doubtful words 1")
    page.wait_for_function("getSelection().toString() === 'old.'")
    page.keyboard.press("Enter")
    page.wait_for_selector(".ea-toolbar >> text=Doubtful words 0")
    page.wait_for_function(
        "document.querySelector('#ea-history .ea-left').textContent === 'Saved.'"
    )

    page.click("#ea-history .ea-delete")
    # Captions of other tests may have these words, too.
    page.wait_for_selector(".ea-entry:has-text('visit.flac')", state="detached")
    page.click(".ea-toasts >> text=Undo")
    shows(page, said, ["We visit Maria.", TEXTS[1], TEXTS[2]])
    page.click("#ea-history .ea-mute")
    page.wait_for_selector("#ea-history .ea-play", state="hidden")
    with History(Path(page_environment["EDGEAPP_HISTORY"]), pytest.fail) as history:
        kept = history.open(record)
        assert kept is not None
        assert [cue.text.strip() for cue in kept.transcript.segments][0] == "We visit Maria."
        (old,) = [word for word in kept.transcript.segments[2].words if "old" in word.word]  # type: ignore[union-attr]
        assert old.probability == 1.0, "it was accepted"
        assert history.sound(record) is None
