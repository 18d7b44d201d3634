"""Uploaded recordings, up to their decoding."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from edgeapp import memory_limit
from edgeapp.history import History
from edgeapp.live import doubts
from edgeapp.memory_limit import MemoryLimit, MemoryLimitReached
from edgeapp.model_pool import ModelPool
from edgeapp.server.page.picker_options import ModelChoice
from edgeapp.server.sessions import Session, Sessions, TaskCancelled
from edgeapp.server.tasks.file_task import FileTask
from edgeapp.settings import Settings
from pipelines.asr.audio.arrays import SampleBuffer
from pipelines.errors import AudioError
from pipelines.hub import assets_folder
from tests.asr.audio.hostile import endless_wav, flac, flac_frame, wav

pytestmark = pytest.mark.usefixtures("kernels")

UNUSED: Any = None  # history, choice: not needed before transcription
POOL = ModelPool(Settings(), listed_only=True)


def task(path: Path, minutes: float = 1e6) -> FileTask:
    return FileTask(POOL, UNUSED, UNUSED, path, "talk.mp3", minutes)


def transcribe_question(
    folder: Path, target_language: str
) -> tuple[Path, History, list[dict[str, Any]]]:
    """Run a task on the sample of a question, with translation.

    Returns:
        The uploaded file, the history, and the messages.
    """
    path = folder / "0f0f0f"
    shutil.copy(assets_folder() / "samples" / "question.flac", path)
    history, messages = History(folder / "history.db"), list[dict[str, Any]]()
    choice = ModelChoice("demo", None, target_language)
    work = FileTask(ModelPool(Settings(threads=1)), history, choice, path, "talk.flac", 10)
    work.run(messages.append)
    return path, history, messages


def test_a_hostile_file_is_rejected_under_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "0f0f0f"
    path.write_bytes(flac(4, [flac_frame(0)]))
    with pytest.raises(AudioError, match=r"talk\.mp3 has a sample rate of 4 Hz") as caught:
        task(path).run(lambda message: None)
    assert "0f0f0f" not in str(caught.value)
    assert not path.exists()


@pytest.mark.slow
def test_a_damaged_file_gives_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0f0f0f"
    path.write_bytes(flac(16_000, [flac_frame(0)], 3600 * 16_000))
    messages: list[dict[str, Any]] = []
    work = task(path)
    monkeypatch.setattr(work, "_transcribe", lambda samples, send: None)
    work.run(messages.append)
    assert [message["type"] for message in messages] == ["file_warning", "file_sound"]
    assert messages[0]["message"].startswith(
        "talk.mp3 is damaged or breaks off: 4.1 s of the 3600.0 s"
    )


def test_cancelling_while_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = endless_wav(tmp_path)
    decoding = threading.Event()
    append = SampleBuffer.append

    def appending(self: SampleBuffer, block: Any) -> None:
        append(self, block)
        decoding.set()

    monkeypatch.setattr(SampleBuffer, "append", appending)
    messages: list[dict[str, Any]] = []
    session = Session(Sessions(1), messages.append)
    session.start(task(path))
    assert decoding.wait(60)
    session.cancel("file")
    assert session.wait(60)
    assert messages == [{"type": "idle", "kind": "file", "cancelled": True}]
    assert not path.exists()


def test_a_recording_counts_against_the_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0f0f0f"
    path.write_bytes(wav(16_000, 1, bytes(2 * 16_000 * 10)))
    monkeypatch.setattr(memory_limit, "memory_in_use", lambda: (1 << 30) - 500_000)
    pool = ModelPool(Settings(), listed_only=True, memory_limit=MemoryLimit(1 << 30))
    work = FileTask(pool, UNUSED, UNUSED, path, "talk.mp3", 60)
    with pytest.raises(MemoryLimitReached, match=r"talk\.mp3 lasts more than 2 s"):
        work.run(lambda message: None)
    assert not path.exists()


@pytest.mark.slow
def test_speech_in_the_target_language_is_shown_and_stored_as_its_own_translation(
    tmp_path: Path,
) -> None:
    path, history, messages = transcribe_question(tmp_path, "en")
    segments = [each["segment"]["text"] for each in messages if each["type"] == "file_segment"]
    cues = [each["cue"]["text"] for each in messages if each["type"] == "file_translated"]
    assert "".join(segments).split() == " ".join(cues).split() != []
    (summary,) = history.list()
    record = history.open(summary.id)
    assert record is not None
    assert [cue.text for cue in record.transcript.translation] == cues
    words = [word for cue in record.transcript.segments for word in getattr(cue, "words", ())]
    assert "".join(word.word for word in words).split() == "".join(segments).split()
    assert all(0 <= word.start <= word.end <= 10 for word in words)
    assert not path.exists()
    sound = history.sound(summary.id)
    assert sound is not None
    assert sound.name.endswith(".flac")
    assert sound.read_bytes() == (assets_folder() / "samples" / "question.flac").read_bytes()
    history.close()


@pytest.mark.slow
def test_doubtful_words_of_the_translation_are_sent_and_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubts, "_BELOW", 1.1)  # all words are doubtful
    _, history, messages = transcribe_question(tmp_path, "de")
    cues = [each["cue"] for each in messages if each["type"] == "file_translated"]
    for cue in cues:
        marked = [cue["text"][start:end] for start, end in cue["doubts"]]
        assert marked == cue["text"].split() != []
    record = history.open(history.list()[0].id)
    assert record is not None
    stored = [getattr(cue, "doubts", None) for cue in record.transcript.translation]
    assert stored == [cue["doubts"] for cue in cues]
    history.close()


def test_a_task_that_was_cancelled_before_it_began(tmp_path: Path) -> None:
    path = tmp_path / "0f0f0f"
    path.write_bytes(wav(16_000, 1, bytes(32_000)))
    work = task(path)
    work.cancel()
    with pytest.raises(TaskCancelled):
        work.run(lambda message: None)
