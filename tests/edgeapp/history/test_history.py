"""History: written while it happens, searched, deleted from the file, valid after a kill."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edgeapp.documents.transcript_formats import render
from edgeapp.history import History, SpokenCue, TranslatedCue, store
from edgeapp.history.recovery import read_rows
from pipelines import Word
from pipelines.subtitles import Cue, Transcript
from tests.edgeapp.history.records import add_file, replace_text


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "folder" / "history.db", pytest.fail) as opened:
        yield opened


def talk(history: History, title: str = "talk.flac") -> int:
    transcript = Transcript(
        "en",
        (Cue(0.0, 1.5, " Good morning."), Cue(1.5, 3.0, " The Café is closed.")),
        (Cue(0.0, 1.5, "Guten Morgen."), Cue(1.5, 3.0, "Das Café ist zu.")),
        "de",
    )
    return add_file(history, transcript, title, 3.0, "demo")


def test_a_record_is_read_back(history: History) -> None:
    record = history.open(talk(history))
    assert record is not None
    assert (record.kind, record.title, record.language, record.target, record.model) == (
        "file", "talk.flac", "en", "de", "demo",
    )  # fmt: skip
    assert record.duration_s == 3.0
    assert record.text == "Good morning. The Café is closed."
    assert record.translation == "Guten Morgen. Das Café ist zu."
    assert render(record.transcript, "srt").startswith("1\n00:00:00,000 --> 00:00:01,500\nGood")
    assert "Das Café" in render(record.transcript, "vtt", which="translated")


def test_a_corrected_record_is_read_back_and_found(history: History) -> None:
    record = talk(history)
    corrected = (Cue(0.0, 1.5, " Good evening."), Cue(1.5, 2.0, " "))
    assert replace_text(history, record, corrected, (Cue(0.0, 1.5, "Guten Abend."),))
    read = history.open(record)
    assert read is not None
    assert (read.text, read.translation) == ("Good evening.", "Guten Abend.")
    assert (read.title, read.duration_s) == ("talk.flac", 3.0), "the rest stays"
    assert [one.id for one in history.search("evening abend")] == [record]
    assert not history.search("closed"), "what was corrected is not found any more"
    assert not replace_text(history.of("ben"), record, ()), "only its owner corrects it"
    assert history.open(record) == read
    history.delete(record)
    assert not replace_text(history, record, corrected), "a deleted record does not come back"


def test_the_newest_come_first_in_pages(history: History) -> None:
    for number in range(5):
        history.add_text(f"text {number}", "")
    assert [one.title for one in history.list(2)] == ["text 4", "text 3"]
    assert [one.title for one in history.list(2, 4)] == ["text 0"]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("café", True),
        ("CAFE", True),
        ("morgen zu", True),  # both words, wherever they are
        ("orning", True),  # a part of a word
        ("is", True),  # shorter than what the index knows
        ("talk", True),  # the title
        ("evening", False),
        ('"', False),
        ("%", False),
        ("café evening", False),
        ("", True),
    ],
)
def test_searching(history: History, search: str, found: bool) -> None:
    talk(history)
    history.add_text("nothing of that", "kein Wort")
    titles = [one.title for one in history.search(search)]
    assert ("talk.flac" in titles) is found


def test_a_search_shows_the_match_in_the_excerpt(history: History) -> None:
    history.add_text("word " * 200 + "needle" + " word" * 200, "")
    assert "needle" in history.search("needle")[0].excerpt


def test_deleted_is_gone_from_the_file(history: History, tmp_path: Path) -> None:
    secret, other = history.add_text("a very secret thing", "geheim"), talk(history)
    assert secret is not None
    assert history.delete(secret)
    assert not history.delete(secret)
    assert history.open(secret) is None
    assert history.search("secret") == ()
    history.close()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "folder").iterdir())
    assert b"secret" not in stored
    assert b"Good morning" in stored
    assert history.open(other) is not None
    history.clear()
    assert history.list() == ()


def test_renaming(history: History) -> None:
    kept = talk(history, title="")
    assert history.list()[0].title.startswith("Good morning.")
    assert history.rename(kept, "Tuesday")
    assert history.search("tuesday")[0].title == "Tuesday"
    assert not history.rename(kept + 1, "nobody")


def test_owners_are_separate(history: History) -> None:
    anna, ben = history.of("anna"), history.of("ben")
    kept = talk(anna)
    assert [one.id for one in anna.list()] == [kept]
    assert ben.list() == history.list() == ()
    assert ben.search("morning") == ()
    assert ben.open(kept) is None
    assert not ben.rename(kept, "mine")
    assert not ben.delete(kept)
    ben.clear()
    assert anna.open(kept) is not None


def test_a_live_session_is_written_while_it_runs(history: History) -> None:
    with history.recording("live", language="en", target="de", model="demo") as journal:
        assert history.list() == (), "nothing was said yet"
        journal.add(Cue(0.0, 1.0, "Hello."))
        record = history.open(history.list()[0].id)
        assert record is not None
        assert record.text == "Hello."
        journal.translate(Cue(0.0, 1.0, "Hallo."))
        journal.describe(duration_s=7.5)
    record = history.open(record.id)
    assert record is not None
    assert (record.translation, record.duration_s) == ("Hallo.", 7.5)


def test_a_record_deleted_meanwhile_is_not_recreated(history: History) -> None:
    with history.recording("live") as journal:
        journal.add(Cue(0.0, 1.0, "Hello."))
        assert journal.id is not None
        history.delete(journal.id)
        journal.add(Cue(1.0, 2.0, "Goodbye."))
    assert history.list() == ()


def test_a_disabled_history_stores_no_records() -> None:
    history = History(None, pytest.fail)
    assert not history.on
    assert history.add_text("a", "b") is None
    with history.recording("live") as journal:
        journal.add(Cue(0.0, 1.0, "Hello."))
    assert history.list() == ()
    assert history.open(1) is None
    assert not history.delete(1)


def test_many_threads(history: History) -> None:
    def speak(name: str) -> None:
        with history.recording("live", title=name) as journal:
            for second in range(20):
                journal.add(Cue(second, second + 1, f"{name} {second}."))

    threads = [threading.Thread(target=speak, args=(f"person {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [history.open(one.id) for one in history.list()]
    assert sorted(len(record.transcript.segments) for record in texts if record) == [20] * 4


_SPEAKER = """
import sys, time
from pathlib import Path
from edgeapp.history import History
from pipelines.subtitles import Cue
with History(Path(sys.argv[1])).recording("live") as journal:
    for second in range(1000):
        journal.add(Cue(second, second + 1, f"sentence {second}."))
        print(second, flush=True)
