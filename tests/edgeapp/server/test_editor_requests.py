"""What the page's editor asks of the server: records, their sound, sentences."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeapp.history import History, SpokenCue
from edgeapp.history.store import Store
from edgeapp.model_pool import ModelPool
from edgeapp.server.page import record_requests
from edgeapp.server.page.page_api import PageApi
from edgeapp.server.page.sentence_requests import carry_links
from edgeapp.server.page.sounds import media_suffix
from edgeapp.server.sessions import Sessions
from edgeapp.settings import Settings
from pipelines import EdgeError, Word
from pipelines.engine import CompileProgress
from pipelines.subtitles import Cue
from pipelines.translation import Alignment
from tests.edgeapp.server import attacks

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def api() -> PageApi:
    return PageApi(ModelPool(Settings(threads=1)), Sessions(1), can_change_models=True)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history.db", pytest.fail) as opened:
        yield opened


@pytest.fixture
def ask(api: PageApi, history: History) -> Ask:
    return lambda kind, **fields: api.reply({"type": kind, **fields}, history)


def test_the_page_asks_how_far_the_compiler_is(history: History) -> None:
    pool = ModelPool(Settings(threads=1))
    api = PageApi(pool, Sessions(1), can_change_models=True)
    assert api.reply({"type": "ping"}, history) == {"compiling": False}
    pool.compiling = True
    assert api.reply({"type": "ping"}, history) == {"compiling": True}
    pool.compile_progress = CompileProgress(12, 80, 5.0)
    assert api.reply({"type": "ping"}, history) == {"compiling": True, "done": 12, "total": 80}


def test_the_list_of_records_does_not_wait_for_the_trash(
    ask: Ask, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = history.add_text("a secret", "")
    kept = history.add_text("a letter", "")
    assert ask("delete", record=removed)["deleted"] == (removed,)
    monkeypatch.setattr(record_requests, "_UNDO_S", 0.0)
    begun, go_on = threading.Event(), threading.Event()
    wipe = Store.wipe

    def slow(self: Store) -> None:
        begun.set()
        assert go_on.wait(60)
        wipe(self)

    monkeypatch.setattr(Store, "wipe", slow)
    try:
        listed = [ask("history", search="")["records"] for _ in range(3)]
        assert begun.wait(60)
        listed.append(ask("history", search="")["records"])
    finally:
        go_on.set()
    assert [[record["id"] for record in records] for records in listed] == [[kept]] * 4
    history.close()  # when the trash is empty
    assert history.restore((removed or 0,)) == 0


def test_corrections_keep_the_times_of_words(ask: Ask, history: History) -> None:
    with history.recording("file", title="talk.flac") as journal:
        journal.add(Cue(0.0, 1.0, " Good mourning."))
    words = [
        {"word": " Good", "start": 0.0, "end": 0.4, "probability": 0.9},
        {"word": " morning.", "start": 0.4, "end": 1.0, "probability": 1},
    ]
    cue = {"start": 0.0, "end": 1.0, "text": " Good morning.", "words": words}
    change = {"translated": False, "at": 0, "removed": 1, "rows": [cue]}
    assert ask("edit", record=journal.id, counts=[1, 0], changes=[change]) == {"done": True}
    assert ask("record", record=journal.id)["cues"] == [cue]
    for broken in ({"start": 1}, {**words[0], "probability": 7}, {**words[0], "end": "nan"}, 5):
        rows = [{**cue, "words": [broken]}]
        with pytest.raises(EdgeError, match="invalid"):
            ask("edit", record=journal.id, counts=[1, 0], changes=[{**change, "rows": rows}])
    for wrong in ({"at": -1}, {"removed": "1"}, {"rows": None}):
        with pytest.raises(EdgeError):
            ask("edit", record=journal.id, counts=[1, 0], changes=[{**change, **wrong}])


def test_one_correction_in_ten_hours_changes_one_row(
    ask: Ask, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole transcript would be a message of more than the 4 MB that the server reads."""
    with history.recording("file", title="ten hours") as journal:
        for begin in range(0, 36_000, 3_600):
            journal.extend([
                SpokenCue(start, start + 3.0, f" Sentence {start} of many.", tuple(
                    Word(f" word{i}", start + i / 4, start + (i + 1) / 4, 0.9) for i in range(8)
                ))
                for start in range(begin, begin + 3_600, 3)
            ])  # fmt: skip
    changed: list[int] = []
    run = Store.run

    def counted(self: Store, work: Any, **options: Any) -> Any:
        def counting(db: sqlite3.Connection) -> Any:
            before = db.total_changes
            try:
                return work(db)
            finally:
                changed.append(db.total_changes - before)

        return run(self, counting, **options)

    stored = ask("edit", record=journal.id, counts=None, changes=[])["stored"]
    assert len(stored["cues"]) == 12_000
    corrected = stored["cues"][7_000] | {"text": " Corrected."}
    change = {"translated": False, "at": 7_000, "removed": 1, "rows": [corrected]}
    monkeypatch.setattr(Store, "run", counted)
    assert ask("edit", record=journal.id, counts=[12_000, 0], changes=[change]) == {"done": True}
    assert max(changed) <= 20, "the row, and the index of the search"
    monkeypatch.undo()
    expected = [*stored["cues"][:7_000], corrected, *stored["cues"][7_001:]]
    assert ask("record", record=journal.id)["cues"] == expected
    assert ask("history", search="corrected")["records"]
    assert not ask("history", search='"21000 of"')["records"], "what it was is not found any more"
    # A page that has counted other rows changes none, and learns what is stored.
    other = ask("edit", record=journal.id, counts=[11_999, 0], changes=[change])
    assert other == {"done": True, "stored": {"cues": expected, "translation": []}}


