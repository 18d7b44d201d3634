"""The memory limit of a process: what does not fit waits outside."""

from __future__ import annotations

from typing import Any

import pytest

from edgeapp import memory_limit, process_memory
from edgeapp.memory_limit import MemoryLimit, MemoryLimitReached, parse_size
from edgeapp.model_pool import ModelPool
from edgeapp.settings import Settings
from pipelines.errors import OptionError
from pipelines.hub import assets_folder


@pytest.mark.parametrize(
    ("text", "size"),
    [("6GB", 6 << 30), ("800 mb", 800 << 20), ("1.5g", 3 << 29), ("512", 512 << 20)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "6TB", "-1", "100MB", "0", "1e9", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(OptionError):
        parse_size(text)
    assert parse_size(None) is None


def test_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "memory_in_use", lambda: 900 << 20)
    limit = MemoryLimit(1 << 30)
    limit.check(100 << 20, "a small model")
    with pytest.raises(MemoryLimitReached, match="a large model needs about 200 MB"):
        limit.check(200 << 20, "a large model")
    assert 300 < limit.longest_sound_s < 1_000
    unlimited = MemoryLimit()
    unlimited.check(1 << 60, "anything")
    assert unlimited.longest_sound_s == float("inf")


def test_a_live_session_keeps_its_memory_free(monkeypatch: pytest.MonkeyPatch) -> None:
    mb = 1 << 20
    monkeypatch.setattr(memory_limit, "memory_in_use", lambda: 1000 * mb)
    limit = MemoryLimit(1024 * mb)
    with limit.live_session(8 * mb):
        assert limit.free_bytes < 10 * mb
        with pytest.raises(MemoryLimitReached, match="a live session needs about 14 MB"):
            limit.check_live_session(8 * mb)
    limit.check_live_session(8 * mb)
    assert limit.free_bytes == 24 * mb
    with limit.live_session(4 * mb, correct=True):  # speech is kept until it is corrected
        assert limit.free_bytes < 4 * mb
        with pytest.raises(MemoryLimitReached, match="needs about 20 MB"):
            limit.check_live_session(4 * mb, correct=True)


def test_captions_of_the_page_count_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeapp.server.page.picker_options import ModelChoice
    from edgeapp.server.tasks.event_task import EventTask
    from edgeapp.server.tasks.live_task import LiveTask

    monkeypatch.setattr(memory_limit, "memory_in_use", lambda: (1 << 30) - (10 << 20))
    pool = ModelPool(Settings(), listed_only=True, memory_limit=MemoryLimit(1 << 30))
    history: Any = None
    task = LiveTask(pool, history, ModelChoice(), 48_000)
    with pytest.raises(MemoryLimitReached, match="a live session needs about 12 MB"):
        task.run(lambda message: None)
    corrected = LiveTask(pool, history, ModelChoice(correct=True), 48_000)
    with pytest.raises(MemoryLimitReached, match="a live session needs about 22 MB"):
        corrected.run(lambda message: None)
    with pytest.raises(MemoryLimitReached, match="a live session needs about 22 MB"):
        EventTask(pool, ModelChoice(correct=True), 48_000)
    assert not pool.loaded, "it is refused before a model is loaded"


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
def test_an_idle_model_makes_room_and_a_used_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = MemoryLimit(1 << 40)
    pool = ModelPool(Settings(), listed_only=True, memory_limit=limit)
    english = pool.translator("demo-en-de", "en", "de")
    used = 1 << 30

    def in_use() -> int:  # what is loaded takes all but a little
        return used if len(pool.loaded) else 0

    monkeypatch.setattr(memory_limit, "memory_in_use", in_use)
    limit.limit = used + 1
    with pool.using(english), pytest.raises(MemoryLimitReached):
        pool.translator("demo-de-en", "de", "en")
    pool.translator("demo-de-en", "de", "en")
    assert [model.folder.name for model in pool.loaded] == ["demo-de-en"]
    limit.limit = 1 << 20
    with pytest.raises(MemoryLimitReached):
        pool.translator("demo-en-de", "en", "de")
    assert [model.folder.name for model in pool.loaded] == ["demo-de-en"], "too large for the limit"
    assert process_memory.memory_in_use() > 0
    pool.engine.close()


@pytest.mark.slow
def test_a_recording_that_does_not_fit_is_told_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from edgeapp.server.api.errors import api_error_of
    from edgeapp.server.api.recognition import Recognition
    from edgeapp.server.api.transcription_request import TranscriptionRequest

    monkeypatch.setattr(memory_limit, "memory_in_use", lambda: (1 << 30) - 500_000)
    pool = ModelPool(Settings(), listed_only=True, memory_limit=MemoryLimit(1 << 30))
    path = assets_folder() / "samples" / "question.flac"
    unused: Any = None
    request = TranscriptionRequest("whisper-1")
    recognition = Recognition(pool, unused, request, None, "transcribe", path, "a.flac", 60.0)
    with pytest.raises(MemoryLimitReached, match="lasts more than 2 s") as reached:
        list(recognition.run(lambda: False))
    refusal = api_error_of(reached.value)
    assert (refusal.status, refusal.retry_after_s) == (429, 10)