"""


def test_a_killed_process_keeps_its_record(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with subprocess.Popen(
        [sys.executable, "-c", _SPEAKER, path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(30)]
        process.send_signal(signal.SIGKILL)
    with History(path, pytest.fail) as history:
        record = history.open(history.list()[0].id)
        assert record is not None
        assert len(record.transcript.segments) >= int(said[-1]) + 1
        assert history.search("sentence 29")


_LIVE_SPEAKER = """
import sys, time
from pathlib import Path
from edgeapp.history import History
from pipelines.subtitles import Cue
with History(Path(sys.argv[1])).recording("live", background=True) as journal:
    for second in range(30):
        journal.add(Cue(second, second + 1, f"sentence {second}."))
    print("said", flush=True)
    time.sleep(60)
"""


def test_cues_in_the_background_are_written_at_once_and_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with (
        History(path, pytest.fail) as history,
        subprocess.Popen(
            [sys.executable, "-c", _LIVE_SPEAKER, path], stdout=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"said\n"
        deadline = time.monotonic() + 60
        while not history.search("sentence 29"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        record = history.open(history.list()[0].id)
        assert record is not None
        said = [cue.text.strip() for cue in record.transcript.segments]
        assert said == [f"sentence {second}." for second in range(30)]


def test_cues_in_the_background_do_not_wait_for_the_file(history: History) -> None:
    """A search, or the removal of a large record, may hold it for seconds."""
    kept = talk(history)
    held, go_on = threading.Event(), threading.Event()

    def hold(db: object) -> None:
        held.set()
        assert go_on.wait(60)

    assert history._store is not None
    holding = threading.Thread(target=history._store.run, args=(hold,))
    holding.start()
    try:
        assert held.wait(60)
        with history.recording("live", background=True) as journal:
            for second in range(20):
                journal.add(Cue(second, second + 1, f"sentence {second}."))
            journal.translate(Cue(0.0, 1.0, "Satz 0."))
            assert journal.id is None
            # Neither does reading.
            assert [one.id for one in history.search("morning")] == [kept]
            assert history.open(kept) is not None
            go_on.set()
    finally:
        go_on.set()
        holding.join(60)
    record = history.open(history.list()[0].id)
    assert record is not None
    said = [cue.text.strip() for cue in record.transcript.segments]
    assert said == [f"sentence {second}." for second in range(20)], "its end writes the rest"
    assert record.translation == "Satz 0."


def test_others_write_while_a_record_is_removed_from_a_large_history(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with history.recording("file") as journal:
        texts = [f"word {second * 7919 % 10_007}" for second in range(6_000)]
        journal.extend([Cue(second, second + 1, text) for second, text in enumerate(texts)])
    secret = history.add_text("a very secret thing", "geheim")
    assert secret is not None
    other, written = talk(history), list[int]()

    def between(seconds: float) -> None:
        history.rename(other, f"meanwhile {len(written)}")
        written.append(1)

    monkeypatch.setattr(store, "_MERGED_PAGES", 4)
    monkeypatch.setattr(store.time, "sleep", between)
    assert history.delete(secret)
    monkeypatch.undo()
    assert len(written) > 5, "in steps"
    assert [one.id for one in history.search("meanwhile")] == [other]
    assert len(history.search("word 7919")) == 1
    history.close()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "folder").iterdir())
    assert b"secret" not in stored
    assert b"Good morning" in stored


def test_only_its_owner_may_read_it(history: History, tmp_path: Path) -> None:
    talk(history)
    assert (tmp_path / "folder" / "history.db").stat().st_mode & 0o077 == 0


def test_words_keep_their_times(history: History) -> None:
    spoken = (Word(" Good", 0.0, 0.4, 0.9), Word(" mornin’.", 0.4, 1.5, 0.25))
    with history.recording("file") as journal:
        journal.add(SpokenCue(0.0, 1.5, " Good mornin’.", spoken))
        journal.add(Cue(1.5, 2.0, " Yes."))
    assert journal.id is not None

    def words() -> list[tuple[Word, ...]]:
        record = history.open(journal.id or 0)
        assert record is not None
        return [getattr(cue, "words", ()) for cue in record.transcript.segments]

    assert words() == [spoken, ()]
    corrected = (spoken[0], Word(" morning.", 0.4, 1.5, 1.0))
    replace_text(history, journal.id, (SpokenCue(0.0, 1.5, " Good morning.", corrected),))
    assert words() == [corrected]


def test_a_translation_keeps_its_doubts(history: History, tmp_path: Path) -> None:
    with history.recording("file", language="en", target="de") as journal:
        journal.translate(TranslatedCue(0.0, 1.0, "Guten Morgen.", ((6, 12),)))
        journal.translate(Cue(1.0, 2.0, "Ja."))

    def doubts() -> list[tuple[tuple[int, int], ...]]:
        record = history.open(journal.id or 0)
        assert record is not None
        assert "doubts" not in render(record.transcript, "json"), "they are marks of the page"
        return [getattr(cue, "doubts", ()) for cue in record.transcript.translation]

    assert doubts() == [((6, 12),), ()]
    replace_text(history, journal.id or 0, (), (TranslatedCue(0.0, 1.0, "Guten Tag.", ((0, 5),)),))
    assert doubts() == [((0, 5),)]
    with closing(sqlite3.connect(tmp_path / "folder" / "history.db")) as db:
        for damaged in ("[", "7", "[[1]]", '[["a", 2]]', "[[1, Infinity]]"):
            db.execute("UPDATE entries SET words = ?", (damaged,))
            db.commit()
            assert doubts() == [()], "the text is readable still"


def recording(tmp_path: Path, size: int = 1000) -> Path:
    path = tmp_path / f"upload-{size}"
    path.write_bytes(b"\0" * size)
    return path


def sounds_in(tmp_path: Path) -> list[int]:
    folder = tmp_path / "folder" / "history-sounds"
    return sorted(path.stat().st_size for path in folder.iterdir())


def test_the_sound_of_a_record_is_kept_until_one_of_them_is_deleted(
    history: History, tmp_path: Path
) -> None:
    kept, other = talk(history), talk(history)
    assert history.sound(kept) is None
    uploaded = recording(tmp_path)
    assert history.keep_sound(kept, uploaded, ".flac")
    assert not uploaded.exists(), "it was moved"
    sound = history.sound(kept)
    assert sound is not None
    assert (sound.suffix, sound.stat().st_size, sound.stat().st_mode & 0o077) == (".flac", 1000, 0)
    assert sound.parent.stat().st_mode & 0o077 == 0, "only its owner reads it"
    assert [one.sound for one in history.list()] == [False, True]
    assert history.of("ben").sound(kept) is None
    assert not history.of("ben").delete_sound(kept)
    assert history.delete_sound(kept)
    assert not history.delete_sound(kept)
    assert history.open(kept) is not None, "the text stays"
    assert history.keep_sound(other, recording(tmp_path, 700), ".mp3")
    history.delete(other)
    assert sounds_in(tmp_path) == []
    assert not history.keep_sound(other, recording(tmp_path), ".mp3"), "the record is deleted"
    assert sounds_in(tmp_path) == []


def test_the_oldest_sounds_give_way_to_new_ones(tmp_path: Path) -> None:
    history = History(tmp_path / "folder" / "history.db", pytest.fail, sound_mb=1)
    records = [talk(history) for _ in range(3)]
    for number, record in enumerate(records):
        assert history.keep_sound(record, recording(tmp_path, 400_000 + number))
    assert [history.sound(record) is not None for record in records] == [False, True, True]
    assert sounds_in(tmp_path) == [400_001, 400_002]
    assert not history.keep_sound(records[0], recording(tmp_path, 2_000_000)), "over the quota"
    assert sounds_in(tmp_path) == [400_001, 400_002]
    history.close()


def test_a_discarded_record_can_be_restored_until_the_trash_is_emptied(
    history: History, tmp_path: Path
) -> None:
    first, second = talk(history), talk(history, "other.flac")
    history.keep_sound(first, recording(tmp_path), ".flac")
    assert history.of("ben").discard(first) == ()
    assert history.discard(first) == (first,)
    assert history.discard(first) == ()
    assert [one.id for one in history.list()] == [second]
    assert (history.open(first), history.sound(first)) == (None, None)
    assert not history.search("talk")
    assert not replace_text(history, first, ())
    history.empty_trash(older_than_s=60)
    assert history.of("ben").restore((first,)) == 0
    assert history.restore((first, 999)) == 1
    assert history.sound(first) is not None
    assert history.discard(None) == (first, second)
    history.empty_trash()
    assert history.restore((first, second)) == 0
    assert sounds_in(tmp_path) == []
    history.close()
    assert b"Good morning" not in (tmp_path / "folder" / "history.db").read_bytes()


def test_a_history_in_a_folder_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9 ?#%41")
    with History(folder / "history.db", pytest.fail) as history:
        record = talk(history)
        assert [one.id for one in history.search("talk")] == [record]
        assert history.open(record) is not None


def test_a_history_that_is_forgotten_while_its_trash_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", problems.append)
    forgotten = threading.Event()
    monkeypatch.setattr(History, "empty_trash", lambda *_: forgotten.wait())
    history = History(tmp_path / "history.db", pytest.fail)
    talk(history)
    history.empty_trash_soon(60)
    (worker,) = [each for each in threading.enumerate() if each.name == "edgeapp-trash"]
    del history
    forgotten.set()
    worker.join()
    assert problems == []


def test_speakers_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with History(path, pytest.fail) as history:
        with history.recording("live", language="en", target="de") as journal:
            journal.add(Cue(0.0, 1.0, "Hello.", speaker="Me"))
            journal.add(Cue(1.0, 2.0, "Yes?", speaker="Them"))
            journal.translate(Cue(1.0, 2.0, "Ja?", speaker="Them"))
            journal.translate(Cue(0.0, 1.0, "Hallo.", speaker="Me"))
            journal.add(Cue(2.0, 3.0, "Nobody said this."))
        assert journal.id is not None
        record = history.open(journal.id)
        assert record is not None
        cues = [*record.transcript.segments, *record.transcript.translation]
        assert [getattr(cue, "speaker", "") for cue in cues] == ["Me", "Them", "", "Me", "Them"]
    assert {row[-1] for row in read_rows(path).entries.values()} == {"Me", "Them", None}