def test_rows_are_divided_joined_and_removed(ask: Ask, history: History) -> None:
    with history.recording("file", target="de") as journal:
        journal.extend(
            [Cue(i, i + 1, f" Sentence {i}.") for i in range(6)],
            [Cue(i, i + 1, f"Satz {i}.") for i in range(6)],
        )

    def edit(counts: list[int], *changes: tuple[bool, int, int, list[str]]) -> list[list[str]]:
        """Each change: translated, at, removed, texts. Returns the texts that are stored then."""
        messages = [
            {"translated": translated, "at": at, "removed": removed,
             "rows": [{"start": at + i / 9, "end": at + 1.0, "text": text}
                      for i, text in enumerate(texts)]}
            for translated, at, removed, texts in changes
        ]  # fmt: skip
        assert ask("edit", record=journal.id, counts=counts, changes=messages) == {"done": True}
        reply = ask("record", record=journal.id)
        return [[cue["text"].strip() for cue in reply[name]] for name in ("cues", "translation")]

    said, meant = edit([6, 6], (False, 1, 1, ["Sentence", "one."]), (True, 4, 2, ["Satz 4 und 5."]))
    assert said == ["Sentence 0.", "Sentence", "one.", *(f"Sentence {i}." for i in range(2, 6))]
    assert meant == ["Satz 0.", "Satz 1.", "Satz 2.", "Satz 3.", "Satz 4 und 5."]
    said, _ = edit([7, 5], (False, 1, 2, ["Sentence one."]), (False, 0, 1, []))
    assert said == ["Sentence one.", *(f"Sentence {i}." for i in range(2, 6))]
    said, meant = edit([5, 5], (True, 0, 5, []), (False, 5, 0, ["The end.", " "]))
    assert said[-2:] == ["Sentence 5.", "The end."], "rows without text are left out"
    assert meant == []
    assert ask("history", search="sentence 4")["records"]
    assert not ask("history", search="satz")["records"]


def test_corrections_keep_the_doubts_of_a_translation(ask: Ask, history: History) -> None:
    with history.recording("file", language="en", target="de") as journal:
        journal.add(Cue(0.0, 1.0, " Good morning."))
    cue = {"start": 0.0, "end": 1.0, "text": "Guten Morgen.", "doubts": [[6, 12]]}
    change = {"translated": True, "at": 0, "removed": 0, "rows": [cue]}
    assert ask("edit", record=journal.id, counts=[1, 0], changes=[change])["done"]
    (stored,) = ask("record", record=journal.id)["translation"]
    assert stored == {**cue, "doubts": ((6, 12),)}
    for broken in ([6], [[6]], "6", [["a", 1]]):
        rows = [{**cue, "doubts": broken}]
        with pytest.raises(EdgeError, match="doubts"):
            ask("edit", record=journal.id, counts=[1, 1], changes=[{**change, "rows": rows}])


def test_a_deleted_record_can_be_restored(ask: Ask, history: History) -> None:
    first, second = history.add_text("one", ""), history.add_text("two", "")
    assert ask("delete", record=first) == {"deleted": (first,)}
    shown = [each["id"] for each in ask("history", search="")["records"]]
    assert shown == [second]
    assert ask("restore", records=[first]) == {"restored": 1}
    assert ask("clear") == {"deleted": (first, second)}
    assert ask("history", search="")["records"] == []
    assert ask("restore", records=[first, second]) == {"restored": 2}
    for records in (None, "all", [-1], ["1"]):
        with pytest.raises(EdgeError):
            ask("restore", records=records)


def test_the_recording_of_a_record_is_served(
    thread_server: Callable[..., str], tmp_path: Path
) -> None:
    with History(tmp_path / "history.db", pytest.fail) as history:
        record = history.add_text("Hello.", "")
        other = history.of("anna").add_text("Hello.", "")
        for owner, number in (("", record), ("anna", other)):
            sound = tmp_path / "upload"
            sound.write_bytes(b"0123456789")
            assert history.of(owner).keep_sound(number or 0, sound, ".flac")
    url = thread_server()
    response, content = attacks.request(url, "GET", f"/edgeapp/sound/{record}")
    assert (response.status, content) == (200, b"0123456789")
    assert response.headers["content-type"] == "audio/flac"
    response, content = attacks.request(
        url, "GET", f"/edgeapp/sound/{record}", headers={"Range": "bytes=2-4"}
    )
    assert (response.status, content) == (206, b"234"), "a browser reads what it plays"
    for number in (other, 999):
        response, content = attacks.request(url, "GET", f"/edgeapp/sound/{number}")
        assert response.status == 404
        assert "deleted" in json.loads(content)["error"]


def test_only_names_of_sound_and_video_give_a_suffix() -> None:
    names = ("a.FLAC", "b.mp4", "c.html", "d", "e.m\u00e4", "f.")
    assert [media_suffix(name) for name in names] == [".flac", ".mp4", "", "", "", ""]


def test_sentences_are_translated_again(ask: Ask, kernels: None) -> None:
    sentences = ["Good morning.", "Thank you."]
    asked = {"language": "en", "target": "de"}
    reply = ask("translate_sentences", sentences=sentences, **asked)
    assert reply["translations"] == ["Guten Morgen!", "Danke."]
    assert len(reply["doubts"]) == 2
    unknown = "Zanzibar quuxes the blorg."
    reply = ask("translate_sentences", sentences=[sentences[0], unknown], **asked)
    assert reply["doubts"][1], "the model cannot be certain of all of these words"
    translated = reply["translations"][1]
    assert all(translated[start:end].strip() for start, end in reply["doubts"][1])
    for wrong in (None, [1], ["a"] * 501, ["a" * 5001]):
        with pytest.raises(EdgeError):
            ask("translate_sentences", sentences=wrong, **asked)
    with pytest.raises(EdgeError, match="target"):
        ask("translate_sentences", sentences=sentences, language="en")


def test_words_are_aligned_with_those_of_a_translation(ask: Ask, kernels: None) -> None:
    text, shown = "Anna sees Berlin.", "Sehr oft sieht Anna Berlin."
    links = ask("align", text=text, translation=shown, language="en", target="de")["links"]
    pairs = {(text[slice(*source)], shown[slice(*target)]) for source, target in links}
    assert ("Anna", "Anna") in pairs or ("Berlin.", "Berlin.") in pairs


def test_words_of_a_corrected_translation_keep_their_links() -> None:
    alignment = Alignment(((0, 3), (4, 7)), ((0, 3), (4, 7)), ((0, 0), (1, 1)))
    assert carry_links(alignment, "rot alt", "sehr rot alt") == [
        ((0, 3), (5, 8)),
        ((4, 7), (9, 12)),
    ]
    assert carry_links(alignment, "rot alt", "rot neu") == [((0, 3), (0, 3))]


def test_another_language_than_the_chosen_one_is_named(ask: Ask) -> None:
    german = "Guten Morgen, wie geht es Ihnen heute? Ich hoffe, dass alles in Ordnung ist."
    assert ask("detect_language", text=german, expected="en") == {"language": "de"}
    assert ask("detect_language", text=german, expected="de") == {"language": None}
    assert ask("detect_language", text=" ", expected="de") == {"language": None}
